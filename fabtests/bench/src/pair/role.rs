//! The child process: executes orders until its parent exits.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::getppid;
use serde_json::Value;

use super::handover;
use super::owned::OwnedEndpoint;
use super::service::Service;
use super::socket_ring::SocketRing;
use super::{Order, Reply, RunResult, Side};
use crate::fabric::{self, BenchEndpoint, BenchOrder, OpenOrder, Opened};
use crate::limits::{EventFds, ProbeContext, ProbeResources, Segment, Socket};
use crate::machine::cpu::{Idle, pin};
use crate::measure::clock::Clock;
use crate::measure::timing::Timing;

pub use super::backend::{Backend, OpenBackend};

/// Arguments of a child process; not for users.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The side of this process: active or passive
    #[arg(long)]
    side: Side,
    /// The process ID of the parent
    #[arg(long)]
    parent: i32,
    /// The core to run on
    #[arg(long)]
    core: Option<usize>,
    /// Yield while waiting: both processes share a core
    #[arg(long)]
    yielding: bool,
}

/// Executes orders from standard input, the control socket, until it is closed. `open_backend`
/// opens the program's backend for orders that use it.
///
/// # Errors
/// When standard input is not a control socket. A reply reports the failure of its order.
pub fn run(args: &Args, open_backend: Option<OpenBackend>) -> anyhow::Result<()> {
    die_with_parent(args.parent)?;
    if let Some(core) = args.core {
        pin(core)?;
    }
    let stdin = std::io::stdin().as_fd().try_clone_to_owned()?;
    let control = UnixStream::from(stdin);
    let [segment, tcp, unix, local, peer] =
        handover::receive(&control).context("only this program starts the role command")?;
    let segment = Segment::map(segment)?;
    let mut probe_context = ProbeContext::new(ProbeResources {
        side: args.side,
        idle: if args.yielding {
            Idle::Yield
        } else {
            Idle::Spin
        },
        segment: &segment,
        tcp: Socket::new(tcp)?,
        unix: Socket::new(unix)?,
        eventfd: EventFds { local, peer },
    });
    let mut endpoint = None;
    serve_orders(&control, |order| match order {
        Order::Ready => Ok(Value::Null),
        Order::Probe(probe, counts) => Ok(serde_json::to_value(probe_context.run(probe, counts)?)?),
        Order::Open(order) => {
            let opened = RoleEndpoint::open(&order, probe_context.idle(), open_backend)?;
            Ok(serde_json::to_value(endpoint.insert(opened).describe()?)?)
        }
        Order::Peer(address) => {
            open_endpoint(&mut endpoint)?.set_peer(&address)?;
            Ok(Value::Null)
        }
        Order::Peers(addresses) => {
            open_endpoint(&mut endpoint)?.set_peers(&addresses)?;
            Ok(Value::Null)
        }
        Order::Bench(order) => {
            let endpoint = open_endpoint(&mut endpoint)?;
            run_with_cpu_time(|| endpoint.run(args.side, probe_context.clock(), order))
        }
        Order::Linger(pause) => {
            let endpoint = open_endpoint(&mut endpoint)?.fabric()?;
            run_with_cpu_time(|| {
                fabric::linger(endpoint, args.side, pause).map(|()| Timing::default())
            })
        }
    })
}

/// Runs a benchmark, and returns a [`RunResult`] with its timing, start, end and processor time.
fn run_with_cpu_time(run: impl FnOnce() -> anyhow::Result<Timing>) -> anyhow::Result<Value> {
    let now = |clock| -> anyhow::Result<u64> {
        let now = clock_gettime(clock).context("cannot read a clock")?;
        Ok(Duration::from(now).as_nanos() as u64)
    };
    let began_ns = now(ClockId::CLOCK_MONOTONIC)?;
    let cpu = now(ClockId::CLOCK_PROCESS_CPUTIME_ID)?;
    let timing = run()?;
    Ok(serde_json::to_value(RunResult {
        timing,
        began_ns,
        ended_ns: now(ClockId::CLOCK_MONOTONIC)?,
        cpu_ns: now(ClockId::CLOCK_PROCESS_CPUTIME_ID)? - cpu,
    })?)
}

fn open_endpoint(endpoint: &mut Option<RoleEndpoint>) -> anyhow::Result<&mut RoleEndpoint> {
    endpoint.as_mut().context("no endpoint is open")
}

/// The open endpoint of this process, or a backend in its place.
#[derive(Debug)]
enum RoleEndpoint {
    Fabric(Box<BenchEndpoint>),
    Owned(Box<OwnedEndpoint>),
    Backend(Box<dyn Backend>),
}

impl RoleEndpoint {
    fn open(
        order: &OpenOrder,
        idle: Idle,
        open_backend: Option<OpenBackend>,
    ) -> anyhow::Result<Self> {
        if order.backend {
            let open_backend = open_backend
                .context("this program has no BMI: use `fabtests bench --against bmi`")?;
            return Ok(Self::Backend(open_backend(order)?));
        }
        if order.sockets {
            return Ok(Self::Backend(Box::new(SocketRing::open()?)));
        }
        if order.config.service {
            return Ok(Self::Backend(Box::new(Service::open(order, idle)?)));
        }
        if order.config.owned {
            return Ok(Self::Owned(Box::new(OwnedEndpoint::open(order, idle)?)));
        }
        Ok(Self::Fabric(Box::new(BenchEndpoint::open(order, idle)?)))
    }

    fn describe(&mut self) -> anyhow::Result<Opened> {
        match self {
            Self::Fabric(endpoint) => endpoint.describe(),
            Self::Owned(endpoint) => Ok(endpoint.describe()),
            Self::Backend(backend) => Ok(backend.describe()),
        }
    }

    fn fabric(&mut self) -> anyhow::Result<&mut BenchEndpoint> {
        match self {
            Self::Fabric(endpoint) => Ok(endpoint),
            Self::Owned(_) | Self::Backend(_) => {
                bail!("this measurement needs a raw endpoint")
            }
        }
    }

    fn set_peer(&mut self, address: &str) -> anyhow::Result<()> {
        match self {
            Self::Fabric(endpoint) => {
                endpoint.set_peer(address)?;
                fabric::add_background_load(endpoint)
            }
            Self::Owned(endpoint) => endpoint.add_peer(address),
            Self::Backend(backend) => backend.set_peer(address),
        }
    }

    fn set_peers(&mut self, addresses: &[String]) -> anyhow::Result<()> {
        match self {
            Self::Owned(endpoint) => addresses
                .iter()
                .try_for_each(|address| endpoint.add_peer(address)),
            _ => self.fabric()?.set_peers(addresses),
        }
    }

    fn run(&mut self, side: Side, clock: Clock, order: BenchOrder) -> anyhow::Result<Timing> {
        match self {
            Self::Fabric(endpoint) => fabric::run(endpoint, side, clock, order),
            Self::Owned(endpoint) => endpoint.run(side, clock, order),
            Self::Backend(backend) => backend.run(side, clock, order),
        }
    }
}

/// Executes each order from the socket with `execute`, and replies to it.
fn serve_orders(
    control: &UnixStream,
    mut execute: impl FnMut(Order) -> anyhow::Result<Value>,
) -> anyhow::Result<()> {
    let mut replies = control;
    for line in BufReader::new(control).lines() {
        let order = serde_json::from_str(&line?).context("cannot parse an order")?;
        let reply = match execute(order) {
            Ok(value) => Reply::Done(value),
            Err(error) => Reply::Failed(format!("{error:#}")),
        };
        let mut text = serde_json::to_string(&reply)?;
        text.push('\n');
        replies
            .write_all(text.as_bytes())
            .context("the parent has closed the control socket")?;
    }
    Ok(())
}

/// Makes the kernel kill this process when the parent exits.
fn die_with_parent(parent: i32) -> anyhow::Result<()> {
    set_pdeathsig(Signal::SIGKILL).context("cannot tie this process to its parent")?;
    // The parent may have exited before the call.
    ensure!(
        getppid().as_raw() == parent,
        "the parent, process {parent}, has exited"
    );
    Ok(())
}
