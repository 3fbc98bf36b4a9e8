//! The contestants over tarpc and tonic: `bench --service --against tarpc` and `--against tonic`
//! start this program twice, as the two processes of a pair. The order's provider is the library.

mod over_tarpc;
mod over_tonic;
mod server;

use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use clap::{Parser, Subcommand};
use selvedge_bench::clock::Clock;
use selvedge_bench::fabric::{Bench, BenchOrder, OpenOrder, Opened, ends};
use selvedge_bench::pair::Side;
use selvedge_bench::pair::role::{self, Backend};
use selvedge_bench::timing::{Timing, round_trips};
use tokio::runtime::Runtime;

use server::{Address, Requests};

/// Takes part in benchmarks; `bench --against tarpc` and `--against tonic` start this program
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Execute orders from standard input
    Role(role::Args),
}

fn main() -> ExitCode {
    let Command::Role(args) = Cli::parse().command;
    match role::run(&args, Some(open)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("selvedge-bench-rpc: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A library for remote procedure calls.
#[derive(Clone, Copy, Debug)]
enum Library {
    Tarpc,
    Tonic,
}

fn open(order: &OpenOrder) -> anyhow::Result<Box<dyn Backend>> {
    let library = match order.provider.as_deref() {
        Some("tarpc") => Library::Tarpc,
        Some("tonic") => Library::Tonic,
        other => bail!("{other:?} is none of tarpc and tonic"),
    };
    let address = Address::of_this_process();
    let requests = Requests::default();
    let (own, counted) = (address.clone(), requests.clone());
    match library {
        Library::Tarpc => {
            server::start(move |listening| over_tarpc::serve(own, counted, listening))
        }
        Library::Tonic => {
            server::start(move |listening| over_tonic::serve(own, counted, listening))
        }
    }?;
    let runtime = server::runtime()?;
    Ok(Box::new(Rpc {
        library,
        address,
        requests,
        runtime,
        peer: None,
        client: None,
    }))
}

/// A process that calls its peer's procedure and serves its own, which returns its argument.
#[derive(Debug)]
struct Rpc {
    library: Library,
    address: Address,
    /// The requests that this process has served.
    requests: Requests,
    /// Runs the client.
    runtime: Runtime,
    peer: Option<String>,
    client: Option<Client>,
}

#[derive(Debug)]
enum Client {
    Tarpc(over_tarpc::Client),
    Tonic(over_tonic::Client),
}

impl Backend for Rpc {
    fn describe(&self) -> Opened {
        Opened {
            provider: "unix".to_owned(),
            address: self.address.name().to_owned(),
            inject_size: 0,
            open_ns: 0,
        }
    }

    fn set_peer(&mut self, address: &str) -> anyhow::Result<()> {
        self.peer = Some(address.to_owned());
        Ok(())
    }

    fn run(&mut self, side: Side, clock: Clock, order: BenchOrder) -> anyhow::Result<Timing> {
        ensure!(
            matches!(order.bench, Bench::MsgPingpong | Bench::TaggedPingpong),
            "{} is not measured over remote procedure calls",
            order.bench
        );
        match side {
            Side::Active => self.measure(clock, order),
            Side::Passive => {
                self.requests.wait_for(order.counts.total());
                Ok(Timing::default())
            }
        }
    }
}

impl Rpc {
    fn connect(&mut self) -> anyhow::Result<()> {
        let peer = Address::named(self.peer.as_deref().context("no peer")?);
        self.client = Some(match self.library {
            Library::Tarpc => Client::Tarpc(self.runtime.block_on(over_tarpc::connect(&peer))?),
            Library::Tonic => Client::Tonic(self.runtime.block_on(over_tonic::connect(&peer))?),
        });
        Ok(())
    }

    fn measure(&mut self, clock: Clock, order: BenchOrder) -> anyhow::Result<Timing> {
        if self.client.is_none() {
            self.connect()?;
        }
        let client = self.client.as_mut().context("no client")?;
        let (mut bytes, mut number) = (vec![0; order.size], 0);
        round_trips(clock, order.counts, || {
            number += 1;
            ends::write(&mut bytes, number);
            let len = match client {
                Client::Tarpc(client) => {
                    let response = self.runtime.block_on(over_tarpc::call(client, &bytes))?;
                    ends::check(&response, number)?;
                    response.len()
                }
                Client::Tonic(client) => {
                    let response = self.runtime.block_on(over_tonic::call(client, &bytes))?;
                    ends::check(&response, number)?;
                    response.len()
                }
            };
            ensure!(
                len == order.size,
                "a response of {len} bytes, not of {}",
                order.size
            );
            Ok(())
        })
    }
}
