//! The child's side: takes orders until its parent is gone.

use std::fmt;
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
use super::{Order, Ran, Reply, Side};
use crate::clock::Clock;
use crate::cpu::{Idle, pin};
use crate::fabric::{self, BenchOrder, OpenOrder, Opened, Station};
use crate::limits::{EventFds, Ground, Segment, Site, Socket};
use crate::timing::Timing;

/// An implementation other than the endpoint, which runs the same benchmarks in its place.
pub trait Backend: fmt::Debug {
    /// Says under which address the other process finds it.
    fn describe(&self) -> Opened;

    /// Names the peer that messages go to.
    ///
    /// # Errors
    /// When the address names no peer.
    fn set_peer(&mut self, address: &str) -> anyhow::Result<()>;

    /// Takes one side's part in a run, as [`fabric::run`].
    ///
    /// # Errors
    /// What an operation fails with; that there is no such benchmark over this backend.
    fn run(&mut self, side: Side, clock: Clock, order: BenchOrder) -> anyhow::Result<Timing>;
}

/// Opens a [`Backend`] for an order.
pub type OpenBackend = fn(&OpenOrder) -> anyhow::Result<Box<dyn Backend>>;

/// How a child is started; no part of the command line for people.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Which of the two processes to be
    #[arg(long)]
    side: Side,
    /// The process that gives orders
    #[arg(long)]
    parent: i32,
    /// The core to run on
    #[arg(long)]
    core: Option<usize>,
    /// Yield while waiting: both processes share a core
    #[arg(long)]
    yielding: bool,
}

/// Takes orders until the control socket, standard input, is closed. Orders for BMI open `bmi`.
///
/// # Errors
/// When it is not a control socket. What goes wrong with an order is the reply to it.
pub fn run(args: &Args, bmi: Option<OpenBackend>) -> anyhow::Result<()> {
    die_with_parent(args.parent)?;
    if let Some(core) = args.core {
        pin(core)?;
    }
    let stdin = std::io::stdin().as_fd().try_clone_to_owned()?;
    let control = UnixStream::from(stdin);
    let [segment, tcp, unix, own, peer] =
        handover::receive(&control).context("a role is started by this program itself")?;
    let segment = Segment::map(segment)?;
    let mut ground = Ground::new(Site {
        side: args.side,
        idle: if args.yielding {
            Idle::Yield
        } else {
            Idle::Spin
        },
        segment: &segment,
        tcp: Socket::new(tcp)?,
        unix: Socket::new(unix)?,
        eventfd: EventFds { own, peer },
    });
    let mut station = None;
    obey(&control, |order| match order {
        Order::Ready => Ok(Value::Null),
        Order::Probe(probe, counts) => Ok(serde_json::to_value(ground.take(probe, counts)?)?),
        Order::Open(order) => {
            let opened = Open::begin(&order, ground.idle(), bmi)?;
            Ok(serde_json::to_value(station.insert(opened).describe()?)?)
        }
        Order::Peer(address) => {
            open(&mut station)?.set_peer(&address)?;
            Ok(Value::Null)
        }
        Order::Peers(addresses) => {
            open(&mut station)?.fabric()?.set_peers(&addresses)?;
            Ok(Value::Null)
        }
        Order::Bench(order) => {
            let station = open(&mut station)?;
            accounted(|| station.run(args.side, ground.clock(), order))
        }
        Order::Linger(pause) => {
            let station = open(&mut station)?.fabric()?;
            accounted(|| fabric::linger(station, args.side, pause).map(|()| Timing::default()))
        }
    })
}

/// Runs something and says what it took.
fn accounted(run: impl FnOnce() -> anyhow::Result<Timing>) -> anyhow::Result<Value> {
    let now = |clock| -> anyhow::Result<u64> {
        let now = clock_gettime(clock).context("no clock")?;
        Ok(Duration::from(now).as_nanos() as u64)
    };
    let began_ns = now(ClockId::CLOCK_MONOTONIC)?;
    let cpu = now(ClockId::CLOCK_PROCESS_CPUTIME_ID)?;
    let timing = run()?;
    Ok(serde_json::to_value(Ran {
        timing,
        began_ns,
        ended_ns: now(ClockId::CLOCK_MONOTONIC)?,
        cpu_ns: now(ClockId::CLOCK_PROCESS_CPUTIME_ID)? - cpu,
    })?)
}

fn open(station: &mut Option<Open>) -> anyhow::Result<&mut Open> {
    station.as_mut().context("no endpoint is open")
}

/// What is open: an endpoint, or a backend in its place.
#[derive(Debug)]
enum Open {
    Fabric(Box<Station>),
    Owned(Box<OwnedEndpoint>),
    Backend(Box<dyn Backend>),
}

impl Open {
    fn begin(order: &OpenOrder, idle: Idle, bmi: Option<OpenBackend>) -> anyhow::Result<Self> {
        if order.bmi {
            let open =
                bmi.context("this program has no BMI: use `fabtests bench --against bmi`")?;
            return Ok(Self::Backend(open(order)?));
        }
        if order.manner.owned {
            return Ok(Self::Owned(Box::new(OwnedEndpoint::open(order, idle)?)));
        }
        Ok(Self::Fabric(Box::new(Station::open(order, idle)?)))
    }

    fn describe(&mut self) -> anyhow::Result<Opened> {
        match self {
            Self::Fabric(station) => station.describe(),
            Self::Owned(endpoint) => Ok(endpoint.describe()),
            Self::Backend(backend) => Ok(backend.describe()),
        }
    }

    fn fabric(&mut self) -> anyhow::Result<&mut Station> {
        match self {
            Self::Fabric(station) => Ok(station),
            Self::Owned(_) | Self::Backend(_) => {
                bail!("there is such a measurement over raw endpoints alone")
            }
        }
    }

    fn set_peer(&mut self, address: &str) -> anyhow::Result<()> {
        match self {
            Self::Fabric(station) => {
                station.set_peer(address)?;
                station.lay_burden()
            }
            Self::Owned(endpoint) => endpoint.set_peer(address),
            Self::Backend(backend) => backend.set_peer(address),
        }
    }

    fn run(&mut self, side: Side, clock: Clock, order: BenchOrder) -> anyhow::Result<Timing> {
        match self {
            Self::Fabric(station) => fabric::run(station, side, clock, order),
            Self::Owned(endpoint) => endpoint.run(side, clock, order),
            Self::Backend(backend) => backend.run(side, clock, order),
        }
    }
}

/// Replies to every order with what `carry_out` makes of it.
fn obey(
    control: &UnixStream,
    mut carry_out: impl FnMut(Order) -> anyhow::Result<Value>,
) -> anyhow::Result<()> {
    let mut replies = control;
    for line in BufReader::new(control).lines() {
        let order = serde_json::from_str(&line?).context("this is no order")?;
        let reply = match carry_out(order) {
            Ok(value) => Reply::Done(value),
            Err(error) => Reply::Failed(format!("{error:#}")),
        };
        let mut text = serde_json::to_string(&reply)?;
        text.push('\n');
        replies
            .write_all(text.as_bytes())
            .context("the parent is gone")?;
    }
    Ok(())
}

/// Has the kernel kill this process when its parent ends, however that happens.
fn die_with_parent(parent: i32) -> anyhow::Result<()> {
    set_pdeathsig(Signal::SIGKILL).context("cannot tie this process to its parent")?;
    // The parent may have ended before the tie was made.
    ensure!(
        getppid().as_raw() == parent,
        "the parent, process {parent}, is gone"
    );
    Ok(())
}
