//! The campaigns `restart` and `signals`: one name, many lives, traffic in both directions.
//!
//! Each message carries its sender's life and its number in it. Whatever a life had sent when it
//! ended arrives before the first message of the next life, in order and once; nothing that was
//! sent to one life reaches another.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use nix::sys::signal::Signal;
use selvedge::{Errno, FiAddr, TagMatch};
use selvedge_testkit::process::Process;
use selvedge_testkit::random::Random;
use selvedge_testkit::timeout::Timeout;
use selvedge_testkit::usage::{Usage, no_sockets, private_after_trim};

use super::echo::Echo;
use super::endpoint::{Access, CampaignEndpoint, Completion, blank};
use super::message::{self, Stamp};
use super::part::Part;
use super::phoenix::{End, LARGEST, Order, PLACES, WINDOW, is_mortal, something};
use super::report::{Plan, Report, Row};
use super::storm::Storm;

/// The row whose lives have memory that is accessed.
const MEMORY: &str = "memory";
/// Lives of each row in the short form.
const SHORT: u64 = 8;
/// Lives before it is counted what the partner holds.
const WARM_UP: u64 = 3;
/// Messages of a life at most, before it is killed or ends.
const MESSAGES: u64 = 200;
/// How long a life may last that is not heard from before it is killed, in microseconds.
const LONGEST: u64 = 20_000;
/// How long a life that is paused may go on without being heard.
const SPEECHLESS: Duration = Duration::from_millis(50);
/// Signals per second in a storm.
const STORM: u32 = 10_000;
/// What the partner's memory may grow by, whatever the number of lives.
const GROWTH: usize = 1 << 20;

/// What ends the lives of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    Kill,
    Exit,
    Close,
    /// Whichever.
    Any,
}

/// Runs the campaign `restart`.
///
/// # Errors
/// When it cannot be run.
pub(super) fn lives(plan: &Plan) -> anyhow::Result<Report> {
    let rows = [
        ("kill", Ends::Kill),
        ("exit", Ends::Exit),
        ("close", Ends::Close),
        ("any", Ends::Any),
        (MEMORY, Ends::Any),
    ];
    let mut report = Report::new("restart", plan);
    for (what, ends) in rows.into_iter().filter(|(what, _)| plan.has(what)) {
        report.add(row(plan, what, ends, None)?);
    }
    Ok(report)
}

/// Runs the campaign `signals`.
///
/// # Errors
/// When it cannot be run.
pub(super) fn storms(plan: &Plan) -> anyhow::Result<Report> {
    let mut report = Report::new("signals", plan);
    for (what, ends) in [("close", Ends::Close), ("any", Ends::Any)] {
        if plan.has(what) {
            let storm = Storm::begin(STORM)?;
            let before = Storm::caught();
            let mut row = row(plan, what, ends, Some(STORM))?;
            drop(storm);
            let caught = Storm::caught() - before;
            row.figures.insert("signals", caught as f64);
            report.add(row);
        }
    }
    Ok(report)
}

/// Streams that are stopped in the short form.
const SHORT_STREAMS: u64 = 3;

/// Runs the part of the campaign `stop` that stops a stream at random instants.
///
/// # Errors
/// When it cannot be run.
pub(super) fn pauses(plan: &Plan) -> anyhow::Result<Row> {
    let mut row = Row::new("stream");
    let (mut partner, mut random) = (Partner::new("stream", plan)?, plan.random("stream"));
    let (began, mut done) = (Instant::now(), 0);
    while !plan.is_over(done, SHORT_STREAMS, began) {
        let count = random.below(MESSAGES) as u32;
        let life = partner.life_with_pauses(count, &mut random);
        done += 1;
        if row.count(&format!("life {}", partner.life), life).is_none() {
            partner = Partner::new("stream", plan)?;
        }
    }
    row.figures.insert("messages", partner.received as f64);
    Ok(row)
}

fn row(plan: &Plan, what: &str, ends: Ends, storm: Option<u32>) -> anyhow::Result<Row> {
    let mut row = Row::new(what);
    let mut random = plan.random(what);
    let mut partner = Partner::new(what, plan)?;
    partner.storm = storm;
    let (mut began, mut done, mut memory) = (Instant::now(), 0, None);
    while done < WARM_UP || !plan.is_over(done - WARM_UP, SHORT, began) {
        let end = ends.pick(&mut random);
        let life = partner.live_and_end(end, &mut random);
        if row
            .count(&format!("{end:?} of life {}", partner.life), life)
            .is_none()
        {
            (partner, memory) = (Partner::new(what, plan)?, None);
            partner.storm = storm;
        }
        done += 1;
        if done == WARM_UP {
            partner.collect()?;
            (began, memory) = (Instant::now(), Some(private_after_trim()?));
        }
    }
    row.figures.insert("messages", partner.received as f64);
    if partner.has_memory {
        row.figures.insert("accesses", partner.accessed as f64);
    }
    let kept = partner.nothing_is_left(memory);
    row.count("at the end", kept);
    Ok(row)
}

impl Ends {
    fn pick(self, random: &mut Random) -> End {
        let count = random.below(MESSAGES) as u32;
        match self {
            Self::Kill => End::Kill,
            Self::Exit => End::Exit(count),
            Self::Close => End::Close(count),
            Self::Any => *random.pick(&[End::Kill, End::Exit(count), End::Close(count)]),
        }
    }
}

/// The partner of all lives of one name.
#[derive(Debug)]
struct Partner {
    endpoint: CampaignEndpoint,
    echo: Echo,
    them: FiAddr,
    name: String,
    life: u32,
    random: Random,
    /// Signals per second that interrupt the others.
    storm: Option<u32>,
    /// Receives that have not completed, in the order of their posts.
    posted: Vec<u64>,
    /// What became of the others since the books were closed.
    books: BTreeMap<u64, Option<Stamp>>,
    /// The last message in the books before.
    last: Option<Stamp>,
    /// Lives that ended in peace, with the number of messages that have not been counted.
    owed: BTreeMap<u32, u32>,
    /// Sends to the others that have not completed.
    open: Vec<u64>,
    sent: u32,
    /// The last life that was heard.
    heard: u32,
    /// Messages that arrived.
    received: u64,
    /// Accesses to memory of the others that have not completed, and of which life it was.
    accesses: BTreeMap<u64, u32>,
    /// Accesses that were successful.
    accessed: u64,
    has_memory: bool,
    /// What this process held before the first life.
    before: Usage,
}

impl Partner {
    fn new(what: &str, plan: &Plan) -> anyhow::Result<Self> {
        let params = [("FI_SHM_PEER_TIMEOUT", "1s")];
        let mut endpoint = CampaignEndpoint::open(None, &params)?;
        let mut echo = Echo::start(&endpoint, &params)?;
        echo.exchange(&mut endpoint)?;
        let name = format!("phoenix-{}-{what}", std::process::id());
        let mut partner = Self {
            them: endpoint.insert(&name)?,
            endpoint,
            echo,
            name,
            life: 0,
            random: plan.random("partner"),
            storm: None,
            posted: Vec::new(),
            books: BTreeMap::new(),
            last: None,
            owed: BTreeMap::new(),
            open: Vec::new(),
            sent: 0,
            heard: 0,
            received: 0,
            accesses: BTreeMap::new(),
            accessed: 0,
            has_memory: what == MEMORY,
            before: Usage::now()?,
        };
        for _ in 0..WINDOW {
            partner.post()?;
        }
        Ok(partner)
    }

    fn start(&mut self, end: End) -> anyhow::Result<Process> {
        self.life += 1;
        Part::Phoenix(Order {
            name: self.name.clone(),
            partner: self.endpoint.name()?,
            life: self.life,
            end,
            storm: self.storm,
            has_memory: self.has_memory,
        })
        .start()
    }

    /// One life, from its start to its end.
    fn live_and_end(&mut self, end: End, random: &mut Random) -> anyhow::Result<()> {
        let mut actor = self.start(end)?;
        match end {
            End::Kill => {
                self.talk_for(random)?;
                actor.signal(Signal::SIGKILL)?;
                ensure!(actor.was_killed()?, "it had ended before it was killed");
            }
            End::Exit(_) | End::Close(_) => {
                let count = self.talk_until_over(&mut actor)?;
                self.owed.insert(self.life, count);
                actor.join()?;
            }
        }
        // Every now and then the next life begins before the end of this one has been noticed.
        if random.flip() {
            self.collect()?;
            self.echo.exchange(&mut self.endpoint)?;
        }
        Ok(())
    }

    /// As [`Self::live_and_end`] for a life that is stopped again and again.
    fn life_with_pauses(&mut self, count: u32, random: &mut Random) -> anyhow::Result<()> {
        let mut actor = self.start(End::Close(count))?;
        while !actor.is_readable()? {
            self.talk_until_heard(&mut actor, Duration::from_micros(random.below(3000)))?;
            actor.signal(Signal::SIGSTOP)?;
            self.talk_while(Duration::from_micros(random.below(3000)))?;
            self.echo.exchange(&mut self.endpoint)?;
            actor.signal(Signal::SIGCONT)?;
        }
        self.owed.insert(self.life, actor.receive()?);
        actor.join()?;
        self.collect()
    }

    /// Talks to a life until it is time to kill it.
    fn talk_for(&mut self, random: &mut Random) -> anyhow::Result<()> {
        let enough = self.received + random.below(MESSAGES);
        let until = Instant::now() + Duration::from_micros(random.below(LONGEST));
        while self.received < enough && Instant::now() < until {
            self.turn()?;
        }
        Ok(())
    }

    /// Talks for so long, and on until something was heard: a life that shares its processor with many
    /// others would never come to speak between its pauses.
    fn talk_until_heard(&mut self, actor: &mut Process, time: Duration) -> anyhow::Result<()> {
        let (before, longest) = (self.received, Instant::now() + SPEECHLESS);
        self.talk_while(time)?;
        while self.received == before && !actor.is_readable()? && Instant::now() < longest {
            self.turn()?;
        }
        Ok(())
    }

    fn talk_while(&mut self, time: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.turn()?;
        }
        Ok(())
    }

    /// Talks to a life until it says how many messages it has sent.
    fn talk_until_over(&mut self, actor: &mut Process) -> anyhow::Result<u32> {
        let mut timeout = Timeout::new("the end of a life");
        while !actor.is_readable()? {
            timeout.check()?;
            self.turn()?;
        }
        actor.receive()
    }

    /// Sends a message if there is room, and takes what has arrived.
    fn turn(&mut self) -> anyhow::Result<()> {
        let (kind, len) = something(self.sent);
        // What is sent to a life that has not been heard may go to any other.
        let is_known = self.heard == self.life;
        if is_known && self.open.len() < WINDOW && self.random.once_in(4) {
            let stamp = Stamp::new(self.life, self.sent);
            match self.endpoint.send(kind, self.them, len, stamp) {
                Ok(context) => {
                    self.sent += 1;
                    if !kind.is_injected() {
                        self.open.push(context);
                    }
                }
                Err(Errno::Again | Errno::NotConn) => {}
                Err(errno) => bail!("sending to life {}: {errno}", self.life),
            }
        }
        if is_known && self.has_memory {
            self.access()?;
        }
        self.take()
    }

    /// Accesses memory of the life that is talked to, every now and then: it has stamps of this
    /// life, and is given such.
    fn access(&mut self) -> anyhow::Result<()> {
        if self.accesses.len() >= WINDOW || !self.random.flip() {
            return Ok(());
        }
        let access = *self
            .random
            .pick(&[Access::Write, Access::Read, Access::Add]);
        let key = self.random.pick(&PLACES).key();
        let stamp = Stamp::new(self.life, self.random.below(1 << 20) as u32);
        let bytes = match access {
            Access::Write => message::write(stamp, message::SMALLEST),
            Access::Read | Access::Add => blank(message::SMALLEST),
        };
        match self.endpoint.access(access, key, self.them, bytes) {
            Ok(context) => drop(self.accesses.insert(context, self.life)),
            Err(Errno::Again | Errno::NotConn) => {}
            Err(errno) => bail!("accessing memory of life {}: {errno}", self.life),
        }
        Ok(())
    }

    fn take(&mut self) -> anyhow::Result<()> {
        while let Some(outcome) = self.endpoint.poll()? {
            self.book(&outcome)?;
        }
        Ok(())
    }

    fn book_access(&mut self, life: u32, outcome: &Completion) -> anyhow::Result<()> {
        if outcome.error.is_some() {
            return Ok(());
        }
        self.accessed += 1;
        if let Some(bytes) = outcome.received() {
            let stamp = message::read(bytes)?;
            ensure!(stamp.life == life, "{stamp:?} was read in life {life}");
        }
        Ok(())
    }

    fn book(&mut self, outcome: &Completion) -> anyhow::Result<()> {
        if let Some(life) = self.accesses.remove(&outcome.context) {
            self.book_access(life, outcome)?;
            let errno = outcome.error.as_ref().map(|error| error.errno);
            // Whoever closes lets its memory go before its end is noticed.
            let is_expected = matches!(
                errno,
                None | Some(Errno::ConnReset | Errno::ConnRefused | Errno::KeyRejected)
            );
            ensure!(is_expected, "an access to life {life} ends by {errno:?}");
            return Ok(());
        }
        let errno = outcome.error.as_ref().map(|error| error.errno);
        let is_expected = matches!(errno, None | Some(Errno::ConnReset | Errno::ConnRefused));
        ensure!(
            is_expected,
            "an operation with the others ends by {errno:?}"
        );
        let Some(bytes) = outcome.received() else {
            self.open.retain(|&open| open != outcome.context);
            return Ok(());
        };
        let stamp = errno.is_none().then(|| message::read(bytes)).transpose()?;
        self.received += u64::from(stamp.is_some());
        self.heard = self.heard.max(stamp.map_or(0, |stamp| stamp.life));
        self.posted.retain(|&posted| posted != outcome.context);
        self.books.insert(outcome.context, stamp);
        self.post()
    }

    fn post(&mut self) -> anyhow::Result<()> {
        let any = FiAddr::UNSPEC;
        let from_others = TagMatch {
            tag: 0,
            ignore: u64::MAX >> 1,
        };
        self.posted
            .push(self.endpoint.trecv(any, LARGEST, from_others)?);
        Ok(())
    }

    /// Waits for everything that lives in the past are known to have sent, and for the end of
    /// everything that was sent to them, and goes through the books.
    fn collect(&mut self) -> anyhow::Result<()> {
        let mut timeout = Timeout::new("messages of lives that have ended");
        while !self.open.is_empty()
            || !self.accesses.is_empty()
            || self.is_owed()
            || self.is_passed()
        {
            let what = || {
                let (open, owed, posted) = (self.open.len(), &self.owed, &self.posted);
                let accesses = &self.accesses;
                format!("{open} sends open, {owed:?} owed, receives {posted:?}, {accesses:?}")
            };
            timeout.check().with_context(what)?;
            self.take()?;
        }
        self.close_the_books()
    }

    fn is_owed(&self) -> bool {
        let count = |life| {
            let stamps = self.books.values().flatten();
            stamps.filter(|stamp| stamp.life == life).count()
        };
        let mut owed = self.owed.iter();
        owed.any(|(&life, &owed)| count(life) < owed as usize)
    }

    /// Whether a receive has met a large message that others have passed: receives take messages in
    /// the order of their posts, so one that has met none comes after all that are over.
    fn is_passed(&self) -> bool {
        let over = self.books.last_key_value().map(|(&context, _)| context);
        self.posted.iter().any(|&context| Some(context) < over)
    }

    /// Lives follow each other, and the messages of each are in order and without a gap, but for
    /// those that were still with a sender that was killed.
    fn close_the_books(&mut self) -> anyhow::Result<()> {
        // A receive that is still posted was posted after all messages that count
        // ([`Self::is_passed`]).
        for stamp in std::mem::take(&mut self.books).into_values().flatten() {
            let last = self.last.replace(stamp);
            let is_later = last.is_none_or(|last| last.life <= stamp.life);
            ensure!(is_later, "{stamp:?} arrived after {last:?}");
            let same = last.filter(|last| last.life == stamp.life);
            let expected = same.map_or(0, |last| last.number + 1);
            let is_next = stamp.number >= expected;
            let mut missing = expected..stamp.number;
            let is_whole = is_next && missing.all(is_mortal);
            ensure!(is_whole, "{stamp:?} arrived after {last:?}");
        }
        let last = self.last;
        self.owed.clear();
        ensure!(last.is_none_or(|last| last.life <= self.life), "{last:?}");
        Ok(())
    }

    fn nothing_is_left(&mut self, memory: Option<usize>) -> anyhow::Result<()> {
        self.collect()?;
        self.echo.exchange(&mut self.endpoint)?;
        let memory = memory.context("there were failures")?;
        let mut timeout = Timeout::new("memory and descriptors of the dead");
        while Usage::now()? != self.before {
            let what = || format!("{:?}, not {:?}", Usage::now().ok(), self.before);
            timeout.check().with_context(what)?;
            self.take()?;
        }
        let grown = private_after_trim()?;
        ensure!(grown < memory + GROWTH, "{memory} bytes became {grown}");
        no_sockets(&self.name)
    }
}
