//! The ping-pong as two commands in two terminals.
//!
//! The server knows nothing but its own address. The client's first letter says who it is; then a
//! letter announces each run, and the same loops follow on both sides.

use std::io::Write;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::bench::OWN;
use super::pingpong::Args;
use crate::clock::Clock;
use crate::comparison::{Contestant, Measured, Plan, Runner};
use crate::cpu::{Placement, pin};
use crate::fabric::{self, BenchOrder, OpenOrder, Station, letter};
use crate::output;
use crate::pair::Side;

/// What the client tells the server.
#[derive(Debug, Serialize, Deserialize)]
enum Letter {
    /// Who it is, and what it needs buffers for.
    Hello {
        address: String,
        largest: usize,
        window: usize,
    },
    /// The next run.
    Run(BenchOrder),
    /// That was all.
    Bye,
}

/// The client's end.
#[derive(Debug)]
struct Client {
    station: Station,
    clock: Clock,
}

/// Answers one client from its first letter to its last.
///
/// # Errors
/// When the endpoint does not open, an operation fails, or the time is over.
pub(super) fn serve(args: &Args) -> anyhow::Result<()> {
    let mut station = open(args, &args.plan(), Side::Passive)?;
    println!("{}", station.describe()?.address);
    // A script may read the address through a pipe while this process waits.
    std::io::stdout().flush()?;
    if !args.json {
        eprintln!(
            "waiting for: {} pingpong --client {}",
            output::program(),
            station.describe()?.address
        );
    }
    let clock = Clock::calibrate();
    loop {
        match letter::receive(&mut station, || std::thread::sleep(POLL))? {
            Letter::Hello {
                address,
                largest,
                window,
            } => {
                station.resize(window, largest)?;
                station.set_peer(&address)?;
            }
            Letter::Run(order) => {
                order.check()?;
                fabric::run(&mut station, Side::Passive, clock, order)?;
            }
            Letter::Bye => return Ok(()),
        }
    }
}

/// Opens the client's end and introduces it to the server.
///
/// # Errors
/// When the endpoint does not open or the address is refused.
pub(super) fn connect(args: &Args, plan: &Plan, server: &str) -> anyhow::Result<Contestant> {
    let mut station = open(args, plan, Side::Active)?;
    station.set_peer(server)?;
    let opened = station.describe()?;
    let OpenOrder {
        largest, window, ..
    } = plan.open_order(None);
    let address = opened.address.clone();
    letter::post(
        &mut station,
        &Letter::Hello {
            address,
            largest,
            window,
        },
    )?;
    let client = Client {
        station,
        clock: Clock::calibrate(),
    };
    Ok(Contestant::new(OWN.to_owned(), opened, Box::new(client)))
}

impl Runner for Client {
    fn run(&mut self, order: BenchOrder) -> anyhow::Result<Measured> {
        letter::post(&mut self.station, &Letter::Run(order))?;
        let timing = fabric::run(&mut self.station, Side::Active, self.clock, order);
        timing.map(Measured::of)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // After a failed run the server has nothing to wait for either, and finds out itself.
        let _ = letter::post(&mut self.station, &Letter::Bye);
    }
}

/// Pins this process to its side's core and opens an endpoint.
fn open(args: &Args, plan: &Plan, side: Side) -> anyhow::Result<Station> {
    let placement = args.place.placement()?;
    if let Placement::Pinned(cores) = placement {
        pin(cores[side as usize])?;
    }
    end_at(args.place.deadline(), side);
    Station::open(&plan.open_order(args.provider.clone()), placement.idle())
}

/// Ends this process at a time, whatever it waits for then.
fn end_at(deadline: Instant, side: Side) {
    std::thread::spawn(move || {
        std::thread::sleep(deadline.saturating_duration_since(Instant::now()));
        let program = output::program();
        eprintln!("{program}: time is over for the {side} process: allow more with --timeout");
        std::process::exit(1);
    });
}

/// How often a waiting server looks: a client notices none of it, nor do others on the core.
const POLL: Duration = Duration::from_millis(1);
