//! Benchmark of many clients that send requests to one server, over BMI or over the endpoint below
//! BMI. The result shows how evenly the server serves the clients.
//!
//! Over BMI, a request is an unexpected message and its response an empty expected message. Over
//! the endpoint, the server receives requests as untagged messages into multi-receive buffers, and
//! responds with tagged messages.

mod over_bmi;
mod over_endpoint;
mod server;

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::ensure;
use selvedge_testkit::process::Process;
use serde::Serialize;

use self::server::{Counts, Server};

/// The interface that carries the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Interface {
    /// BMI's unexpected and expected messages.
    Bmi,
    /// The endpoint below BMI.
    Raw,
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bmi => "bmi",
            Self::Raw => "raw",
        })
    }
}

/// The clients and their requests.
#[derive(Clone, Copy, Debug)]
pub struct Clients {
    /// Number of client processes.
    pub count: usize,
    /// Bytes of a request.
    pub size: usize,
    /// Maximum number of outstanding requests of each client.
    pub window: usize,
}

/// The results of all clients.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Served {
    /// Requests of all clients, per second.
    pub requests_per_s: f64,
    /// Requests of the client that was served least.
    pub least: u64,
    /// Requests of the client that was served most.
    pub most: u64,
}

/// Arguments of a client process, which the server starts itself.
#[derive(Clone, Debug, clap::Args)]
pub struct ClientArgs {
    /// The interface
    #[arg(value_enum)]
    interface: Interface,
    /// The method
    method: String,
    /// The address of the server
    address: String,
    /// Bytes of a request
    size: usize,
    /// Maximum number of outstanding requests
    window: usize,
}

/// Serves client processes over a method for `time`.
///
/// # Errors
/// A process cannot be started or ends early, or the interface fails.
pub fn serve(
    interface: Interface,
    method: &str,
    clients: Clients,
    time: Duration,
) -> anyhow::Result<Served> {
    match interface {
        Interface::Bmi => run(
            &mut over_bmi::Server::open(method)?,
            interface,
            method,
            clients,
            time,
        ),
        Interface::Raw => run(
            &mut over_endpoint::Server::open(method)?,
            interface,
            method,
            clients,
            time,
        ),
    }
}

fn run(
    server: &mut dyn Server,
    interface: Interface,
    method: &str,
    clients: Clients,
    time: Duration,
) -> anyhow::Result<Served> {
    let address = server.address()?;
    let (interface, size, window) = (
        interface.to_string(),
        clients.size.to_string(),
        clients.window.to_string(),
    );
    let start = |_| Process::start(["bmi-client", &interface, method, &address, &size, &window]);
    // The clients are killed before the server ends.
    let _processes: Vec<_> = (0..clients.count).map(start).collect::<Result<_, _>>()?;
    let mut counts = Counts::default();
    let deadline = Instant::now() + Duration::from_secs(60);
    while counts.0.len() < clients.count {
        ensure!(
            Instant::now() < deadline,
            "only {} clients have connected within a minute",
            counts.0.len()
        );
        server.serve_requests(&mut counts)?;
    }
    // Requests before all clients are connected do not count.
    counts.0.values_mut().for_each(|count| *count = 0);
    let begin = Instant::now();
    while begin.elapsed() < time {
        server.serve_requests(&mut counts)?;
    }
    let values = || counts.0.values().copied();
    Ok(Served {
        requests_per_s: values().sum::<u64>() as f64 / begin.elapsed().as_secs_f64(),
        least: values().min().unwrap_or_default(),
        most: values().max().unwrap_or_default(),
    })
}

/// Sends requests until this process is killed.
///
/// # Errors
/// The error of the interface.
pub fn run_client(args: &ClientArgs) -> anyhow::Result<()> {
    match args.interface {
        Interface::Bmi => over_bmi::send_requests(&args.address, args.size, args.window),
        Interface::Raw => {
            over_endpoint::send_requests(&args.method, &args.address, args.size, args.window)
        }
    }
}
