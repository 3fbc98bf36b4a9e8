//! Runs one entry, from the start of its processes to its outcome.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, ensure};
use nix::sys::wait::WaitStatus;
use serde_json::Value;

use super::hosts::Hosts;
use super::leftovers;
use super::process::{Event, Member};
use crate::suite::control::{Message, Values};
use crate::suite::entry::{Entry, Process, Start};
use crate::suite::outcome::{Outcome, Report};

/// Runs an entry, whose time limit is multiplied by `slowness`. `number` is unique in this run.
pub(super) fn run_entry(
    entry: &Entry,
    number: usize,
    slowness: f64,
    hosts: Option<&Hosts>,
) -> Report {
    let start = Instant::now();
    let limit = entry.timeout.mul_f64(slowness);
    let mut attempt = Attempt::new(entry, number, hosts);
    let (outcome, noticed) = match attempt.run(start, limit) {
        Ok(outcome) if entry.must_fail => invert(outcome),
        Ok(Outcome::Fail(reason)) if entry.may_fail => (Outcome::Pass, Some(reason)),
        Ok(outcome) => (outcome, None),
        Err(error) => (Outcome::Fail(format!("{error:#}")), None),
    };
    Report {
        provider: entry.provider.clone(),
        name: entry.name.clone(),
        seconds: start.elapsed().as_secs_f64(),
        checks: attempt.checks,
        bytes: attempt.bytes,
        output: if outcome.is_bad() {
            attempt.members.iter().map(Member::printed).collect()
        } else {
            Vec::new()
        },
        outcome,
        noticed,
    }
}

/// Returns the outcome of a test that must fail, and the reason of its failure.
fn invert(outcome: Outcome) -> (Outcome, Option<String>) {
    match outcome {
        Outcome::Pass => (
            Outcome::Fail("the test did not detect the defect".to_owned()),
            None,
        ),
        skip @ Outcome::Skip(_) => (skip, None),
        bad => (Outcome::Pass, bad.reason().map(str::to_owned)),
    }
}

struct Attempt<'a> {
    entry: &'a Entry,
    hosts: Option<&'a Hosts>,
    placeholders: Placeholders,
    members: Vec<Member>,
    states: Vec<State>,
    events: Receiver<Event>,
    sender: Sender<Event>,
    checks: u64,
    bytes: u64,
    start: SystemTime,
}

/// The state of a process.
#[derive(Clone, Debug, Default)]
struct State {
    /// The value that the process waits to exchange.
    exchanged: Option<Value>,
    /// The activity that the process reported last.
    activity: Option<String>,
    /// The last message of the process.
    last_message: Option<Message>,
    has_ended: bool,
}

impl<'a> Attempt<'a> {
    fn new(entry: &'a Entry, number: usize, hosts: Option<&'a Hosts>) -> Self {
        let (sender, events) = channel();
        Self {
            entry,
            hosts,
            placeholders: Placeholders::new(number, hosts.is_some()),
            members: Vec::new(),
            states: vec![State::default(); entry.processes.len()],
            events,
            sender,
            checks: 0,
            bytes: 0,
            // Timestamps of files are coarser than the system clock.
            start: SystemTime::now() - Duration::from_millis(50),
        }
    }

    fn run(&mut self, start: Instant, limit: Duration) -> anyhow::Result<Outcome> {
        let deadline = start + limit;
        self.start_next("")?;
        while self.entry.start == Start::Together && self.start_next("")? {}
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            let outcome = match self.events.recv_timeout(remaining) {
                Ok(event) => self.handle(event)?,
                Err(RecvTimeoutError::Timeout) => Some(self.timeout(limit)),
                Err(RecvTimeoutError::Disconnected) => unreachable!("`self` holds a sender"),
            };
            if let Some(outcome) = outcome {
                return Ok(self.finish(outcome));
            }
        }
    }

    /// Starts the next process. Returns whether there was one.
    fn start_next(&mut self, ready: &str) -> anyhow::Result<bool> {
        let index = self.members.len();
        let Some(process) = self.entry.processes.get(index) else {
            return Ok(false);
        };
        let process = self.placeholders.substitute(process, index, ready)?;
        let member = Member::start(index, &process, self.hosts, &self.sender)?;
        self.members.push(member);
        Ok(true)
    }

    /// Handles an event. Returns an outcome if the event ends the entry.
    fn handle(&mut self, event: Event) -> anyhow::Result<Option<Outcome>> {
        let outcome = match event {
            Event::Printed(index, line) => {
                self.members[index].keep(line);
                None
            }
            Event::Message(index, message) => {
                self.handle_message(index, message)?;
                None
            }
            Event::Ended(index, status) => self.handle_end(index, status),
        };
        Ok(outcome.or_else(|| self.find_failed_wait()))
    }

    /// Finds a process that waits for an exchange with a process that has ended, and makes its
    /// failure.
    fn find_failed_wait(&self) -> Option<Outcome> {
        let waiting = self
            .states
            .iter()
            .position(|state| state.exchanged.is_some())?;
        let ended = self.states.iter().position(|state| state.has_ended)?;
        let (waiting, ended) = (self.process_name(waiting), self.process_name(ended));
        Some(Outcome::Fail(format!(
            "{waiting} waits for {ended}, which has ended"
        )))
    }

    fn handle_message(&mut self, index: usize, message: Message) -> anyhow::Result<()> {
        match message {
            Message::Ready(text) => {
                if self.entry.start == Start::InTurn && index + 1 == self.members.len() {
                    self.start_next(&text)?;
                }
            }
            Message::Exchange(value) => {
                self.states[index].exchanged = Some(value);
                self.complete_exchange();
            }
            Message::Doing(activity) => self.states[index].activity = Some(activity),
            other => self.states[index].last_message = Some(other),
        }
        Ok(())
    }

    fn complete_exchange(&mut self) {
        if self.states.iter().any(|state| state.exchanged.is_none()) {
            return;
        }
        let exchanged = self
            .states
            .iter_mut()
            .filter_map(|state| state.exchanged.take());
        let response = Values {
            all: exchanged.collect(),
        };
        for member in &mut self.members {
            member.send_values(&response);
        }
    }

    fn handle_end(&mut self, index: usize, status: WaitStatus) -> Option<Outcome> {
        self.states[index].has_ended = true;
        let remaining = self.members[index].reap();
        let outcome = self.outcome_of(index, status);
        if outcome != Outcome::Pass {
            return Some(outcome);
        }
        if !remaining.is_empty() {
            let remaining = remaining.join(", ");
            let reason = format!("process {index} has left processes behind: {remaining}");
            return Some(Outcome::Leak(reason));
        }
        let have_all_ended = self.states.iter().all(|state| state.has_ended);
        have_all_ended.then(|| self.final_outcome())
    }

    /// Returns the outcome of one process.
    fn outcome_of(&mut self, index: usize, status: WaitStatus) -> Outcome {
        let process_name = self.process_name(index);
        let last_message = self.states[index].last_message.take();
        let code = match status {
            WaitStatus::Signaled(_, signal, _) => {
                let activity = self.activity_text(index);
                return Outcome::Crash(format!("{process_name} was killed by {signal}{activity}"));
            }
            WaitStatus::Exited(_, code) => code,
            other => {
                return Outcome::Fail(format!(
                    "{process_name} ended in an unexpected way: {other:?}"
                ));
            }
        };
        match last_message {
            Some(Message::Skip(reason)) => Outcome::Skip(reason),
            Some(Message::Failed(reason)) => Outcome::Fail(format!("{process_name}: {reason}")),
            Some(Message::Leaked(reason)) => Outcome::Leak(format!("{process_name}: {reason}")),
            Some(Message::Done { checks, bytes }) => {
                self.checks += checks;
                self.bytes += bytes;
                self.outcome_of_code(index, code)
            }
            _ => self.outcome_of_code(index, code),
        }
    }

    fn outcome_of_code(&self, index: usize, code: i32) -> Outcome {
        let process_name = self.process_name(index);
        match self.entry.processes[index].success_code {
            expected if expected == code => Outcome::Pass,
            _ if UNAVAILABLE.contains(&code) => {
                let errno = selvedge::Errno::from_raw(code);
                Outcome::Skip(format!(
                    "{process_name} exited with {code}: {}",
                    errno.text()
                ))
            }
            _ if code == PANIC => Outcome::Fail(format!("{process_name} has panicked")),
            expected => Outcome::Fail(format!(
                "{process_name} exited with {code} instead of {expected}"
            )),
        }
    }

    /// Returns the outcome of an entry whose processes have all succeeded.
    fn final_outcome(&self) -> Outcome {
        let processes: Vec<_> = self.members.iter().map(Member::pid).collect();
        let files = leftovers::files_of_processes(&processes, self.start).join(", ");
        if !files.is_empty() {
            return Outcome::Leak(format!("the test has left {files} behind"));
        }
        if self.entry.counts_checks && self.checks == 0 {
            Outcome::Fail("nothing was checked".to_owned())
        } else {
            Outcome::Pass
        }
    }

    fn timeout(&self, limit: Duration) -> Outcome {
        let living = (0..self.members.len()).filter(|&index| !self.states[index].has_ended);
        let activities = living
            .map(|index| format!("{}{}", self.process_name(index), self.activity_text(index)));
        let activities = Vec::from_iter(activities).join("; ");
        Outcome::Timeout(format!(
            "did not end within {} s: {activities}",
            limit.as_secs_f64()
        ))
    }

    /// Ends the entry after one process has decided the outcome. The other processes have
    /// [`OUTPUT_TIMEOUT`] to send their messages, and are then killed.
    fn finish(&mut self, outcome: Outcome) -> Outcome {
        if !outcome.is_bad() {
            return outcome;
        }
        let deadline = Instant::now() + OUTPUT_TIMEOUT;
        while self.states.iter().any(|state| !state.has_ended) {
            let remaining = deadline.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(remaining) {
                Ok(Event::Ended(index, _)) => self.states[index].has_ended = true,
                Ok(Event::Printed(index, line)) => self.members[index].keep(line),
                Ok(Event::Message(index, Message::Failed(reason))) => {
                    self.members[index].keep(format!("failed as well: {reason}"));
                }
                Ok(Event::Message(..)) => {}
                Err(_) => break,
            }
        }
        outcome
    }

    fn process_name(&self, index: usize) -> String {
        match self.entry.processes.len() {
            1 => "the process".to_owned(),
            _ => format!("process {index}"),
        }
    }

    fn activity_text(&self, index: usize) -> String {
        let state = &self.states[index];
        match (&state.exchanged, &state.activity) {
            (Some(_), _) => " while waiting for the other processes".to_owned(),
            (None, Some(activity)) => format!(" while {activity}"),
            (None, None) => String::new(),
        }
    }
}

/// The values of the placeholders of an entry.
struct Placeholders {
    number: usize,
    has_hosts: bool,
    ports: BTreeMap<String, u16>,
}

impl Placeholders {
    fn new(number: usize, has_hosts: bool) -> Self {
        Self {
            number,
            has_hosts,
            ports: BTreeMap::new(),
        }
    }

    fn substitute(
        &mut self,
        process: &Process,
        index: usize,
        ready: &str,
    ) -> anyhow::Result<Process> {
        let has_hosts = self.has_hosts;
        let mut substitute = |text: &String| self.substitute_text(text, index, ready);
        let args = process.args.iter();
        let args = args
            .filter(|arg| has_hosts || *arg != SOURCE)
            .map(&mut substitute)
            .collect::<Result<_, _>>()?;
        let env = process
            .env
            .iter()
            .map(|(name, value)| Ok((name.clone(), substitute(value)?)))
            .collect::<anyhow::Result<_>>()?;
        Ok(Process {
            args,
            env,
            success_code: process.success_code,
        })
    }

    fn host(&self, index: usize) -> &'static str {
        if self.has_hosts {
            Hosts::address(index)
        } else {
            "127.0.0.1"
        }
    }

    fn substitute_text(&mut self, text: &str, index: usize, ready: &str) -> anyhow::Result<String> {
        let name = format!("fabtests-{}-{}", std::process::id(), self.number);
        let text = text.replace("{name}", &name).replace("{ready}", ready);
        let text = text.replace(SOURCE, "-s={here}");
        let text = text.replace("{here}", self.host(index));
        let mut text = text.replace("{host}", self.host(0));
        while let Some(from) = text.find("{port") {
            let Some(len) = text[from..].find('}') else {
                break;
            };
            let key = text[from..from + len].to_owned();
            let port = self.port(key)?;
            text.replace_range(from..=from + len, &port.to_string());
        }
        Ok(text)
    }

    fn port(&mut self, key: String) -> anyhow::Result<u16> {
        if let Some(&port) = self.ports.get(&key) {
            return Ok(port);
        }
        let port = free_port()?;
        self.ports.insert(key, port);
        Ok(port)
    }
}

/// The placeholder of an argument that only processes on two hosts have.
const SOURCE: &str = "{source}";

/// Returns a port that has no listener and was not assigned before.
fn free_port() -> anyhow::Result<u16> {
    static ASSIGNED: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut assigned = ASSIGNED.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("no free port")?;
        let port = listener.local_addr()?.port();
        if assigned.insert(port) {
            return Ok(port);
        }
        ensure!(
            assigned.len() < MAX_PORTS,
            "{} ports are assigned already",
            assigned.len()
        );
    }
}

/// Exit codes of a program whose provider lacks a capability: `FI_ENODATA`, `FI_ENOSYS`.
const UNAVAILABLE: [i32; 2] = [libc::ENODATA, libc::ENOSYS];
/// The exit code of a program that has panicked.
const PANIC: i32 = 101;
/// Maximum number of assigned ports: more than any run needs, and fewer than exist.
const MAX_PORTS: usize = 20_000;
/// Time in which the last messages and output of the processes are received.
const OUTPUT_TIMEOUT: Duration = Duration::from_millis(300);
