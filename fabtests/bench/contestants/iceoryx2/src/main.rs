//! The contestant over iceoryx2: `bench --against iceoryx2` starts it twice, as the two processes
//! of a pair.

mod loops;
mod ports;
mod requests;

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Parser, Subcommand};
use iceoryx2::prelude::{LogLevel, set_log_level};
use selvedge_bench::clock::Clock;
use selvedge_bench::fabric::{Bench, BenchOrder, OpenOrder, Opened};
use selvedge_bench::pair::Side;
use selvedge_bench::pair::role::{self, Backend};
use selvedge_bench::timing::{Timing, round_trips};

use ports::{Participant, Ports};
use requests::Requests;

/// Takes part in benchmarks over iceoryx2; `bench --against iceoryx2` starts this program
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Execute orders from standard input
    Role(role::Args),
    /// Remove the files and the shared memory of processes that have died
    Clean,
}

fn main() -> ExitCode {
    set_log_level(LogLevel::Error);
    let result = match Cli::parse().command {
        Command::Role(args) => role::run(&args, Some(open)),
        Command::Clean => Participant::open().map(|own| own.clean()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("selvedge-bench-iceoryx2: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn open(order: &OpenOrder) -> anyhow::Result<Box<dyn Backend>> {
    Ok(Box::new(Iceoryx2 {
        participant: Participant::open()?,
        uses_requests: order.config.service,
        peer: None,
        ports: None,
        requests: None,
        runs: 0,
    }))
}

/// A process that publishes to one peer and subscribes to that peer's samples.
#[derive(Debug)]
struct Iceoryx2 {
    participant: Participant,
    /// Whether round trips are requests and responses.
    uses_requests: bool,
    /// Name of the peer.
    peer: Option<String>,
    /// The ports of the last run. They stay open until the next run begins, when the peer has
    /// received the last sample.
    ports: Option<Ports>,
    /// The same for requests.
    requests: Option<Requests>,
    /// Number of runs, which both processes count alike.
    runs: u64,
}

impl Backend for Iceoryx2 {
    fn describe(&self) -> Opened {
        Opened {
            provider: "shm".to_owned(),
            address: self.participant.name().to_owned(),
            inject_size: 0,
            open_ns: 0,
        }
    }

    fn set_peer(&mut self, address: &str) -> anyhow::Result<()> {
        self.peer = Some(address.to_owned());
        Ok(())
    }

    fn run(&mut self, side: Side, clock: Clock, order: BenchOrder) -> anyhow::Result<Timing> {
        let peer = self.peer.as_deref().context("no peer")?;
        (self.ports, self.requests) = (None, None);
        self.runs += 1;
        if self.uses_requests {
            let run = (side, self.runs);
            let requests = Requests::open(&self.participant, peer, run, order)?;
            let (requests, mut number) = (self.requests.insert(requests), 0);
            return round_trips(clock, order.counts, || {
                number += 1;
                requests.exchange(order.size, number)
            });
        }
        let ports = Ports::open(&self.participant, peer, self.runs, order)?;
        let ports = self.ports.insert(ports);
        match order.bench {
            Bench::MsgPingpong | Bench::TaggedPingpong => {
                loops::pingpong(ports, side, clock, order)
            }
            Bench::TaggedBw => loops::stream(ports, side, clock, order),
            other => bail!("{other} is not measured over iceoryx2"),
        }
    }
}
