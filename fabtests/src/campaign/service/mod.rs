//! The campaign `service`: clients and servers of the service layer are killed or stopped amid
//! requests, and every request is accounted for.
//!
//! A request with a response was handled once, by the server that has responded, and the response
//! is the one to this request. A request without a response has an error in time, and was handled
//! at most once. The other processes go on, and keep no descriptors.

mod accounts;
mod journal;
mod payload;
mod processes;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use selvedge_testkit::process::Process;
use selvedge_testkit::random::Random;
use selvedge_testkit::timeout::{Timeout, until};
use selvedge_testkit::usage::{Usage, wait_for_no_sockets};

use self::accounts::Accounts;
use self::journal::{Journal, Step};
use self::processes::{ClientConfig, ServerConfig};
use super::report::{Plan, Report, Row};
use super::role::Role;

pub(super) use self::processes::{ClientConfig as Client, ServerConfig as Server};

/// Attempts of each row in the short form.
const SHORT: u64 = 4;
/// Attempts after which the processes end, and their journal is checked.
const GROUP: u64 = 16;
/// Clients that are not killed.
const STEADY: u32 = 2;
/// Responses that a client has to receive to be seen to go on.
const PROGRESS: usize = 20;
/// The deadline of requests where processes are killed: an error comes from the end of the
/// connection, long before.
const LONG_TIMEOUT_MS: u64 = 60_000;
/// The deadline of requests where processes are stopped, for as long as twice this time.
const SHORT_TIMEOUT_MS: u64 = 300;
/// Maximum time in microseconds between a target's first response and its fault.
const MAX_DELAY: u64 = 10_000;

/// Descriptors that a process may have more than before the first fault, for messages that move in
/// another way. One descriptor for each fault exceeds it in a group of attempts.
const SLACK: usize = 4;

/// The fault of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    KillClient,
    KillServer,
    StopClient,
    StopServer,
}

const FAULTS: [(&str, Fault); 4] = [
    ("kill-client", Fault::KillClient),
    ("kill-server", Fault::KillServer),
    ("stop-client", Fault::StopClient),
    ("stop-server", Fault::StopServer),
];

/// Runs the campaign `service`.
///
/// # Errors
/// The campaign cannot be run.
pub(super) fn run(plan: &Plan) -> anyhow::Result<Report> {
    let mut report = Report::new("service", plan);
    for transport in ["shm", "tcp"] {
        for (name, fault) in FAULTS {
            let name = format!("{name}-{transport}");
            if plan.includes(&name) {
                report.add(run_row(plan, &name, fault, transport)?);
            }
        }
    }
    Ok(report)
}

fn run_row(plan: &Plan, name: &str, fault: Fault, transport: &str) -> anyhow::Result<Row> {
    let mut row = Row::new(name);
    let mut random = plan.random(name);
    let (began, mut done) = (Instant::now(), 0);
    let mut totals = Accounts::default();
    while !plan.is_over(done, SHORT, began) {
        let id = format!("service-{name}-{}-{done}", std::process::id());
        let mut group = Group::start(&id, fault, transport)?;
        let mut has_failed = false;
        while !has_failed && !plan.is_over(done, SHORT, began) {
            let attempt = group.attempt(fault, &mut random);
            has_failed = row.count(&format!("attempt {done}"), attempt).is_none();
            done += 1;
            if done % GROUP == 0 {
                break;
            }
        }
        if let Some(accounts) = row.count("at the end", group.end(fault)) {
            totals.requests += accounts.requests;
            totals.responses += accounts.responses;
            totals.failures += accounts.failures;
        }
    }
    for (figure, value) in [
        ("requests", totals.requests),
        ("responses", totals.responses),
        ("failures", totals.failures),
    ] {
        row.figures.insert(figure, value as f64);
    }
    Ok(row)
}

/// The processes of a row.
#[derive(Debug)]
struct Group {
    journal: Journal,
    /// The address of every server of the row, one after another.
    address: String,
    server: Process,
    /// The number of servers that were started.
    servers: u64,
    clients: Vec<Process>,
    /// The number of clients that were started.
    started: u32,
    killed: BTreeSet<u32>,
    timeout_ms: u64,
    /// The resources of the server and the steady clients before the first fault.
    before: Vec<Usage>,
}

impl Group {
    fn start(id: &str, fault: Fault, transport: &str) -> anyhow::Result<Self> {
        let journal = Journal::create(id)?;
        let address = match transport {
            "shm" => format!("shm://{id}"),
            _ => "tcp://127.0.0.1:0".to_owned(),
        };
        let (server, address) = start_server(&journal, &address, 1)?;
        let timeout_ms = match fault {
            Fault::KillClient | Fault::KillServer => LONG_TIMEOUT_MS,
            Fault::StopClient | Fault::StopServer => SHORT_TIMEOUT_MS,
        };
        let mut group = Self {
            journal,
            address,
            server,
            servers: 1,
            clients: Vec::new(),
            started: 0,
            killed: BTreeSet::new(),
            timeout_ms,
            before: Vec::new(),
        };
        for _ in 0..STEADY {
            let client = group.start_client()?;
            group.clients.push(client);
        }
        group.wait_for_responses(&Vec::from_iter(0..STEADY), 10 * PROGRESS)?;
        group.before = group.usage()?;
        Ok(group)
    }

    /// Starts the next client, whose number is one less than the number of all clients then.
    fn start_client(&mut self) -> anyhow::Result<Process> {
        let number = self.started;
        self.started += 1;
        let config = ClientConfig {
            address: self.address.clone(),
            number,
            timeout_ms: self.timeout_ms,
            journal: self.journal.path().to_owned(),
        };
        config.start()
    }

    /// Injects one fault at a random instant. All other processes go on meanwhile and afterwards.
    fn attempt(&mut self, fault: Fault, random: &mut Random) -> anyhow::Result<()> {
        let delay = Duration::from_micros(random.below(MAX_DELAY));
        match fault {
            Fault::KillClient => {
                let number = self.started;
                let client = self.start_client()?;
                self.killed.insert(number);
                self.wait_for_responses(&[number], 1)?;
                std::thread::sleep(delay);
                client.signal(Signal::SIGKILL)?;
                ensure!(client.was_killed()?, "client {number} had already ended");
                self.wait_for_progress(0..STEADY)
            }
            Fault::KillServer => {
                std::thread::sleep(delay);
                self.server.signal(Signal::SIGKILL)?;
                self.servers += 1;
                let (server, _) = start_server(&self.journal, &self.address, self.servers)?;
                let killed = std::mem::replace(&mut self.server, server);
                ensure!(killed.was_killed()?, "the server had already ended");
                self.wait_for_progress(0..STEADY)
            }
            Fault::StopClient => {
                std::thread::sleep(delay);
                self.clients[0].signal(Signal::SIGSTOP)?;
                self.wait_for_progress(1..STEADY)?;
                self.clients[0].signal(Signal::SIGCONT)?;
                self.wait_for_progress(0..STEADY)
            }
            Fault::StopServer => {
                std::thread::sleep(delay);
                self.server.signal(Signal::SIGSTOP)?;
                std::thread::sleep(Duration::from_millis(random.below(2 * SHORT_TIMEOUT_MS)));
                self.server.signal(Signal::SIGCONT)?;
                self.wait_for_progress(0..STEADY)
            }
        }
    }

    /// Waits until each of these clients has received more responses.
    fn wait_for_progress(&mut self, clients: std::ops::Range<u32>) -> anyhow::Result<()> {
        self.wait_for_responses(&Vec::from_iter(clients), PROGRESS)
    }

    /// Waits until each of these clients has received `count` responses from now on.
    fn wait_for_responses(&mut self, clients: &[u32], count: usize) -> anyhow::Result<()> {
        let seen = self.journal.read()?.len();
        let mut timeout = Timeout::new("responses to clients of the service layer");
        loop {
            let notes = &self.journal.read()?[seen..];
            let has_enough = clients.iter().all(|client| {
                let is_response = |note: &&journal::Note| {
                    matches!(note.step, Step::Responded(_)) && note.request.client() == *client
                };
                notes.iter().filter(is_response).count() >= count
            });
            if has_enough {
                return Ok(());
            }
            timeout.check()?;
            self.check_processes()?;
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// A process that has found a violation has ended, and its standard error has the reason.
    fn check_processes(&self) -> anyhow::Result<()> {
        // No process sends anything after its start.
        ensure!(!self.server.is_readable()?, "the server has ended");
        for (number, client) in self.clients.iter().enumerate() {
            ensure!(!client.is_readable()?, "client {number} has ended");
        }
        Ok(())
    }

    /// The resources of the server and the steady clients.
    fn usage(&self) -> anyhow::Result<Vec<Usage>> {
        let processes = [&self.server].into_iter().chain(&self.clients);
        processes
            .map(|process| Usage::of(&process.pid().to_string()))
            .collect()
    }

    /// Checks the resources of the processes, ends them, and checks their journal.
    fn end(mut self, fault: Fault) -> anyhow::Result<Accounts> {
        // A server that has replaced a killed one is compared with that one: both serve the same
        // clients. A client that connects has other descriptors for a moment.
        until("the release of descriptors of the service layer", || {
            let now = self.usage()?;
            let grown = now.iter().zip(&self.before);
            let is_released = grown
                .clone()
                .all(|(now, before)| now.fds <= before.fds + SLACK);
            Ok(is_released.then_some(()))
        })
        .with_context(|| {
            format!(
                "{:?} has grown to {:?} by {fault:?}",
                self.before,
                self.usage()
            )
        })?;
        for mut client in std::mem::take(&mut self.clients) {
            client.send(&"end")?;
            client.join()?;
        }
        self.server.send(&"end")?;
        let Self {
            mut journal,
            server,
            killed,
            address,
            ..
        } = self;
        server.join()?;
        if let Some(name) = address.strip_prefix("shm://") {
            wait_for_no_sockets(name)?;
        }
        Accounts::check(journal.read()?, &killed)
    }
}

/// Starts the server with this number; returns it and its address.
fn start_server(
    journal: &Journal,
    address: &str,
    number: u64,
) -> anyhow::Result<(Process, String)> {
    let config = ServerConfig {
        address: address.to_owned(),
        number,
        journal: journal.path().to_owned(),
    };
    let mut process = config.start()?;
    let address = process.receive()?;
    Ok((process, address))
}
