//! The campaigns `restart` and `signals`: processes use the same endpoint name one after another,
//! and exchange messages with a partner in both directions. Each such process is an incarnation of
//! the name.
//!
//! Each message carries its sender's incarnation and its number within the incarnation. The
//! messages of an incarnation arrive in order and once, before the first message of the next
//! incarnation. A message to one incarnation reaches no other.

pub(super) mod restarted;
mod signal_storm;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use nix::sys::signal::Signal;
use selvedge::{Errno, FiAddr, TagMatch};
use selvedge_testkit::process::Process;
use selvedge_testkit::random::Random;
use selvedge_testkit::timeout::Timeout;
use selvedge_testkit::usage::{Usage, private_after_trim, wait_for_no_sockets};

use self::restarted::{Config, End, LARGEST, MEMORIES, WINDOW, is_lost_with_sender, kind_and_len};
use self::signal_storm::SignalStorm;
use super::echo::Echo;
use super::endpoint::{Access, CampaignEndpoint, Completion, blank};
use super::message::{self, Stamp};
use super::report::{Plan, Report, Row};
use super::role::Role;

/// The name of the row in which the partner accesses memory of the incarnations.
const MEMORY_ROW: &str = "memory";
/// Number of incarnations of each row in the short form of the campaign.
const SHORT: u64 = 8;
/// Number of incarnations before the partner's memory is measured.
const WARM_UP: u64 = 3;
/// Maximum number of messages of an incarnation before it is killed or ends.
const MAX_MESSAGES: u64 = 200;
/// Maximum time in microseconds until an incarnation is killed, even if it sends no message.
const MAX_KILL_DELAY: u64 = 20_000;
/// Maximum time between two stops of an incarnation, even if it sends no message.
const MAX_SILENCE: Duration = Duration::from_millis(50);
/// Signals per second.
const SIGNAL_RATE: u32 = 10_000;
/// Maximum growth of the partner's memory, whatever the number of incarnations.
const MAX_GROWTH: usize = 1 << 20;

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
        (MEMORY_ROW, EndKind::Any),
    ];
    let mut report = Report::new("restart", plan);
    for (name, end_kind) in rows.into_iter().filter(|(name, _)| plan.includes(name)) {
        report.add(run_row(plan, name, end_kind, None)?);
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
            let signals = SignalStorm::start(SIGNAL_RATE)?;
            let before = SignalStorm::caught();
            let mut row = run_row(plan, name, end_kind, Some(SIGNAL_RATE))?;
            drop(signals);
            let caught = SignalStorm::caught() - before;
            row.figures.insert("signals", caught as f64);
            report.add(row);
        }
    }
    Ok(report)
}

/// Number of streams that are stopped in the short form.
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
        let count = random.below(MAX_MESSAGES) as u32;
        let result = partner.run_incarnation_with_stops(count, &mut random);
        done += 1;
        if row
            .count(&format!("incarnation {}", partner.incarnation), result)
            .is_none()
        {
            partner = Partner::new("stream", plan)?;
        }
    }
    row.figures.insert("messages", partner.received as f64);
    Ok(row)
}

fn run_row(
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
        let result = partner.run_incarnation(end, &mut random);
        if row
            .count(
                &format!("{end:?} of incarnation {}", partner.incarnation),
                result,
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
        row.figures
            .insert("accesses", partner.successful_accesses as f64);
    }
    let leak_check = partner.check_leaks(memory);
    row.count("at the end", leak_check);
    Ok(row)
}

impl EndKind {
    fn pick(self, random: &mut Random) -> End {
        let count = random.below(MAX_MESSAGES) as u32;
        match self {
            Self::Kill => End::Kill,
            Self::Exit => End::Exit(count),
            Self::Close => End::Close(count),
            Self::Any => *random.pick(&[End::Kill, End::Exit(count), End::Close(count)]),
        }
    }
}

/// The partner with which all incarnations of one name exchange messages. Fields are dropped in
/// order: the echo process before the endpoint.
#[derive(Debug)]
struct Partner {
    echo: Echo,
    endpoint: CampaignEndpoint,
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
    /// The stamp of the last message that was checked.
    last_checked: Option<Stamp>,
    /// Incarnations that exited or closed since the last check of the order, with the number of the
    /// messages that each sent.
    expected_counts: BTreeMap<u32, u32>,
    /// Outstanding sends to incarnations.
    outstanding_sends: Vec<u64>,
    /// Messages that were sent, and the number of the next one.
    sent: u32,
    /// The latest incarnation that has sent a message.
    last_incarnation: u32,
    /// Messages that were received.
    received: u64,
    /// Outstanding accesses to memory of incarnations, each with the incarnation.
    outstanding_accesses: BTreeMap<u64, u32>,
    /// Number of accesses that succeeded.
    successful_accesses: u64,
    has_memory: bool,
    /// Resources of this process before the first incarnation.
    usage_before: Usage,
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
            last_checked: None,
            expected_counts: BTreeMap::new(),
            outstanding_sends: Vec::new(),
            sent: 0,
            last_incarnation: 0,
            received: 0,
            outstanding_accesses: BTreeMap::new(),
            successful_accesses: 0,
            has_memory: row == MEMORY_ROW,
            usage_before: Usage::now()?,
        };
        for _ in 0..WINDOW {
            partner.post_receive()?;
        }
        Ok(partner)
    }

    fn start(&mut self, end: End) -> anyhow::Result<Process> {
        self.incarnation += 1;
        Config {
            name: self.name.clone(),
            partner: self.endpoint.name()?,
            incarnation: self.incarnation,
            end,
            signal_rate: self.signal_rate,
            has_memory: self.has_memory,
        }
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
        // Half of the incarnations, chosen at random, are followed by the next one before their end
        // has been detected.
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

    /// Exchanges messages with an incarnation until it is time to kill it.
    fn exchange_until_kill(&mut self, random: &mut Random) -> anyhow::Result<()> {
        let enough = self.received + random.below(MAX_MESSAGES);
        let until = Instant::now() + Duration::from_micros(random.below(MAX_KILL_DELAY));
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
        let (before, longest) = (self.received, Instant::now() + MAX_SILENCE);
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
        // Before an incarnation has sent a message, a message to it may reach another incarnation.
        let is_connected = self.last_incarnation == self.incarnation;
        if is_connected && self.outstanding_sends.len() < WINDOW && self.random.once_in(4) {
            let stamp = Stamp::new(self.incarnation, self.sent);
            match self.endpoint.send(kind, self.peer, len, stamp) {
                Ok(context) => {
                    self.sent += 1;
                    if !kind.is_injected() {
                        self.outstanding_sends.push(context);
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

    /// Accesses memory of the current incarnation at random times. The memory holds stamps of this
    /// incarnation, and writes store such stamps.
    fn access(&mut self) -> anyhow::Result<()> {
        if self.outstanding_accesses.len() >= WINDOW || !self.random.flip() {
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
            Ok(context) => drop(self.outstanding_accesses.insert(context, self.incarnation)),
            Err(Errno::Again | Errno::NotConn) => {}
            Err(errno) => bail!(
                "accessing memory of incarnation {}: {errno}",
                self.incarnation
            ),
        }
        Ok(())
    }

    fn take_completions(&mut self) -> anyhow::Result<()> {
        while let Some(completion) = self.endpoint.poll()? {
            self.record_completion(&completion)?;
        }
        Ok(())
    }

    fn record_access(&mut self, incarnation: u32, completion: &Completion) -> anyhow::Result<()> {
        if completion.error.is_some() {
            return Ok(());
        }
        self.successful_accesses += 1;
        if let Some(bytes) = completion.received() {
            let stamp = message::read(bytes)?;
            ensure!(
                stamp.incarnation == incarnation,
                "{stamp:?} was read in memory of incarnation {incarnation}"
            );
        }
        Ok(())
    }

    fn record_completion(&mut self, completion: &Completion) -> anyhow::Result<()> {
        if let Some(incarnation) = self.outstanding_accesses.remove(&completion.context) {
            self.record_access(incarnation, completion)?;
            let errno = completion.error.as_ref().map(|error| error.errno);
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
        let errno = completion.error.as_ref().map(|error| error.errno);
        let is_expected = matches!(errno, None | Some(Errno::ConnReset | Errno::ConnRefused));
        ensure!(
            is_expected,
            "an operation with an incarnation failed with {errno:?}"
        );
        let Some(bytes) = completion.received() else {
            self.outstanding_sends
                .retain(|&context| context != completion.context);
            return Ok(());
        };
        let stamp = errno.is_none().then(|| message::read(bytes)).transpose()?;
        self.received += u64::from(stamp.is_some());
        self.last_incarnation = self
            .last_incarnation
            .max(stamp.map_or(0, |stamp| stamp.incarnation));
        self.posted.retain(|&posted| posted != completion.context);
        self.completed.insert(completion.context, stamp);
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
        while !self.outstanding_sends.is_empty()
            || !self.outstanding_accesses.is_empty()
            || self.is_missing_messages()
            || self.is_overtaken()
        {
            let message = || {
                let (sends, accesses) = (self.outstanding_sends.len(), &self.outstanding_accesses);
                let (expected_counts, posted) = (&self.expected_counts, &self.posted);
                format!(
                    "{sends} sends outstanding, messages expected: {expected_counts:?}, receives posted: {posted:?}, accesses outstanding: {accesses:?}"
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
        expected_counts.any(|(&incarnation, &expected)| count(incarnation) < expected as usize)
    }

    /// Returns whether a receive that was posted before a completed one has not completed. Receives
    /// match messages in the order of their posts, so such a receive has matched a large message
    /// that later messages have overtaken.
    fn is_overtaken(&self) -> bool {
        let last_completed = self.completed.last_key_value().map(|(&context, _)| context);
        self.posted
            .iter()
            .any(|&context| Some(context) < last_completed)
    }

    /// Checks that incarnations follow each other, and that the messages of each are in order and
    /// without a gap, except messages that were lost with a killed sender.
    fn check_order(&mut self) -> anyhow::Result<()> {
        // Every receive that is still posted was posted after the completed ones: `collect` has
        // waited until `is_overtaken` is false.
        for stamp in std::mem::take(&mut self.completed).into_values().flatten() {
            let last = self.last_checked.replace(stamp);
            let is_later = last.is_none_or(|last| last.incarnation <= stamp.incarnation);
            ensure!(
                is_later,
                "{stamp:?} arrived after {last:?} of a later incarnation"
            );
            let same = last.filter(|last| last.incarnation == stamp.incarnation);
            let expected = same.map_or(0, |last| last.number + 1);
            let is_next = stamp.number >= expected;
            let mut missing = expected..stamp.number;
            let is_whole = is_next && missing.all(is_lost_with_sender);
            ensure!(
                is_whole,
                "{stamp:?} arrived after {last:?}: messages are missing or out of order"
            );
        }
        let last = self.last_checked;
        self.expected_counts.clear();
        let is_valid = last.is_none_or(|last| last.incarnation <= self.incarnation);
        ensure!(
            is_valid,
            "{last:?} was received, but the latest incarnation is {}",
            self.incarnation
        );
        Ok(())
    }

    /// Checks that the partner holds no more resources than before, and that its memory has not
    /// grown beyond the `memory` after the warm-up.
    fn check_leaks(&mut self, memory: Option<usize>) -> anyhow::Result<()> {
        self.collect()?;
        self.echo.exchange(&mut self.endpoint)?;
        let memory =
            memory.context("resources are not compared, because an incarnation has failed")?;
        let mut timeout = Timeout::new("the release of the incarnations' resources");
        while Usage::now()? != self.usage_before {
            let message = || {
                format!(
                    "{:?} are held, {:?} before the first incarnation",
                    Usage::now().ok(),
                    self.usage_before
                )
            };
            timeout.check().with_context(message)?;
            self.take_completions()?;
        }
        let grown = private_after_trim()?;
        ensure!(
            grown < memory + MAX_GROWTH,
            "the memory grew from {memory} to {grown} bytes"
        );
        wait_for_no_sockets(&self.name)
    }
}
