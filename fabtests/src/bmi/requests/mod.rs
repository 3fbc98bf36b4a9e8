//! One server and many clients that send it requests: who is served how often, by BMI and by the
//! fabric below it.
//!
//! A request is a message that the server does not expect, its answer an empty one that the client
//! does. Both faces do the same: the raw one with untagged messages into multi-receive buffers, and
//! tagged ones back.

mod face;
mod raw;

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::ensure;
use selvedge_testkit::process::Process;
use serde::Serialize;

/// What requests are sent over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Face {
    /// BMI's unexpected and expected messages.
    Bmi,
    /// The endpoint below.
    Raw,
}

impl fmt::Display for Face {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bmi => "bmi",
            Self::Raw => "raw",
        })
    }
}

/// Who asks, and how much.
#[derive(Clone, Copy, Debug)]
pub struct Crowd {
    /// Processes.
    pub clients: usize,
    /// Bytes of a request.
    pub size: usize,
    /// Requests that each has on the way at most.
    pub window: usize,
}

/// What a crowd of clients got.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Served {
    /// Requests in all, per second.
    pub requests_per_s: f64,
    /// Of the client that was served least.
    pub least: u64,
    /// Of the one that was served most.
    pub most: u64,
}

/// How a client is started; no part of the command line for people.
#[derive(Clone, Debug, clap::Args)]
pub struct ClientArgs {
    /// What it talks
    #[arg(value_enum)]
    face: Face,
    /// The method
    method: String,
    /// The server
    address: String,
    /// Bytes of a request
    size: usize,
    /// How many requests it has on the way at most
    window: usize,
}

/// A server, of either face.
trait Server {
    /// What clients find it by.
    fn address(&self) -> anyhow::Result<String>;

    /// Takes the requests that there are, or waits a little for some, and answers each.
    fn turn(&mut self, tally: &mut Tally) -> anyhow::Result<()>;
}

/// How long a server waits for requests, and a client for answers, before it looks around.
const IDLE: Duration = Duration::from_millis(10);
/// Requests that are taken at once, and completions.
const BATCH: usize = 64;

/// How often each client was served, by the server's name for it.
#[derive(Debug, Default)]
struct Tally(HashMap<u64, u64>);

impl Tally {
    fn count(&mut self, client: u64) {
        *self.0.entry(client).or_default() += 1;
    }
}

/// Serves processes of this program over a method for `time`.
///
/// # Errors
/// When a process cannot be started or dies, or the face says so.
pub fn serve(face: Face, method: &str, crowd: Crowd, time: Duration) -> anyhow::Result<Served> {
    match face {
        Face::Bmi => run(&mut face::Server::open(method)?, face, method, crowd, time),
        Face::Raw => run(&mut raw::Server::open(method)?, face, method, crowd, time),
    }
}

fn run(
    server: &mut dyn Server,
    face: Face,
    method: &str,
    crowd: Crowd,
    time: Duration,
) -> anyhow::Result<Served> {
    let address = server.address()?;
    let (face, size, window) = (
        face.to_string(),
        crowd.size.to_string(),
        crowd.window.to_string(),
    );
    let start = |_| Process::start(["bmi-client", &face, method, &address, &size, &window]);
    // Ended before the server is.
    let _crowd: Vec<_> = (0..crowd.clients).map(start).collect::<Result<_, _>>()?;
    let mut tally = Tally::default();
    let patience = Instant::now() + Duration::from_secs(60);
    while tally.0.len() < crowd.clients {
        ensure!(
            Instant::now() < patience,
            "only {} clients came",
            tally.0.len()
        );
        server.turn(&mut tally)?;
    }
    // What was served before all were there is nobody's merit.
    tally.0.values_mut().for_each(|count| *count = 0);
    let begin = Instant::now();
    while begin.elapsed() < time {
        server.turn(&mut tally)?;
    }
    let counts = || tally.0.values().copied();
    Ok(Served {
        requests_per_s: counts().sum::<u64>() as f64 / begin.elapsed().as_secs_f64(),
        least: counts().min().unwrap_or_default(),
        most: counts().max().unwrap_or_default(),
    })
}

/// Sends requests until it is killed.
///
/// # Errors
/// What the face says.
pub fn client(args: &ClientArgs) -> anyhow::Result<()> {
    match args.face {
        Face::Bmi => face::ask(&args.address, args.size, args.window),
        Face::Raw => raw::ask(&args.method, &args.address, args.size, args.window),
    }
}
