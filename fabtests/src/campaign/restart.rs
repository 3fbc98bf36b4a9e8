//! The campaigns `restart` and `signals`: one name, many incarnations, traffic in both directions.
//!
//! Each message carries its sender's incarnation and its number in it. The messages of an
//! incarnation arrive before the first message of the next one, in order and once. A message to one
//! incarnation reaches no other.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use nix::sys::signal::Signal;
use selvedge::{Errno, FiAddr, TagMatch};
use selvedge_testkit::process::Process;
use selvedge_testkit::random::Random;
use selvedge_testkit::timeout::Timeout;
use selvedge_testkit::usage::{Usage, private_after_trim, wait_for_no_sockets};

use super::echo::Echo;
use super::endpoint::{Access, CampaignEndpoint, Completion, blank};
use super::message::{self, Stamp};
use super::report::{Plan, Report, Row};
use super::restarted::{Config, End, LARGEST, MEMORIES, WINDOW, is_lost_with_sender, kind_and_len};
use super::role::Role;
use super::signal_storm::SignalStorm;

/// The row whose incarnations have memory that is accessed.
const MEMORY: &str = "memory";
/// Incarnations of each row in the short form.
const SHORT: u64 = 8;
/// Incarnations before the partner's resources are measured.
const WARM_UP: u64 = 3;
/// Maximum number of messages of an incarnation before it is killed or ends.
const MESSAGES: u64 = 200;
/// The longest time, in microseconds, until an incarnation is killed that sends no messages.
const LONGEST: u64 = 20_000;
/// The longest time between two stops of an incarnation that sends no messages.
const LONGEST_SILENCE: Duration = Duration::from_millis(50);
/// Signals per second.
const SIGNALS: u32 = 10_000;
/// Maximum growth of the partner's memory, whatever the number of incarnations.
const GROWTH: usize = 1 << 20;

/// How the incarnations of a row end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndKind {
    Kill,
    Exit,
    Close,
    /// Any of these, chosen at random.
    Any,
}

/// Runs the campaign `restart`.
///
/// # Errors
/// The campaign cannot be run.
pub(super) fn run_restart(plan: &Plan) -> anyhow::Result<Report> {
    let rows = [
        ("kill", EndKind::Kill),
        ("exit", EndKind::Exit),
        ("close", EndKind::Close),
        ("any", EndKind::Any),
        (MEMORY, EndKind::Any),
    ];
    let mut report = Report::new("restart", plan);
    for (name, end_kind) in rows.into_iter().filter(|(name, _)| plan.includes(name)) {
        report.add(row(plan, name, end_kind, None)?);
    }
    Ok(report)
}

/// Runs the campaign `signals`.
///
/// # Errors
/// The campaign cannot be run.
pub(super) fn run_signals(plan: &Plan) -> anyhow::Result<Report> {
    let mut report = Report::new("signals", plan);
    for (name, end_kind) in [("close", EndKind::Close), ("any", EndKind::Any)] {
        if plan.includes(name) {
            let signals = SignalStorm::start(SIGNALS)?;
            let before = SignalStorm::caught();
            let mut row = row(plan, name, end_kind, Some(SIGNALS))?;
            drop(signals);
            let caught = SignalStorm::caught() - before;
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
/// The campaign cannot be run.
pub(super) fn run_stopped_stream(plan: &Plan) -> anyhow::Result<Row> {
    let mut row = Row::new("stream");
    let (mut partner, mut random) = (Partner::new("stream", plan)?, plan.random("stream"));
    let (began, mut done) = (Instant::now(), 0);
    while !plan.is_over(done, SHORT_STREAMS, began) {
        let count = random.below(MESSAGES) as u32;
        let incarnation = partner.run_incarnation_with_stops(count, &mut random);
        done += 1;
        if row
            .count(&format!("incarnation {}", partner.incarnation), incarnation)
            .is_none()
        {
            partner = Partner::new("stream", plan)?;
        }
    }
    row.figures.insert("messages", partner.received as f64);
    Ok(row)
}

fn row(
    plan: &Plan,
    name: &str,
    end_kind: EndKind,
    signal_rate: Option<u32>,
) -> anyhow::Result<Row> {
    let mut row = Row::new(name);
    let mut random = plan.random(name);
    let mut partner = Partner::new(name, plan)?;
    partner.signal_rate = signal_rate;
    let (mut began, mut done, mut memory) = (Instant::now(), 0, None);
    while done < WARM_UP || !plan.is_over(done - WARM_UP, SHORT, began) {
        let end = end_kind.pick(&mut random);
        let incarnation = partner.run_incarnation(end, &mut random);
        if row
            .count(
                &format!("{end:?} of incarnation {}", partner.incarnation),
                incarnation,
            )
            .is_none()
        {
            (partner, memory) = (Partner::new(name, plan)?, None);
            partner.signal_rate = signal_rate;
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
    let kept = partner.check_leaks(memory);
    row.count("at the end", kept);
    Ok(row)
}

impl EndKind {
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

/// The partner of all incarnations of one name.
#[derive(Debug)]
struct Partner {
    endpoint: CampaignEndpoint,
    echo: Echo,
    peer: FiAddr,
    name: String,
    incarnation: u32,
    random: Random,
    /// Signals per second that interrupt the incarnations.
    signal_rate: Option<u32>,
    /// Receives that have not completed, in the order of their posts.
    posted: Vec<u64>,
    /// Completed receives since the last check of the order, with the stamps of their messages.
    completed: BTreeMap<u64, Option<Stamp>>,
    /// The last message of the check before.
    last: Option<Stamp>,
    /// Incarnations that exited or closed since the last check, with the number of their messages.
    expected_counts: BTreeMap<u32, u32>,
    /// Sends to the incarnations that have not completed.
    open: Vec<u64>,
    sent: u32,
    /// The latest incarnation that has sent a message.
    last_incarnation: u32,
    /// Messages that were received.
    received: u64,
    /// Accesses to an incarnation's memory that have not completed, with the incarnation.
    accesses: BTreeMap<u64, u32>,
    /// Accesses that were successful.
    accessed: u64,
    has_memory: bool,
    /// Resources of this process before the first incarnation.
    before: Usage,
}

impl Partner {
    fn new(row: &str, plan: &Plan) -> anyhow::Result<Self> {
        let params = [("FI_SHM_PEER_TIMEOUT", "1s")];
        let mut endpoint = CampaignEndpoint::open(None, &params)?;
        let mut echo = Echo::start(&endpoint, &params)?;
        echo.exchange(&mut endpoint)?;
        let name = format!("restarted-{}-{row}", std::process::id());
        let mut partner = Self {
            peer: endpoint.insert(&name)?,
            endpoint,
            echo,
            name,
            incarnation: 0,
            random: plan.random("partner"),
            signal_rate: None,
            posted: Vec::new(),
            completed: BTreeMap::new(),
            last: None,
            expected_counts: BTreeMap::new(),
            open: Vec::new(),
            sent: 0,
            last_incarnation: 0,
            received: 0,
            accesses: BTreeMap::new(),
            accessed: 0,
            has_memory: row == MEMORY,
            before: Usage::now()?,
        };
        for _ in 0..WINDOW {
            partner.post_receive()?;
        }
        Ok(partner)
    }

    fn start(&mut self, end: End) -> anyhow::Result<Process> {
        self.incarnation += 1;
        Role::Restarted(Config {
            name: self.name.clone(),
            partner: self.endpoint.name()?,
            incarnation: self.incarnation,
            end,
            signal_rate: self.signal_rate,
            has_memory: self.has_memory,
        })
        .start()
    }

    /// Runs one incarnation from its start to its end.
    fn run_incarnation(&mut self, end: End, random: &mut Random) -> anyhow::Result<()> {
        let mut process = self.start(end)?;
        match end {
            End::Kill => {
                self.exchange_until_kill(random)?;
                process.signal(Signal::SIGKILL)?;
                ensure!(
                    process.was_killed()?,
                    "the process had ended before it was killed"
                );
            }
            End::Exit(_) | End::Close(_) => {
                let count = self.exchange_until_exit(&mut process)?;
                self.expected_counts.insert(self.incarnation, count);
                process.join()?;
            }
        }
        // At random, the next incarnation begins before the end of this one has been detected.
        if random.flip() {
            self.collect()?;
            self.echo.exchange(&mut self.endpoint)?;
        }
        Ok(())
    }

    /// As [`Self::run_incarnation`], for an incarnation that is stopped repeatedly.
    fn run_incarnation_with_stops(
        &mut self,
        count: u32,
        random: &mut Random,
    ) -> anyhow::Result<()> {
        let mut process = self.start(End::Close(count))?;
        while !process.is_readable()? {
            self.exchange_until_received(&mut process, Duration::from_micros(random.below(3000)))?;
            process.signal(Signal::SIGSTOP)?;
            self.exchange_for(Duration::from_micros(random.below(3000)))?;
            self.echo.exchange(&mut self.endpoint)?;
            process.signal(Signal::SIGCONT)?;
        }
        self.expected_counts
            .insert(self.incarnation, process.receive()?);
        process.join()?;
        self.collect()
    }

    /// Exchanges messages with an incarnation until it is to be killed.
    fn exchange_until_kill(&mut self, random: &mut Random) -> anyhow::Result<()> {
        let enough = self.received + random.below(MESSAGES);
        let until = Instant::now() + Duration::from_micros(random.below(LONGEST));
        while self.received < enough && Instant::now() < until {
            self.step()?;
        }
        Ok(())
    }

    /// Exchanges messages for `time`, and longer until a message is received: an incarnation that
    /// shares its processor with many processes would otherwise not run between its stops.
    fn exchange_until_received(
        &mut self,
        process: &mut Process,
        time: Duration,
    ) -> anyhow::Result<()> {
        let (before, longest) = (self.received, Instant::now() + LONGEST_SILENCE);
        self.exchange_for(time)?;
        while self.received == before && !process.is_readable()? && Instant::now() < longest {
            self.step()?;
        }
        Ok(())
    }

    fn exchange_for(&mut self, time: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.step()?;
        }
        Ok(())
    }

    /// Exchanges messages with an incarnation until it reports the number of its messages.
    fn exchange_until_exit(&mut self, process: &mut Process) -> anyhow::Result<u32> {
        let mut timeout = Timeout::new("the end of an incarnation");
        while !process.is_readable()? {
            timeout.check()?;
            self.step()?;
        }
        process.receive()
    }

    /// Sends a message if there is room, and takes completions.
    fn step(&mut self) -> anyhow::Result<()> {
        let (kind, len) = kind_and_len(self.sent);
        // A message to an incarnation that has sent none yet may reach any other.
        let is_connected = self.last_incarnation == self.incarnation;
        if is_connected && self.open.len() < WINDOW && self.random.once_in(4) {
            let stamp = Stamp::new(self.incarnation, self.sent);
            match self.endpoint.send(kind, self.peer, len, stamp) {
                Ok(context) => {
                    self.sent += 1;
                    if !kind.is_injected() {
                        self.open.push(context);
                    }
                }
                Err(Errno::Again | Errno::NotConn) => {}
                Err(errno) => bail!("sending to incarnation {}: {errno}", self.incarnation),
            }
        }
        if is_connected && self.has_memory {
            self.access()?;
        }
        self.take_completions()
    }

    /// Accesses memory of the current incarnation at random times. It holds stamps of this
    /// incarnation, and such stamps are written.
    fn access(&mut self) -> anyhow::Result<()> {
        if self.accesses.len() >= WINDOW || !self.random.flip() {
            return Ok(());
        }
        let access = *self
            .random
            .pick(&[Access::Write, Access::Read, Access::Add]);
        let key = self.random.pick(&MEMORIES).key();
        let stamp = Stamp::new(self.incarnation, self.random.below(1 << 20) as u32);
        let bytes = match access {
            Access::Write => message::write(stamp, message::SMALLEST),
            Access::Read | Access::Add => blank(message::SMALLEST),
        };
        match self.endpoint.access(access, key, self.peer, bytes) {
            Ok(context) => drop(self.accesses.insert(context, self.incarnation)),
            Err(Errno::Again | Errno::NotConn) => {}
            Err(errno) => bail!(
                "accessing memory of incarnation {}: {errno}",
                self.incarnation
            ),
        }
        Ok(())
    }

    fn take_completions(&mut self) -> anyhow::Result<()> {
        while let Some(outcome) = self.endpoint.poll()? {
            self.record_completion(&outcome)?;
        }
        Ok(())
    }

    fn record_access(&mut self, incarnation: u32, outcome: &Completion) -> anyhow::Result<()> {
        if outcome.error.is_some() {
            return Ok(());
        }
        self.accessed += 1;
        if let Some(bytes) = outcome.received() {
            let stamp = message::read(bytes)?;
            ensure!(
                stamp.incarnation == incarnation,
                "{stamp:?} was read in memory of incarnation {incarnation}"
            );
        }
        Ok(())
    }

    fn record_completion(&mut self, outcome: &Completion) -> anyhow::Result<()> {
        if let Some(incarnation) = self.accesses.remove(&outcome.context) {
            self.record_access(incarnation, outcome)?;
            let errno = outcome.error.as_ref().map(|error| error.errno);
            // An incarnation that closes deregisters its memory before its end is detected.
            let is_expected = matches!(
                errno,
                None | Some(Errno::ConnReset | Errno::ConnRefused | Errno::KeyRejected)
            );
            ensure!(
                is_expected,
                "an access to memory of incarnation {incarnation} failed with {errno:?}"
            );
            return Ok(());
        }
        let errno = outcome.error.as_ref().map(|error| error.errno);
        let is_expected = matches!(errno, None | Some(Errno::ConnReset | Errno::ConnRefused));
        ensure!(
            is_expected,
            "an operation with an incarnation failed with {errno:?}"
        );
        let Some(bytes) = outcome.received() else {
            self.open.retain(|&open| open != outcome.context);
            return Ok(());
        };
        let stamp = errno.is_none().then(|| message::read(bytes)).transpose()?;
        self.received += u64::from(stamp.is_some());
        self.last_incarnation = self
            .last_incarnation
            .max(stamp.map_or(0, |stamp| stamp.incarnation));
        self.posted.retain(|&posted| posted != outcome.context);
        self.completed.insert(outcome.context, stamp);
        self.post_receive()
    }

    fn post_receive(&mut self) -> anyhow::Result<()> {
        let not_from_echo = TagMatch {
            tag: 0,
            ignore: u64::MAX >> 1,
        };
        self.posted.push(
            self.endpoint
                .trecv(FiAddr::UNSPEC, LARGEST, not_from_echo)?,
        );
        Ok(())
    }

    /// Waits until all messages of past incarnations have arrived and all operations with them have
    /// ended, and checks the order.
    fn collect(&mut self) -> anyhow::Result<()> {
        let mut timeout = Timeout::new("messages of incarnations that have ended");
        while !self.open.is_empty()
            || !self.accesses.is_empty()
            || self.is_missing_messages()
            || self.is_overtaken()
        {
            let message = || {
                let (open, expected_counts, posted) =
                    (self.open.len(), &self.expected_counts, &self.posted);
                let accesses = &self.accesses;
                format!(
                    "{open} sends outstanding, messages expected: {expected_counts:?}, receives posted: {posted:?}, accesses outstanding: {accesses:?}"
                )
            };
            timeout.check().with_context(message)?;
            self.take_completions()?;
        }
        self.check_order()
    }

    fn is_missing_messages(&self) -> bool {
        let count = |incarnation| {
            let stamps = self.completed.values().flatten();
            stamps
                .filter(|stamp| stamp.incarnation == incarnation)
                .count()
        };
        let mut expected_counts = self.expected_counts.iter();
        expected_counts
            .any(|(&incarnation, &expected_counts)| count(incarnation) < expected_counts as usize)
    }

    /// Returns whether a receive has matched a large message that others have overtaken. Receives
    /// take messages in the order of their posts, so a receive without a message comes after all
    /// that have completed.
    fn is_overtaken(&self) -> bool {
        let over = self.completed.last_key_value().map(|(&context, _)| context);
        self.posted.iter().any(|&context| Some(context) < over)
    }

    /// Checks that incarnations follow each other, and that the messages of each are in order and
    /// without a gap, except messages that were lost with a killed sender.
    fn check_order(&mut self) -> anyhow::Result<()> {
        // A receive that is still posted was posted after all checked messages
        // ([`Self::is_overtaken`]).
        for stamp in std::mem::take(&mut self.completed).into_values().flatten() {
            let last = self.last.replace(stamp);
            let is_later = last.is_none_or(|last| last.incarnation <= stamp.incarnation);
            ensure!(is_later, "{stamp:?} arrived after {last:?}");
            let same = last.filter(|last| last.incarnation == stamp.incarnation);
            let expected = same.map_or(0, |last| last.number + 1);
            let is_next = stamp.number >= expected;
            let mut missing = expected..stamp.number;
            let is_whole = is_next && missing.all(is_lost_with_sender);
            ensure!(is_whole, "{stamp:?} arrived after {last:?}");
        }
        let last = self.last;
        self.expected_counts.clear();
        let is_valid = last.is_none_or(|last| last.incarnation <= self.incarnation);
        ensure!(
            is_valid,
            "{last:?} was received in incarnation {}",
            self.incarnation
        );
        Ok(())
    }

    fn check_leaks(&mut self, memory: Option<usize>) -> anyhow::Result<()> {
        self.collect()?;
        self.echo.exchange(&mut self.endpoint)?;
        let memory = memory.context("resources are not compared after failures")?;
        let mut timeout = Timeout::new("the release of the incarnations' resources");
        while Usage::now()? != self.before {
            let message = || format!("{:?} are held, {:?} before", Usage::now().ok(), self.before);
            timeout.check().with_context(message)?;
            self.take_completions()?;
        }
        let grown = private_after_trim()?;
        ensure!(
            grown < memory + GROWTH,
            "the memory grew from {memory} to {grown} bytes"
        );
        wait_for_no_sockets(&self.name)
    }
}
