//! The ping-pong as two commands in two terminals.
//!
//! The server knows only its own address. The client's first message carries the client's address.
//! Each further message announces a run, and both sides run the same loops.

use std::io::Write;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::Args;
use crate::command::baseline::SELVEDGE;
use crate::comparison::{Contestant, Measured, Plan, Runner};
use crate::fabric::{self, BenchEndpoint, BenchOrder, OpenOrder, text_message};
use crate::machine::cpu::{Placement, pin};
use crate::measure::clock::Clock;
use crate::output;
use crate::pair::Side;

/// A message from the client to the server.
#[derive(Debug, Serialize, Deserialize)]
enum ControlMessage {
    /// The client's address, and the message size and window that the server's buffers must fit.
    Hello {
        address: String,
        largest: usize,
        window: usize,
    },
    /// The next run.
    Run(BenchOrder),
    /// The last message.
    Bye,
}

/// The client's side.
#[derive(Debug)]
struct Client {
    endpoint: BenchEndpoint,
    clock: Clock,
}

/// Serves one client from its first message to its last.
///
/// # Errors
/// When the endpoint cannot be opened, an operation fails, or the deadline passes.
pub(super) fn serve(args: &Args) -> anyhow::Result<()> {
    let mut endpoint = open_pinned(args, &args.plan(), Side::Passive)?;
    println!("{}", endpoint.describe()?.address);
    // A script may read the address through a pipe while this process waits.
    std::io::stdout().flush()?;
    if !args.json {
        eprintln!(
            "waiting for: {} pingpong --client {}",
            output::program(),
            endpoint.describe()?.address
        );
    }
    let clock = Clock::calibrate();
    loop {
        match text_message::receive(&mut endpoint, || std::thread::sleep(POLL))? {
            ControlMessage::Hello {
                address,
                largest,
                window,
            } => {
                endpoint.resize(window, largest)?;
                endpoint.set_peer(&address)?;
            }
            ControlMessage::Run(order) => {
                order.check()?;
                fabric::run(&mut endpoint, Side::Passive, clock, order)?;
            }
            ControlMessage::Bye => return Ok(()),
        }
    }
}

/// Opens the client's endpoint and sends its address to the server.
///
/// # Errors
/// When the endpoint cannot be opened or the address cannot be inserted.
pub(super) fn connect(args: &Args, plan: &Plan, server: &str) -> anyhow::Result<Contestant> {
    let mut endpoint = open_pinned(args, plan, Side::Active)?;
    endpoint.set_peer(server)?;
    let opened = endpoint.describe()?;
    let OpenOrder {
        largest, window, ..
    } = plan.open_order(None);
    let address = opened.address.clone();
    text_message::post(
        &mut endpoint,
        &ControlMessage::Hello {
            address,
            largest,
            window,
        },
    )?;
    let client = Client {
        endpoint,
        clock: Clock::calibrate(),
    };
    Ok(Contestant::new(
        SELVEDGE.to_owned(),
        opened,
        Box::new(client),
    ))
}

impl Runner for Client {
    fn run(&mut self, order: BenchOrder) -> anyhow::Result<Measured> {
        text_message::post(&mut self.endpoint, &ControlMessage::Run(order))?;
        let timing = fabric::run(&mut self.endpoint, Side::Active, self.clock, order);
        timing.map(Measured::from_timing)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // After a failed run this send fails too. The server's side of the run fails by itself.
        let _ = text_message::post(&mut self.endpoint, &ControlMessage::Bye);
    }
}

/// Pins this process to its side's core and opens an endpoint.
fn open_pinned(args: &Args, plan: &Plan, side: Side) -> anyhow::Result<BenchEndpoint> {
    let placement = args.placement.resolve()?;
    if let Placement::Pinned(cores) = placement {
        pin(cores[side as usize])?;
    }
    exit_at(args.placement.deadline(), side);
    BenchEndpoint::open(&plan.open_order(args.provider.clone()), placement.idle())
}

/// Ends this process at the deadline.
fn exit_at(deadline: Instant, side: Side) {
    std::thread::spawn(move || {
        std::thread::sleep(deadline.saturating_duration_since(Instant::now()));
        let program = output::program();
        eprintln!(
            "{program}: the {side} process reached its deadline: allow more time with --timeout"
        );
        std::process::exit(1);
    });
}

/// Interval at which a waiting server polls: too short for the client to notice, and long enough
/// for other processes on the core.
const POLL: Duration = Duration::from_millis(1);
