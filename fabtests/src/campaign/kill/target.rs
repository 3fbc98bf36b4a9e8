//! A process that executes one operation between two marks, and is killed or stopped on the way.

use anyhow::{Context as _, bail, ensure};
use selvedge::{Errno, FiAddr, TagMatch};
use selvedge_testkit::process;
use selvedge_testkit::timeout::Timeout;
use serde::{Deserialize, Serialize};

use super::heap::{self, SentBytes};
use super::operation::{Action, Operation, number};
use super::traced_process::mark;
use crate::campaign::endpoint::{
    Access, CampaignEndpoint, Completion, Kind, MemoryKind, blank, discover,
};
use crate::campaign::message::{self, Stamp};
use crate::campaign::role::Role;

/// The configuration of a target.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Config {
    /// The name of the [`Operation`].
    pub(crate) operation: String,
    /// The name of the target's endpoint.
    pub(crate) name: String,
    /// The address of the partner.
    pub(crate) partner: String,
    /// The number of the incarnation.
    pub(crate) incarnation: u32,
}

/// The target with its endpoint.
struct Target {
    operation: &'static Operation,
    endpoint: CampaignEndpoint,
    partner: FiAddr,
    incarnation: u32,
}

impl Role for Config {
    const NAME: &'static str = "target";

    fn execute(&self) -> anyhow::Result<()> {
        let operation = Operation::by_name(&self.operation)
            .with_context(|| format!("there is no operation {:?}", self.operation))?;
        heap::switch(operation.is_on_heap);
        let info = discover(Some(&self.name), &operation.params())?;
        if operation.action == Action::Open {
            mark()?;
        }
        let mut endpoint = CampaignEndpoint::with_wait(&info, operation.target_wait_object())?;
        if operation.action == Action::Open {
            mark()?;
        }
        if operation.lends() {
            endpoint.accept_lent();
        }
        let mut target = Target {
            operation,
            partner: endpoint.insert(&self.partner)?,
            endpoint,
            incarnation: self.incarnation,
        };
        if let Action::Serve(access, len) = operation.action {
            target.endpoint.register_memory()?;
            let content = initial_content(access, target.stamp(number::OPERATION), len);
            target.endpoint.set_memory(MemoryKind::Ordinary, &content);
        }
        if operation.is_connected() {
            target.connect()?;
        }
        if let Action::Close(len) = operation.action {
            return target.close(len);
        }
        if operation.action != Action::Open {
            target.run_operation()?;
        }
        process::reply(&())?;
        process::next_request::<()>()?;
        target.run_to_end()
    }
}

impl Target {
    fn stamp(&self, number: u32) -> Stamp {
        Stamp::new(self.incarnation, number)
    }

    fn connect(&mut self) -> anyhow::Result<()> {
        let stamp = self.stamp(number::CONNECT);
        self.post_receive(stamp, 8)?;
        self.send(Kind::Delivered, 8, number::CONNECT)?;
        self.await_completions(stamp, 2)
    }

    /// Executes the operation, between its marks.
    fn run_operation(&mut self) -> anyhow::Result<()> {
        let stamp = self.stamp(number::OPERATION);
        if let Some((_, len)) = self.operation.receives() {
            self.post_receive(stamp, len)?;
            mark()?;
            let outcome = self.poll_completion()?;
            mark()?;
            check(&outcome, stamp)?;
        } else if let Some((kind, len)) = self.operation.sends() {
            let mut bytes = message::write(stamp, len);
            let on_heap = self.sent_bytes(&mut bytes)?;
            mark()?;
            // The queues are empty, so there is room.
            self.endpoint.send_bytes(kind, self.partner, bytes, stamp)?;
            if let (Action::SendAndFork(_), Some(bytes)) = (self.operation.action, on_heap) {
                bytes.overwrite_in_child()?;
            }
            let outcome = if kind.is_injected() {
                None
            } else {
                Some(self.poll_completion()?)
            };
            if let (Action::SendAndFree(_), Some(bytes)) = (self.operation.action, on_heap) {
                bytes.overwrite_after_free()?;
            }
            mark()?;
            outcome.map_or(Ok(()), |outcome| check(&outcome, stamp))?;
        } else if let Action::Access(access, memory_kind, len) = self.operation.action {
            let bytes = match access {
                Access::Write => message::write(stamp, len),
                Access::Read | Access::Add => blank(len),
            };
            mark()?;
            let (endpoint, key) = (&mut self.endpoint, memory_kind.key());
            endpoint.access(access, key, self.partner, bytes)?;
            let outcome = self.poll_completion()?;
            mark()?;
            ensure!(outcome.error.is_none(), "at the target: {outcome:?}");
            let found = outcome.received().unwrap_or_default();
            let expected = match access {
                Access::Write => Box::default(),
                Access::Read | Access::Add => initial_content(access, stamp, len),
            };
            ensure!(*found == *expected, "the target fetched {found:x?}");
        } else if self.operation.action == Action::Park {
            self.post_receive(stamp, 8)?;
            mark()?;
            self.endpoint.arm_wakeup()?;
            mark()?;
            let outcome = self.park_until_completion()?;
            check(&outcome, stamp)?;
        }
        Ok(())
    }

    /// Parks until a completion is stored, and returns it.
    fn park_until_completion(&mut self) -> anyhow::Result<Completion> {
        loop {
            if let Some(outcome) = self.endpoint.take() {
                return Ok(outcome);
            }
            self.endpoint.wait_for_wakeup()?;
            self.endpoint.drive()?;
            self.endpoint.arm_wakeup()?;
        }
    }

    /// Polls until a completion is stored, without checks of time: the process is single-stepped.
    fn poll_completion(&mut self) -> anyhow::Result<Completion> {
        loop {
            if let Some(outcome) = self.endpoint.poll()? {
                return Ok(outcome);
            }
        }
    }

    fn close(mut self, len: usize) -> anyhow::Result<()> {
        self.post_receive(self.stamp(number::FROM_PARTNER), 8)?;
        let stamp = self.stamp(number::OPERATION);
        let mut bytes = message::write(stamp, len);
        let on_heap = self.sent_bytes(&mut bytes)?;
        // The queues are empty, so there is room.
        self.endpoint
            .send_bytes(Kind::Tagged, self.partner, bytes, stamp)?;
        mark()?;
        drop(self);
        if let Some(bytes) = on_heap {
            bytes.overwrite_after_free()?;
        }
        mark()
    }

    /// Returns the location of a message in the heap; `None` if the operation does not use the
    /// heap.
    fn sent_bytes(&self, message: &mut [u8]) -> anyhow::Result<Option<SentBytes>> {
        let is_on_heap = self.operation.is_on_heap;
        is_on_heap.then(|| SentBytes::of(message)).transpose()
    }

    /// Exchanges a last message with the partner.
    fn run_to_end(&mut self) -> anyhow::Result<()> {
        let stamp = self.stamp(number::FROM_PARTNER);
        self.post_receive(stamp, 8)?;
        self.send(Kind::Delivered, 8, number::LAST)?;
        self.await_completions(stamp, 2)?;
        self.await_partner_access()
    }

    /// Waits until the partner's access to the target's memory is complete.
    fn await_partner_access(&mut self) -> anyhow::Result<()> {
        let Action::Serve(access, len) = self.operation.action else {
            return Ok(());
        };
        let expected = expected_after(access, self.stamp(number::OPERATION), len);
        let mut timeout = Timeout::new("the partner's access to the target's memory");
        while self.endpoint.memory_bytes(MemoryKind::Ordinary)[..len] != *expected {
            timeout.check()?;
            self.endpoint.drive()?;
        }
        Ok(())
    }

    /// Posts a receive for one message of the partner.
    fn post_receive(&mut self, stamp: Stamp, len: usize) -> anyhow::Result<()> {
        let tag = TagMatch::exact(stamp.word());
        self.endpoint.trecv(FiAddr::UNSPEC, len, tag)?;
        Ok(())
    }

    fn send(&mut self, kind: Kind, len: usize, number: u32) -> anyhow::Result<()> {
        let stamp = self.stamp(number);
        loop {
            match self.endpoint.send(kind, self.partner, len, stamp) {
                Ok(_) => return Ok(()),
                Err(Errno::Again) => self.endpoint.drive()?,
                Err(errno) => bail!("the target cannot send: {errno}"),
            }
        }
    }

    /// Waits for `count` completions; a received message must have this stamp.
    fn await_completions(&mut self, stamp: Stamp, mut count: usize) -> anyhow::Result<()> {
        let mut timeout = Timeout::new("the completions of a target");
        while count > 0 {
            let Some(outcome) = self.endpoint.poll()? else {
                timeout.check()?;
                continue;
            };
            ensure!(outcome.error.is_none(), "at the target: {outcome:?}");
            if let Some(bytes) = outcome.received() {
                ensure!(
                    message::read(bytes)? == stamp,
                    "the target received another message than {stamp:?}"
                );
            }
            count -= 1;
        }
        Ok(())
    }
}

/// Returns the content of memory before an access.
pub(crate) fn initial_content(access: Access, stamp: Stamp, len: usize) -> Box<[u8]> {
    match access {
        Access::Write => blank(len),
        Access::Read => message::write(stamp, len),
        Access::Add => stamp.word().to_ne_bytes().into(),
    }
}

/// Returns the content of memory after an access.
pub(crate) fn expected_after(access: Access, stamp: Stamp, len: usize) -> Box<[u8]> {
    match access {
        Access::Write | Access::Read => message::write(stamp, len),
        Access::Add => (stamp.word() + 1).to_ne_bytes().into(),
    }
}

fn check(outcome: &Completion, stamp: Stamp) -> anyhow::Result<()> {
    ensure!(outcome.error.is_none(), "at the target: {outcome:?}");
    if let Some(bytes) = outcome.received() {
        ensure!(
            message::read(bytes)? == stamp,
            "the target received another message than {stamp:?}"
        );
    }
    Ok(())
}
