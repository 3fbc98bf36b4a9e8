//! The survivors of a victim: its partner, which is in this process, and somebody else whom the
//! partner goes on talking to.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use selvedge::{Errno, FiAddr, TagMatch};
use selvedge_testkit::timeout::Timeout;

use super::echo::Echo;
use super::endpoint::{Access, BLANK, CampaignEndpoint, Completion, Kind, Place, blank, discover};
use super::message::{self, Stamp};
use super::operation::{Act, Operation, number};
use super::part::Part;
use super::tracee::{Stop, Tracee};
use super::victim::{self, content, served};

/// Everybody but the victim, and what is outstanding with it.
#[derive(Debug)]
pub(crate) struct Scene {
    operation: &'static Operation,
    endpoint: CampaignEndpoint,
    echo: Echo,
    them: FiAddr,
    name: String,
    life: u32,
    ledger: Ledger,
}

/// What the partner and one life of the victim have to do with each other.
#[derive(Debug, Default)]
struct Ledger {
    /// Receives for whatever the victim sends, which outlive it.
    open: Vec<u64>,
    /// Operations that end with the victim at the latest, and by what they are called.
    bound: Vec<(u64, &'static str)>,
    /// Messages that have arrived.
    received: Vec<Stamp>,
    /// Whether a message broke off on its way.
    has_broken: bool,
    /// Operations that the victim's end has failed.
    failed: usize,
    /// Operations that were successful.
    done: usize,
    /// Operations that were successful and need a victim that goes on living.
    survived: usize,
    /// What was fetched from the victim's memory.
    fetched: Vec<Vec<u8>>,
}

/// Receives of the victim's messages, whatever life they are of. The last words of a victim that
/// goes on living are no match.
const FROM_VICTIM: TagMatch = TagMatch {
    tag: 0,
    ignore: 0x7fff_ffff_0000_ffff,
};
/// Room for the largest message of a victim.
const LARGEST: usize = 100_000;
/// Messages of a victim, and one more that must not come.
const RECEIVES: usize = 3;
/// What operations are called that only a victim that goes on living completes.
const WAITING: [&str; 2] = ["a send that waits", "a receive that waits"];
/// What an access to the victim's memory is called.
const ACCESS: &str = "an access";
/// How long the partner listens for what must not come any more.
const SETTLE: Duration = Duration::from_micros(300);

impl Scene {
    /// The survivors of victims of one operation.
    ///
    /// # Errors
    /// When they cannot be started.
    pub(crate) fn new(operation: &'static Operation) -> anyhow::Result<Self> {
        let info = discover(None, &operation.params())?;
        let mut endpoint = CampaignEndpoint::with_wait(&info, operation.partner_waits())?;
        if let Act::Access(..) = operation.act {
            endpoint.offer_memory()?;
        }
        let mut echo = Echo::start(&endpoint, &operation.params())?;
        echo.exchange(&mut endpoint)?;
        let name = format!("victim-{}-{}", std::process::id(), operation.name);
        Ok(Self {
            operation,
            them: endpoint.insert(&name)?,
            name,
            endpoint,
            echo,
            life: 0,
            ledger: Ledger::default(),
        })
    }

    /// The name of all victims.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The next life of the victim, at its mark before the operation. If `is_late`, there are no
    /// receives for its messages yet.
    ///
    /// # Errors
    /// When it does not get there.
    pub(crate) fn raise(&mut self, is_traced: bool, is_late: bool) -> anyhow::Result<Tracee> {
        self.life += 1;
        self.ledger = Ledger::default();
        if let Act::Access(access, place, len) = self.operation.act {
            let content = content(access, self.own(), len);
            self.endpoint.set_memory(place, &content);
        }
        if !is_late {
            self.post_receives(RECEIVES)?;
        } else if self.operation.is_acquainted() {
            self.post_receives(1)?;
        }
        let mut tracee = Tracee::start(
            &Part::Victim(victim::Order {
                operation: self.operation.name.to_owned(),
                name: self.name.clone(),
                partner: self.endpoint.name()?,
                life: self.life,
            }),
            is_traced,
        )?;
        let mut timeout = Timeout::new("a victim at its mark");
        let mut is_greeted = false;
        while tracee.look()? != Some(Stop::Marked) {
            timeout.check()?;
            self.drive()?;
            if !is_greeted && !self.ledger.received.is_empty() {
                is_greeted = true;
                self.greet()?;
            }
        }
        if let Act::Serve(access, len) = self.operation.act {
            self.access(access, len)?;
        }
        if let Some((kind, len)) = self.operation.receives() {
            self.send(kind, len, number::OWN, "a message to the victim")?;
        }
        Ok(tracee)
    }

    /// The stamp of the operation's own message in this life.
    fn own(&self) -> Stamp {
        Stamp::new(self.life, number::OWN)
    }

    /// Accesses the victim's memory.
    fn access(&mut self, access: Access, len: usize) -> anyhow::Result<()> {
        let bytes = match access {
            Access::Write => message::write(self.own(), len),
            Access::Read | Access::Add => blank(len),
        };
        let (endpoint, key) = (&mut self.endpoint, Place::Plain.key());
        let accessed = endpoint.access(access, key, self.them, bytes);
        let accessed = accessed.context("an access to the victim's memory")?;
        self.ledger.bound.push((accessed, ACCESS));
        Ok(())
    }

    /// Sends a victim that sleeps what it is to be woken by.
    ///
    /// # Errors
    /// What the post answers.
    pub(crate) fn call(&mut self) -> anyhow::Result<()> {
        self.send(Kind::Delivered, 8, number::OWN, "a message to a sleeper")
    }

    /// The partner falls asleep.
    ///
    /// # Errors
    /// When it cannot.
    pub(crate) fn lie_down(&mut self) -> anyhow::Result<()> {
        self.endpoint.arm_wakeup()?;
        while let Some(outcome) = self.endpoint.take() {
            self.ledger.book(&outcome)?;
        }
        Ok(())
    }

    /// Whether the partner sleeps while the victim does its operation.
    pub(crate) fn sleeps(&self) -> bool {
        self.operation.act == Act::Wake
    }

    /// Waits until the partner, which sleeps, is woken.
    ///
    /// # Errors
    /// When it is not.
    pub(crate) fn be_woken(&self) -> anyhow::Result<()> {
        self.endpoint.wait_for_wakeup()
    }

    /// The victim's access has done what it should, or nothing; the whole of it if `is_done`.
    ///
    /// # Errors
    /// What is wrong.
    pub(crate) fn check_memory(&self, is_done: bool) -> anyhow::Result<()> {
        let (stamp, life) = (self.own(), self.life);
        let expected = match self.operation.act {
            Act::Access(access, place, len) => {
                let bytes = self.endpoint.memory_bytes(place);
                let (found, behind) = bytes.split_at(len);
                let is_kept = behind.iter().all(|&byte| byte == BLANK);
                ensure!(
                    is_kept,
                    "bytes behind an access of life {life} were written"
                );
                let (before, after) = (content(access, stamp, len), served(access, stamp, len));
                // Whoever dies while it copies leaves a part.
                let may_be_torn = place == Place::Special || len > 4096;
                let is_good = match is_done {
                    true => *found == *after,
                    false if may_be_torn && access == Access::Write => {
                        let pairs = found.iter().zip(&after);
                        pairs
                            .into_iter()
                            .all(|(found, byte)| found == byte || *found == BLANK)
                    }
                    false => *found == *before || *found == *after,
                };
                ensure!(is_good, "life {life} has left {:x?}", &found[..len.min(64)]);
                return Ok(());
            }
            Act::Serve(Access::Read, len) => message::write(stamp, len),
            Act::Serve(Access::Add, _) => stamp.word().to_ne_bytes().into(),
            _ => return Ok(()),
        };
        let fetched = &self.ledger.fetched;
        let is_good = fetched.iter().all(|bytes| **bytes == *expected);
        ensure!(is_good, "{fetched:x?} was fetched from life {life}");
        Ok(())
    }

    /// Posts receives for messages of the victim, as many as it may send and one more.
    ///
    /// # Errors
    /// What a post answers.
    pub(crate) fn post_receives(&mut self, count: usize) -> anyhow::Result<()> {
        for _ in 0..count {
            let any = FiAddr::UNSPEC;
            let tagged = self.endpoint.trecv(any, LARGEST, FROM_VICTIM)?;
            self.ledger.open.push(tagged);
        }
        if matches!(self.operation.sends(), Some((kind, _)) if !kind.is_tagged()) {
            let untagged = self.endpoint.recv(FiAddr::UNSPEC, LARGEST)?;
            self.ledger.open.push(untagged);
        }
        Ok(())
    }

    /// Answers the victim's greeting, and posts what only its end, or its last words, can end.
    fn greet(&mut self) -> anyhow::Result<()> {
        self.send(Kind::Delivered, 8, number::GREETING, "the greeting")?;
        self.send(Kind::Delivered, 8, number::WITNESS, WAITING[0])?;
        let tag = TagMatch::exact(Stamp::new(self.life, number::LAST).word());
        let last = self.endpoint.trecv(self.them, 8, tag)?;
        self.ledger.bound.push((last, WAITING[1]));
        Ok(())
    }

    fn send(
        &mut self,
        kind: Kind,
        len: usize,
        number: u32,
        what: &'static str,
    ) -> anyhow::Result<()> {
        let stamp = Stamp::new(self.life, number);
        let sent = self
            .endpoint
            .send(kind, self.them, len, stamp)
            .context(what)?;
        self.ledger.bound.push((sent, what));
        Ok(())
    }

    /// Moves things on, and books what has happened.
    ///
    /// # Errors
    /// When something has that must not.
    pub(crate) fn drive(&mut self) -> anyhow::Result<()> {
        while let Some(outcome) = self.endpoint.poll()? {
            self.ledger.book(&outcome)?;
        }
        Ok(())
    }

    /// Drives until there is nothing to be expected any more.
    ///
    /// # Errors
    /// As [`Self::drive`].
    pub(crate) fn settle(&mut self) -> anyhow::Result<()> {
        let until = Instant::now() + SETTLE;
        while Instant::now() < until {
            for _ in 0..100 {
                self.drive()?;
            }
        }
        Ok(())
    }

    /// Operations that were successful although only a victim that goes on living completes them.
    pub(crate) fn survived(&self) -> usize {
        self.ledger.survived
    }

    /// Messages of this life that have arrived.
    pub(crate) fn received(&self) -> usize {
        self.ledger.received.len()
    }

    /// The survivors exchange messages of every size.
    ///
    /// # Errors
    /// When they do not arrive.
    pub(crate) fn goes_on(&mut self) -> anyhow::Result<()> {
        self.echo.exchange(&mut self.endpoint)
    }

    /// Waits until everything that was outstanding with the victim has ended.
    ///
    /// # Errors
    /// When something has not.
    pub(crate) fn outlive(&mut self) -> anyhow::Result<()> {
        let mut timeout = Timeout::new("what was outstanding with the victim");
        while !self.ledger.bound.is_empty() {
            let open = &self.ledger.bound;
            timeout.check().with_context(|| format!("{open:?}"))?;
            self.drive()?;
        }
        Ok(())
    }

    /// The victim is dead, and everything that it had a part in has ended: what it sent must have
    /// arrived once and in order, at least `certain` messages of it, and nothing else.
    ///
    /// # Errors
    /// What is wrong.
    pub(crate) fn close_the_books(&mut self, certain: usize) -> anyhow::Result<()> {
        let mut timeout = Timeout::new("messages that had been sent");
        while self.ledger.received.len() < certain && !self.ledger.has_broken {
            timeout.check()?;
            self.drive()?;
        }
        self.settle()?;
        for context in self.ledger.open.clone() {
            self.endpoint.cancel(context);
        }
        let mut timeout = Timeout::new("receives that were canceled");
        while !self.endpoint.is_idle() {
            timeout.check()?;
            self.drive()?;
        }
        let first = usize::from(!self.operation.is_acquainted()) as u32;
        let expected = (first..).map(|number| Stamp::new(self.life, number));
        let received = &self.ledger.received;
        let is_good = received.iter().copied().eq(expected.take(received.len()));
        ensure!(is_good, "{received:?} have arrived in life {}", self.life);
        let most = usize::from(self.operation.is_acquainted())
            + usize::from(self.operation.sends().is_some() || self.operation.act == Act::Close);
        ensure!(received.len() <= most, "{received:?} have arrived");
        ensure!(received.len() >= certain, "only {received:?} have arrived");
        Ok(())
    }

    /// Whether the victim has met its partner, as far as that can have noticed.
    pub(crate) fn is_bound(&self) -> bool {
        !self.ledger.bound.is_empty()
    }

    /// Lets the victim come to the end of its operation, and go on.
    ///
    /// # Errors
    /// When it does not.
    pub(crate) fn finish(&mut self, tracee: &mut Tracee) -> anyhow::Result<()> {
        let mut timeout = Timeout::new("the end of a victim's operation");
        // A victim that was stopped at an instant may have been at its mark.
        while !tracee.actor().is_readable()? {
            match tracee.look()? {
                Some(Stop::Marked) => tracee.resume()?,
                Some(Stop::Over) => break,
                Some(Stop::Stepped) | None => timeout.check()?,
            }
            self.drive()?;
        }
        Ok(())
    }

    /// The victim goes on living to its natural end: nothing may be lost.
    ///
    /// # Errors
    /// What is.
    pub(crate) fn live_on(&mut self, mut tracee: Tracee) -> anyhow::Result<()> {
        let ends = matches!(self.operation.act, Act::Close);
        if !ends {
            if !self.operation.is_acquainted() {
                self.send(Kind::Delivered, 8, number::WITNESS, WAITING[0])?;
                let tag = TagMatch::exact(Stamp::new(self.life, number::LAST).word());
                let last = self.endpoint.trecv(FiAddr::UNSPEC, 8, tag)?;
                self.ledger.bound.push((last, WAITING[1]));
            }
            tracee.actor().send(&())?;
        }
        let mut timeout = Timeout::new("the natural end of a victim");
        loop {
            match tracee.look()? {
                Some(Stop::Over) => break,
                Some(Stop::Marked) => tracee.resume()?,
                Some(Stop::Stepped) => bail!("a victim that runs has stepped"),
                None => timeout.check()?,
            }
            self.drive()?;
        }
        self.outlive()?;
        ensure!(
            ends || self.ledger.failed == 0,
            "{} failed",
            self.ledger.failed
        );
        ensure!(ends || !self.ledger.has_broken, "a message broke off");
        Ok(())
    }
}

impl Ledger {
    fn book(&mut self, outcome: &Completion) -> anyhow::Result<()> {
        let context = outcome.context;
        let is_open = self.open.contains(&context);
        self.open.retain(|&open| open != context);
        let bound = self.bound.iter().position(|&(bound, _)| bound == context);
        let bound = bound.map(|place| self.bound.remove(place));
        match outcome.error.as_ref().map(|error| error.errno) {
            None if is_open => self.received.push(message::read(&outcome.bytes)?),
            None => {
                self.done += 1;
                self.survived +=
                    usize::from(bound.is_some_and(|(_, what)| WAITING.contains(&what)));
                let is_access = bound.is_some_and(|(_, what)| what == ACCESS);
                let fetched = outcome.received().filter(|_| is_access);
                self.fetched.extend(fetched.map(<[u8]>::to_vec));
            }
            Some(Errno::Canceled) if is_open => {}
            Some(Errno::ConnReset) if is_open && !self.has_broken => self.has_broken = true,
            Some(Errno::ConnReset) if bound.is_some() => self.failed += 1,
            Some(errno) => bail!("{bound:?} of the victim's partner ends by {errno}"),
        }
        Ok(())
    }
}
