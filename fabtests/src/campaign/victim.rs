//! A process that does one operation between two marks, and dies or stops on the way.

use anyhow::{Context as _, bail, ensure};
use selvedge::{Errno, FiAddr, TagMatch};
use selvedge_testkit::process;
use selvedge_testkit::timeout::Timeout;
use serde::{Deserialize, Serialize};

use super::endpoint::{Access, CampaignEndpoint, Completion, Kind, Place, blank, discover};
use super::message::{self, Stamp};
use super::operation::{Act, Operation, number};
use super::tracee::mark;

/// What it is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The name of the [`Operation`].
    pub(crate) operation: String,
    /// The name of the victim's endpoint.
    pub(crate) name: String,
    /// The address of its partner.
    pub(crate) partner: String,
    /// How many lives the name had before.
    pub(crate) life: u32,
}

/// The victim with its endpoint.
struct Victim {
    operation: &'static Operation,
    endpoint: CampaignEndpoint,
    partner: FiAddr,
    life: u32,
}

pub(super) fn play(order: &Order) -> anyhow::Result<()> {
    let operation = Operation::named(&order.operation).context("no such operation")?;
    let info = discover(Some(&order.name), &operation.params())?;
    if operation.act == Act::Open {
        mark()?;
    }
    let endpoint = CampaignEndpoint::with_wait(&info, operation.victim_waits())?;
    if operation.act == Act::Open {
        mark()?;
    }
    let mut victim = Victim {
        operation,
        partner: endpoint.insert(&order.partner)?,
        endpoint,
        life: order.life,
    };
    if let Act::Serve(access, len) = operation.act {
        victim.endpoint.offer_memory()?;
        let content = content(access, victim.stamp(number::OWN), len);
        victim.endpoint.set_memory(Place::Plain, &content);
    }
    if operation.is_acquainted() {
        victim.get_acquainted()?;
    }
    if operation.act == Act::Close {
        return victim.close();
    }
    if operation.act != Act::Open {
        victim.act()?;
    }
    process::reply(&())?;
    process::next_request::<()>()?;
    victim.live_on()
}

impl Victim {
    fn stamp(&self, number: u32) -> Stamp {
        Stamp::new(self.life, number)
    }

    fn get_acquainted(&mut self) -> anyhow::Result<()> {
        let stamp = self.stamp(number::GREETING);
        self.post(stamp, 8)?;
        self.send(Kind::Delivered, 8, number::GREETING)?;
        self.await_all(stamp, 2)
    }

    /// The operation, between its marks.
    fn act(&mut self) -> anyhow::Result<()> {
        let stamp = self.stamp(number::OWN);
        if let Some((_, len)) = self.operation.receives() {
            self.post(stamp, len)?;
            mark()?;
            let outcome = self.next()?;
            mark()?;
            check(&outcome, stamp)?;
        } else if let Some((kind, len)) = self.operation.sends() {
            let bytes = message::write(stamp, len);
            mark()?;
            // The queues are empty: there is room.
            self.endpoint.send_bytes(kind, self.partner, bytes, stamp)?;
            let outcome = match kind.is_injected() {
                true => None,
                false => Some(self.next()?),
            };
            mark()?;
            outcome.map_or(Ok(()), |outcome| check(&outcome, stamp))?;
        } else if let Act::Access(access, place, len) = self.operation.act {
            let bytes = match access {
                Access::Write => message::write(stamp, len),
                Access::Read | Access::Add => blank(len),
            };
            mark()?;
            let (endpoint, key) = (&mut self.endpoint, place.key());
            endpoint.access(access, key, self.partner, bytes)?;
            let outcome = self.next()?;
            mark()?;
            ensure!(outcome.error.is_none(), "at the victim: {outcome:?}");
            let found = outcome.received().unwrap_or_default();
            let expected = match access {
                Access::Write => Box::default(),
                Access::Read | Access::Add => content(access, stamp, len),
            };
            ensure!(*found == *expected, "a victim has fetched {found:x?}");
        } else if self.operation.act == Act::LieDown {
            self.post(stamp, 8)?;
            mark()?;
            self.endpoint.arm_wakeup()?;
            mark()?;
            let outcome = self.sleep()?;
            check(&outcome, stamp)?;
        }
        Ok(())
    }

    /// The next completion, asleep until it is there.
    fn sleep(&mut self) -> anyhow::Result<Completion> {
        loop {
            if let Some(outcome) = self.endpoint.take() {
                return Ok(outcome);
            }
            self.endpoint.wait_for_wakeup()?;
            self.endpoint.drive()?;
            self.endpoint.arm_wakeup()?;
        }
    }

    /// The next completion. It is awaited as fast as possible: by a process that is watched.
    fn next(&mut self) -> anyhow::Result<Completion> {
        loop {
            if let Some(outcome) = self.endpoint.poll()? {
                return Ok(outcome);
            }
        }
    }

    fn close(mut self) -> anyhow::Result<()> {
        self.post(self.stamp(number::WITNESS), 8)?;
        self.send(Kind::Tagged, 100_000, number::OWN)?;
        mark()?;
        drop(self);
        mark()
    }

    /// Takes leave of the partner in peace.
    fn live_on(&mut self) -> anyhow::Result<()> {
        let stamp = self.stamp(number::WITNESS);
        self.post(stamp, 8)?;
        self.send(Kind::Delivered, 8, number::LAST)?;
        self.await_all(stamp, 2)?;
        self.was_served()
    }

    /// What the partner has done to the memory of a victim that has lived on is there.
    fn was_served(&mut self) -> anyhow::Result<()> {
        let Act::Serve(access, len) = self.operation.act else {
            return Ok(());
        };
        let expected = served(access, self.stamp(number::OWN), len);
        let mut timeout = Timeout::new("what the partner has written");
        while self.endpoint.memory_bytes(Place::Plain)[..len] != *expected {
            timeout.check()?;
            self.endpoint.drive()?;
        }
        Ok(())
    }

    /// Posts a receive for one message of the partner.
    fn post(&mut self, stamp: Stamp, len: usize) -> anyhow::Result<()> {
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
                Err(errno) => bail!("the victim cannot send: {errno}"),
            }
        }
    }

    /// Waits for `count` completions; what is received must be this message.
    fn await_all(&mut self, stamp: Stamp, mut count: usize) -> anyhow::Result<()> {
        let mut timeout = Timeout::new("the partner of a victim");
        while count > 0 {
            let Some(outcome) = self.endpoint.poll()? else {
                timeout.check()?;
                continue;
            };
            ensure!(outcome.error.is_none(), "at the victim: {outcome:?}");
            if let Some(bytes) = outcome.received() {
                ensure!(
                    message::read(bytes)? == stamp,
                    "not {stamp:?} at the victim"
                );
            }
            count -= 1;
        }
        Ok(())
    }
}

/// What is in memory that is to be accessed.
pub(super) fn content(access: Access, stamp: Stamp, len: usize) -> Box<[u8]> {
    match access {
        Access::Write => blank(len),
        Access::Read => message::write(stamp, len),
        Access::Add => stamp.word().to_ne_bytes().into(),
    }
}

/// What is there when it was accessed.
pub(super) fn served(access: Access, stamp: Stamp, len: usize) -> Box<[u8]> {
    match access {
        Access::Write | Access::Read => message::write(stamp, len),
        Access::Add => (stamp.word() + 1).to_ne_bytes().into(),
    }
}

fn check(outcome: &Completion, stamp: Stamp) -> anyhow::Result<()> {
    ensure!(outcome.error.is_none(), "at the victim: {outcome:?}");
    if let Some(bytes) = outcome.received() {
        ensure!(
            message::read(bytes)? == stamp,
            "not {stamp:?} at the victim"
        );
    }
    Ok(())
}
