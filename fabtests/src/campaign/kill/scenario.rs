//! The processes that must survive a target: its partner, which is this process, and a bystander
//! with which the partner exchanges messages.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use selvedge::{Errno, FiAddr, TagMatch};
use selvedge_testkit::timeout::Timeout;

use super::heap;
use super::operation::{Action, Operation, number};
use super::target::{self, expected_after, initial_content};
use super::traced_process::{Stop, TracedProcess};
use crate::campaign::echo::Echo;
use crate::campaign::endpoint::{
    Access, BLANK, CampaignEndpoint, Completion, Kind, MemoryKind, blank, discover,
};
use crate::campaign::message::{self, Stamp};

/// The partner and the bystander, and the operations that are outstanding with the target. Fields
/// are dropped in order: the bystander before the partner's endpoint.
#[derive(Debug)]
pub(crate) struct Scenario {
    operation: &'static Operation,
    echo: Echo,
    endpoint: CampaignEndpoint,
    peer: FiAddr,
    name: String,
    incarnation: u32,
    operations: Operations,
}

/// The partner's operations with one incarnation of the target.
#[derive(Debug, Default)]
struct Operations {
    /// Receives of the target's messages, which remain posted when the target ends.
    receives: Vec<u64>,
    /// Operations that complete or fail when the target ends, with their names.
    outstanding: Vec<(u64, &'static str)>,
    /// Messages that were received.
    received: Vec<Stamp>,
    /// Whether a message was interrupted during its transfer.
    is_interrupted: bool,
    /// Operations that failed because of the target's end.
    failed: usize,
    /// Operations that succeeded.
    succeeded: usize,
    /// Operations of [`TARGET_DEPENDENT`] that succeeded.
    survived: usize,
    /// Bytes that were fetched from the target's memory.
    fetched: Vec<Vec<u8>>,
}

/// Matches the target's messages of any incarnation, except the last message of a target that runs
/// to its end.
const FROM_TARGET: TagMatch = TagMatch {
    tag: 0,
    ignore: 0x7fff_ffff_0000_ffff,
};
/// Number of receives: for a target's messages, and for one more that must not arrive.
const RECEIVES: usize = 3;
/// Names of the operations that need a target that runs to its end.
const TARGET_DEPENDENT: [&str; 2] = [
    "a send that needs the target",
    "a receive that needs the target",
];
/// Name of an access to the target's memory.
const ACCESS: &str = "an access";
/// How long the partner waits for messages that must not arrive.
const SETTLE: Duration = Duration::from_micros(300);

impl Scenario {
    /// Starts the partner and the bystander for the targets of one operation.
    ///
    /// # Errors
    /// The partner or the bystander cannot be started.
    pub(crate) fn new(operation: &'static Operation) -> anyhow::Result<Self> {
        heap::switch(operation.is_on_heap);
        let info = discover(None, &operation.params())?;
        let mut endpoint = CampaignEndpoint::with_wait(&info, operation.partner_wait_object())?;
        if let Action::Access(..) = operation.action {
            endpoint.register_memory()?;
        }
        if operation.lends() {
            endpoint.accept_lent();
        }
        let mut echo = Echo::start(&endpoint, &operation.params())?;
        echo.exchange(&mut endpoint)?;
        let name = format!("target-{}-{}", std::process::id(), operation.name);
        Ok(Self {
            operation,
            peer: endpoint.insert(&name)?,
            name,
            endpoint,
            echo,
            incarnation: 0,
            operations: Operations::default(),
        })
    }

    /// Returns the name of all targets.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Starts the next incarnation of the target and runs it to its mark before the operation. If
    /// `has_late_receives`, no receives for its messages are posted yet.
    ///
    /// # Errors
    /// The target does not reach its mark.
    pub(crate) fn start_target(
        &mut self,
        is_traced: bool,
        has_late_receives: bool,
    ) -> anyhow::Result<TracedProcess> {
        self.incarnation += 1;
        self.operations = Operations::default();
        if let Action::Access(access, memory_kind, len) = self.operation.action {
            let content = initial_content(access, self.operation_stamp(), len);
            self.endpoint.set_memory(memory_kind, &content);
        }
        if !has_late_receives {
            self.post_receives(RECEIVES)?;
        } else if self.operation.is_connected() {
            self.post_receives(1)?;
        }
        let mut traced = TracedProcess::start(
            &target::Config {
                operation: self.operation.name.to_owned(),
                name: self.name.clone(),
                partner: self.endpoint.name()?,
                incarnation: self.incarnation,
            },
            is_traced,
        )?;
        let mut timeout = Timeout::new("a target at its mark");
        let mut has_responded = false;
        while traced.poll_stop()? != Some(Stop::Marked) {
            timeout.check()?;
            self.drive()?;
            if !has_responded && !self.operations.received.is_empty() {
                has_responded = true;
                self.respond()?;
            }
        }
        if let Action::Serve(access, len) = self.operation.action {
            self.access(access, len)?;
        }
        if let Some((kind, len)) = self.operation.receives() {
            self.send(kind, len, number::OPERATION, "a message to the target")?;
        }
        Ok(traced)
    }

    /// Returns the stamp of the operation's own message in this incarnation.
    fn operation_stamp(&self) -> Stamp {
        Stamp::new(self.incarnation, number::OPERATION)
    }

    /// Posts an access to the target's memory.
    fn access(&mut self, access: Access, len: usize) -> anyhow::Result<()> {
        let bytes = match access {
            Access::Write => message::write(self.operation_stamp(), len),
            Access::Read | Access::Add => blank(len),
        };
        let (endpoint, key) = (&mut self.endpoint, MemoryKind::Ordinary.key());
        let accessed = endpoint.access(access, key, self.peer, bytes);
        let accessed = accessed.context("an access to the target's memory")?;
        self.operations.outstanding.push((accessed, ACCESS));
        Ok(())
    }

    /// Sends a message that wakes a parked target.
    ///
    /// # Errors
    /// The error of the post.
    pub(crate) fn send_wakeup(&mut self) -> anyhow::Result<()> {
        self.send(
            Kind::Delivered,
            8,
            number::OPERATION,
            "a message to a parked target",
        )
    }

    /// Arms the partner's wake-up.
    ///
    /// # Errors
    /// The wake-up cannot be armed.
    pub(crate) fn arm_wakeup(&mut self) -> anyhow::Result<()> {
        self.endpoint.arm_wakeup()?;
        while let Some(outcome) = self.endpoint.take() {
            self.operations.record_completion(&outcome)?;
        }
        Ok(())
    }

    /// Returns whether the partner is parked during the target's operation.
    pub(crate) fn is_partner_parked(&self) -> bool {
        self.operation.action == Action::Wake
    }

    /// Blocks until the parked partner is woken.
    ///
    /// # Errors
    /// The partner is not woken.
    pub(crate) fn wait_for_wakeup(&self) -> anyhow::Result<()> {
        self.endpoint.wait_for_wakeup()
    }

    /// Checks that the target's access is complete or has had no effect; if `is_done`, that it is
    /// complete.
    ///
    /// # Errors
    /// The memory has other content.
    pub(crate) fn check_memory(&self, is_done: bool) -> anyhow::Result<()> {
        let (stamp, incarnation) = (self.operation_stamp(), self.incarnation);
        let expected = match self.operation.action {
            Action::Access(access, memory_kind, len) => {
                let bytes = self.endpoint.memory_bytes(memory_kind);
                let (found, rest) = bytes.split_at(len);
                let is_kept = rest.iter().all(|&byte| byte == BLANK);
                ensure!(
                    is_kept,
                    "incarnation {incarnation} wrote bytes behind its access"
                );
                let (before, after) = (
                    initial_content(access, stamp, len),
                    expected_after(access, stamp, len),
                );
                // A target that is killed during a copy has written a part of the bytes.
                let may_be_torn = memory_kind == MemoryKind::Special || len > 4096;
                let is_good = if is_done {
                    *found == *after
                } else if may_be_torn && access == Access::Write {
                    let mut pairs = found.iter().zip(&after);
                    pairs.all(|(found, byte)| found == byte || *found == BLANK)
                } else {
                    *found == *before || *found == *after
                };
                ensure!(
                    is_good,
                    "incarnation {incarnation} left {:x?} in memory",
                    &found[..len.min(64)]
                );
                return Ok(());
            }
            Action::Serve(Access::Read, len) => message::write(stamp, len),
            Action::Serve(Access::Add, _) => stamp.word().to_ne_bytes().into(),
            _ => return Ok(()),
        };
        let fetched = &self.operations.fetched;
        let is_good = fetched.iter().all(|bytes| **bytes == *expected);
        ensure!(
            is_good,
            "{fetched:x?} was fetched from incarnation {incarnation}"
        );
        Ok(())
    }

    /// Posts `count` receives for messages of the target, and one for an untagged message if it
    /// sends one.
    ///
    /// # Errors
    /// The error of a post.
    pub(crate) fn post_receives(&mut self, count: usize) -> anyhow::Result<()> {
        let (source, len) = (FiAddr::UNSPEC, self.operation.longest_message());
        for _ in 0..count {
            let tagged = self.endpoint.trecv(source, len, FROM_TARGET)?;
            self.operations.receives.push(tagged);
        }
        if matches!(self.operation.sends(), Some((kind, _)) if !kind.is_tagged()) {
            let untagged = self.endpoint.recv(source, len)?;
            self.operations.receives.push(untagged);
        }
        Ok(())
    }

    /// Responds to the target's first message, and posts operations that only the target's end, or
    /// its last message, completes.
    fn respond(&mut self) -> anyhow::Result<()> {
        self.send(
            Kind::Delivered,
            8,
            number::CONNECT,
            "the response to the first message",
        )?;
        self.send(
            Kind::Delivered,
            8,
            number::FROM_PARTNER,
            TARGET_DEPENDENT[0],
        )?;
        let tag = TagMatch::exact(Stamp::new(self.incarnation, number::LAST).word());
        let last = self.endpoint.trecv(self.peer, 8, tag)?;
        self.operations
            .outstanding
            .push((last, TARGET_DEPENDENT[1]));
        Ok(())
    }

    fn send(
        &mut self,
        kind: Kind,
        len: usize,
        number: u32,
        operation: &'static str,
    ) -> anyhow::Result<()> {
        let stamp = Stamp::new(self.incarnation, number);
        let sent = self
            .endpoint
            .send(kind, self.peer, len, stamp)
            .context(operation)?;
        self.operations.outstanding.push((sent, operation));
        Ok(())
    }

    /// Makes progress, and records completions.
    ///
    /// # Errors
    /// A completion is unexpected.
    pub(crate) fn drive(&mut self) -> anyhow::Result<()> {
        while let Some(outcome) = self.endpoint.poll()? {
            self.operations.record_completion(&outcome)?;
        }
        Ok(())
    }

    /// Makes progress for [`SETTLE`], after which no more completions are expected.
    ///
    /// # Errors
    /// As [`Self::drive`].
    pub(crate) fn settle(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + SETTLE;
        while Instant::now() < deadline {
            for _ in 0..100 {
                self.drive()?;
            }
        }
        Ok(())
    }

    /// Returns the number of operations that succeeded although they need a target that runs to its
    /// end.
    pub(crate) fn survived(&self) -> usize {
        self.operations.survived
    }

    /// Returns the number of received messages of this incarnation.
    pub(crate) fn received(&self) -> usize {
        self.operations.received.len()
    }

    /// Exchanges messages of every size with the bystander.
    ///
    /// # Errors
    /// A message is lost, corrupted or late.
    pub(crate) fn exchange_with_bystander(&mut self) -> anyhow::Result<()> {
        self.echo.exchange(&mut self.endpoint)
    }

    /// Waits until every operation that was outstanding with the target has ended.
    ///
    /// # Errors
    /// An operation has not ended in time.
    pub(crate) fn wait_for_outstanding(&mut self) -> anyhow::Result<()> {
        let mut timeout = Timeout::new("the end of operations with the target");
        while !self.operations.outstanding.is_empty() {
            let outstanding = &self.operations.outstanding;
            timeout
                .check()
                .with_context(|| format!("{outstanding:?}"))?;
            self.drive()?;
        }
        Ok(())
    }

    /// Checks the received messages after the target's end: each arrived once and in order, at
    /// least `certain` of them, and nothing else.
    ///
    /// # Errors
    /// A message is missing, duplicate or out of order.
    pub(crate) fn check_received(&mut self, certain: usize) -> anyhow::Result<()> {
        let mut timeout = Timeout::new("messages that the target had sent");
        while self.operations.received.len() < certain && !self.operations.is_interrupted {
            timeout.check()?;
            self.drive()?;
        }
        self.settle()?;
        for context in self.operations.receives.clone() {
            self.endpoint.cancel(context);
        }
        let mut timeout = Timeout::new("receives that were canceled");
        while !self.endpoint.is_idle() {
            timeout.check()?;
            self.drive()?;
        }
        let first = usize::from(!self.operation.is_connected()) as u32;
        let expected = (first..).map(|number| Stamp::new(self.incarnation, number));
        let received = &self.operations.received;
        let is_good = received.iter().copied().eq(expected.take(received.len()));
        ensure!(
            is_good,
            "incarnation {} sent {received:?}, which are not its messages in order",
            self.incarnation
        );
        let most = usize::from(self.operation.is_connected())
            + usize::from(
                self.operation.sends().is_some()
                    || matches!(self.operation.action, Action::Close(_)),
            );
        ensure!(
            received.len() <= most,
            "{received:?} have arrived, at most {most} were sent"
        );
        ensure!(
            received.len() >= certain,
            "only {received:?} have arrived, {certain} were sent"
        );
        Ok(())
    }

    /// Returns whether an operation with the target is outstanding, by which the partner detects
    /// the target's end.
    pub(crate) fn has_outstanding(&self) -> bool {
        !self.operations.outstanding.is_empty()
    }

    /// Lets the target finish its operation.
    ///
    /// # Errors
    /// The operation does not end in time.
    pub(crate) fn finish(&mut self, traced: &mut TracedProcess) -> anyhow::Result<()> {
        let mut timeout = Timeout::new("the end of the target's operation");
        // A target that was stopped at an instant may have been at its mark.
        while !traced.process().is_readable()? {
            match traced.poll_stop()? {
                Some(Stop::Marked) => traced.resume()?,
                Some(Stop::Over) => break,
                Some(Stop::Stepped) | None => timeout.check()?,
            }
            self.drive()?;
        }
        Ok(())
    }

    /// Lets the target run to its end, and checks that no operation fails.
    ///
    /// # Errors
    /// An operation failed, or the target does not end in time.
    pub(crate) fn run_to_end(&mut self, mut traced: TracedProcess) -> anyhow::Result<()> {
        let is_closing = matches!(self.operation.action, Action::Close(_));
        if !is_closing {
            if !self.operation.is_connected() {
                self.send(
                    Kind::Delivered,
                    8,
                    number::FROM_PARTNER,
                    TARGET_DEPENDENT[0],
                )?;
                let tag = TagMatch::exact(Stamp::new(self.incarnation, number::LAST).word());
                let last = self.endpoint.trecv(FiAddr::UNSPEC, 8, tag)?;
                self.operations
                    .outstanding
                    .push((last, TARGET_DEPENDENT[1]));
            }
            traced.process().send(&())?;
        }
        let mut timeout = Timeout::new("the end of the target");
        loop {
            match traced.poll_stop()? {
                Some(Stop::Over) => break,
                Some(Stop::Marked) => traced.resume()?,
                Some(Stop::Stepped) => bail!("a running target stopped after a single step"),
                None => timeout.check()?,
            }
            self.drive()?;
        }
        self.wait_for_outstanding()?;
        ensure!(
            is_closing || self.operations.failed == 0,
            "{} operations with the target failed",
            self.operations.failed
        );
        ensure!(
            is_closing || !self.operations.is_interrupted,
            "a message was interrupted"
        );
        Ok(())
    }
}

impl Operations {
    fn record_completion(&mut self, outcome: &Completion) -> anyhow::Result<()> {
        let context = outcome.context;
        let is_receive = self.receives.contains(&context);
        self.receives.retain(|&receive| receive != context);
        let outstanding = self
            .outstanding
            .iter()
            .position(|&(outstanding, _)| outstanding == context);
        let outstanding = outstanding.map(|index| self.outstanding.remove(index));
        match outcome.error.as_ref().map(|error| error.errno) {
            None if is_receive => self.received.push(message::read(&outcome.bytes)?),
            None => {
                self.succeeded += 1;
                self.survived += usize::from(
                    outstanding.is_some_and(|(_, operation)| TARGET_DEPENDENT.contains(&operation)),
                );
                let is_access = outstanding.is_some_and(|(_, operation)| operation == ACCESS);
                let fetched = outcome.received().filter(|_| is_access);
                self.fetched.extend(fetched.map(<[u8]>::to_vec));
            }
            Some(Errno::Canceled) if is_receive => {}
            Some(Errno::ConnReset) if is_receive && !self.is_interrupted => {
                self.is_interrupted = true
            }
            Some(Errno::ConnReset) if outstanding.is_some() => self.failed += 1,
            Some(errno) => {
                bail!("operation {outstanding:?} of the target's partner failed with {errno}")
            }
        }
        Ok(())
    }
}
