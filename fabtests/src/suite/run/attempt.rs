//! One entry, from the start of its processes to its verdict.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, ensure};
use nix::sys::wait::WaitStatus;
use serde_json::Value;

use super::Plan;
use super::hosts::Hosts;
use super::leftovers;
use super::process::{Event, Member};
use crate::suite::control::{Answer, Word};
use crate::suite::entry::{Entry, Process, Start};
use crate::suite::verdict::{Report, Verdict};

/// Runs an entry. `number` is the entry's own in this run.
pub(super) fn attempt(entry: &Entry, number: usize, plan: &Plan<'_>) -> Report {
    let start = Instant::now();
    let most = entry.timeout.mul_f64(plan.slowness);
    let mut attempt = Attempt::new(entry, number, plan.hosts);
    let (verdict, noticed) = match attempt.play(start, most) {
        Ok(verdict) if entry.must_fail => inverted(verdict),
        Ok(Verdict::Fail(why)) if entry.may_fail => (Verdict::Pass, Some(why)),
        Ok(verdict) => (verdict, None),
        Err(error) => (Verdict::Fail(format!("{error:#}")), None),
    };
    Report {
        provider: entry.provider.clone(),
        name: entry.name.clone(),
        seconds: start.elapsed().as_secs_f64(),
        checks: attempt.checks,
        bytes: attempt.bytes,
        output: match verdict.is_bad() {
            true => attempt.members.iter().map(Member::printed).collect(),
            false => Vec::new(),
        },
        verdict,
        noticed,
    }
}

/// The verdict over a test that has to fail, and how it has failed.
fn inverted(verdict: Verdict) -> (Verdict, Option<String>) {
    match verdict {
        Verdict::Pass => (
            Verdict::Fail("it did not notice the defect".to_owned()),
            None,
        ),
        skip @ Verdict::Skip(_) => (skip, None),
        bad => (Verdict::Pass, bad.why().map(str::to_owned)),
    }
}

struct Attempt<'a> {
    entry: &'a Entry,
    hosts: Option<&'a Hosts>,
    names: Names,
    members: Vec<Member>,
    states: Vec<State>,
    events: Receiver<Event>,
    sender: Sender<Event>,
    checks: u64,
    bytes: u64,
    start: SystemTime,
}

/// What is known of a process.
#[derive(Clone, Debug, Default)]
struct State {
    /// What it waits to exchange.
    told: Option<Value>,
    /// What it was doing last.
    doing: Option<String>,
    /// Its last word.
    last: Option<Word>,
    has_ended: bool,
}

impl<'a> Attempt<'a> {
    fn new(entry: &'a Entry, number: usize, hosts: Option<&'a Hosts>) -> Self {
        let (sender, events) = channel();
        Self {
            entry,
            hosts,
            names: Names::new(number, hosts.is_some()),
            members: Vec::new(),
            states: vec![State::default(); entry.processes.len()],
            events,
            sender,
            checks: 0,
            bytes: 0,
            // The clock of files is coarse.
            start: SystemTime::now() - Duration::from_millis(50),
        }
    }

    fn play(&mut self, start: Instant, most: Duration) -> anyhow::Result<Verdict> {
        let deadline = start + most;
        self.start_next("")?;
        while self.entry.start == Start::Together && self.start_next("")? {}
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let verdict = match self.events.recv_timeout(left) {
                Ok(event) => self.take(event)?,
                Err(RecvTimeoutError::Timeout) => Some(self.timeout(most)),
                Err(RecvTimeoutError::Disconnected) => unreachable!("this holds a sender"),
            };
            if let Some(verdict) = verdict {
                return Ok(self.conclude(verdict));
            }
        }
    }

    /// Starts the process that comes next; whether there was one.
    fn start_next(&mut self, ready: &str) -> anyhow::Result<bool> {
        let place = self.members.len();
        let Some(process) = self.entry.processes.get(place) else {
            return Ok(false);
        };
        let process = self.names.fill(process, place, ready)?;
        let member = Member::start(place, &process, self.hosts, &self.sender)?;
        self.members.push(member);
        Ok(true)
    }

    /// What follows from an event; a verdict when that is the end.
    fn take(&mut self, event: Event) -> anyhow::Result<Option<Verdict>> {
        let verdict = match event {
            Event::Printed(place, line) => {
                self.members[place].keep(line);
                None
            }
            Event::Said(place, word) => {
                self.hear(place, word)?;
                None
            }
            Event::Ended(place, status) => self.ended(place, status),
        };
        Ok(verdict.or_else(|| self.in_vain()))
    }

    /// Somebody waits for all to speak, and somebody else has ended.
    fn in_vain(&self) -> Option<Verdict> {
        let waits = self.states.iter().position(|state| state.told.is_some())?;
        let ended = self.states.iter().position(|state| state.has_ended)?;
        let (waits, ended) = (self.who(waits), self.who(ended));
        Some(Verdict::Fail(format!(
            "{waits} waits for {ended}, which has ended"
        )))
    }

    fn hear(&mut self, place: usize, word: Word) -> anyhow::Result<()> {
        match word {
            Word::Ready(text) => {
                if self.entry.start == Start::InTurn && place + 1 == self.members.len() {
                    self.start_next(&text)?;
                }
            }
            Word::Exchange(value) => {
                self.states[place].told = Some(value);
                self.answer_if_all_have_spoken();
            }
            Word::Doing(what) => self.states[place].doing = Some(what),
            last => self.states[place].last = Some(last),
        }
        Ok(())
    }

    fn answer_if_all_have_spoken(&mut self) {
        if self.states.iter().any(|state| state.told.is_none()) {
            return;
        }
        let told = self.states.iter_mut().filter_map(|state| state.told.take());
        let answer = Answer {
            all: told.collect(),
        };
        for member in &mut self.members {
            member.answer(&answer);
        }
    }

    fn ended(&mut self, place: usize, status: WaitStatus) -> Option<Verdict> {
        self.states[place].has_ended = true;
        let left = self.members[place].bury();
        let verdict = self.judge(place, status);
        if verdict != Verdict::Pass {
            return Some(verdict);
        }
        if !left.is_empty() {
            let left = left.join(", ");
            let why = format!("process {place} has left processes behind: {left}");
            return Some(Verdict::Leak(why));
        }
        let are_over = self.states.iter().all(|state| state.has_ended);
        are_over.then(|| self.passed())
    }

    /// The verdict over one process.
    fn judge(&mut self, place: usize, status: WaitStatus) -> Verdict {
        let who = self.who(place);
        let last = self.states[place].last.take();
        let code = match status {
            WaitStatus::Signaled(_, signal, _) => {
                let doing = self.doing(place);
                return Verdict::Crash(format!("{who} was killed by {signal}{doing}"));
            }
            WaitStatus::Exited(_, code) => code,
            odd => return Verdict::Fail(format!("{who} ended as {odd:?}")),
        };
        match last {
            Some(Word::Skip(why)) => Verdict::Skip(why),
            Some(Word::Failed(why)) => Verdict::Fail(format!("{who}: {why}")),
            Some(Word::Leaked(why)) => Verdict::Leak(format!("{who}: {why}")),
            Some(Word::Done { checks, bytes }) => {
                self.checks += checks;
                self.bytes += bytes;
                self.judge_code(place, code)
            }
            _ => self.judge_code(place, code),
        }
    }

    fn judge_code(&self, place: usize, code: i32) -> Verdict {
        let who = self.who(place);
        match self.entry.processes[place].exits {
            expected if expected == code => Verdict::Pass,
            _ if UNAVAILABLE.contains(&code) => {
                let errno = selvedge::Errno::from_raw(code);
                Verdict::Skip(format!("{who} ended with {code}: {}", errno.text()))
            }
            _ if code == PANIC => Verdict::Fail(format!("{who} has panicked")),
            expected => Verdict::Fail(format!("{who} ended with {code} instead of {expected}")),
        }
    }

    /// All processes have ended well.
    fn passed(&self) -> Verdict {
        let processes: Vec<_> = self.members.iter().map(Member::pid).collect();
        let files = leftovers::files_of(&processes, self.start).join(", ");
        if !files.is_empty() {
            return Verdict::Leak(format!("it has left {files} behind"));
        }
        match self.entry.counts_checks && self.checks == 0 {
            true => Verdict::Fail("nothing was checked".to_owned()),
            false => Verdict::Pass,
        }
    }

    fn timeout(&self, most: Duration) -> Verdict {
        let living = (0..self.members.len()).filter(|&place| !self.states[place].has_ended);
        let said = living.map(|place| format!("{}{}", self.who(place), self.doing(place)));
        let said = Vec::from_iter(said).join("; ");
        Verdict::Timeout(format!("not over after {} s: {said}", most.as_secs_f64()))
    }

    /// One process has decided the verdict: the others have a moment for what they have to say, and
    /// are killed then.
    fn conclude(&mut self, verdict: Verdict) -> Verdict {
        if !verdict.is_bad() {
            return verdict;
        }
        let until = Instant::now() + LAST_WORDS;
        while self.states.iter().any(|state| !state.has_ended) {
            let left = until.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left) {
                Ok(Event::Ended(place, _)) => self.states[place].has_ended = true,
                Ok(Event::Printed(place, line)) => self.members[place].keep(line),
                Ok(Event::Said(place, Word::Failed(why))) => {
                    self.members[place].keep(format!("failed, too: {why}"));
                }
                Ok(Event::Said(..)) => {}
                Err(_) => break,
            }
        }
        verdict
    }

    fn who(&self, place: usize) -> String {
        match self.entry.processes.len() {
            1 => "the process".to_owned(),
            _ => format!("process {place}"),
        }
    }

    fn doing(&self, place: usize) -> String {
        let state = &self.states[place];
        match (&state.told, &state.doing) {
            (Some(_), _) => " while it waited for the others".to_owned(),
            (None, Some(doing)) => format!(" while it was {doing}"),
            (None, None) => String::new(),
        }
    }
}

/// What the placeholders of an entry stand for.
struct Names {
    number: usize,
    has_hosts: bool,
    ports: BTreeMap<String, u16>,
}

impl Names {
    fn new(number: usize, has_hosts: bool) -> Self {
        Self {
            number,
            has_hosts,
            ports: BTreeMap::new(),
        }
    }

    fn fill(&mut self, process: &Process, place: usize, ready: &str) -> anyhow::Result<Process> {
        let has_hosts = self.has_hosts;
        let mut fill = |text: &String| self.fill_text(text, place, ready);
        let args = process.args.iter();
        let args = args
            .filter(|arg| has_hosts || *arg != SOURCE)
            .map(&mut fill)
            .collect::<Result<_, _>>()?;
        let env = process
            .env
            .iter()
            .map(|(name, value)| Ok((name.clone(), fill(value)?)))
            .collect::<anyhow::Result<_>>()?;
        Ok(Process {
            args,
            env,
            exits: process.exits,
        })
    }

    fn host(&self, place: usize) -> &'static str {
        match self.has_hosts {
            true => Hosts::address(place),
            false => "127.0.0.1",
        }
    }

    fn fill_text(&mut self, text: &str, place: usize, ready: &str) -> anyhow::Result<String> {
        let own = format!("fabtests-{}-{}", std::process::id(), self.number);
        let text = text.replace("{name}", &own).replace("{ready}", ready);
        let text = text.replace(SOURCE, "-s={here}");
        let text = text.replace("{here}", self.host(place));
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

/// What only processes on two hosts are told.
const SOURCE: &str = "{source}";

/// A port that nobody listens at, and that was not given out before.
fn free_port() -> anyhow::Result<u16> {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("no free port")?;
        let port = listener.local_addr()?.port();
        if given.insert(port) {
            return Ok(port);
        }
        ensure!(
            given.len() < MOST_PORTS,
            "{} ports are given out",
            given.len()
        );
    }
}

/// Exit codes of a program whose provider does not have what it needs: `FI_ENODATA`, `FI_ENOSYS`.
const UNAVAILABLE: [i32; 2] = [libc::ENODATA, libc::ENOSYS];
/// The exit code of a program that has panicked.
const PANIC: i32 = 101;
/// More than any run needs, and fewer than there are.
const MOST_PORTS: usize = 20_000;
/// How long to wait for what a process said or printed before it ended.
const LAST_WORDS: Duration = Duration::from_millis(300);
