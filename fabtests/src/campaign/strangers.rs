//! The campaign `strangers`: processes of another user do their worst to an endpoint whose socket
//! everybody of the machine can connect to, while a pair goes on exchanging messages.

use std::io::{IoSlice, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::sys::socket::{
    Backlog, ControlMessage, MsgFlags, UnixAddr, bind, connect, listen, sendmsg, setsockopt,
    sockopt,
};
use nix::unistd::{Gid, Uid, geteuid, setgid, setgroups, setuid};
use selvedge_testkit::process::{self, Process};
use selvedge_testkit::shm_peer::{packet_socket, rendezvous_of};
use serde::{Deserialize, Serialize};

use super::bystanders::{Bystanders, Exchanges};
use super::echo::Echo;
use super::endpoint::CampaignEndpoint;
use super::part::{self, Part};
use super::report::{Plan, Report, Row};

/// What a stranger does.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// Connects and hangs up without end.
    Flood(Target),
    /// Connects without end, and leaves sockets behind whose last close waits.
    Linger(Target),
    /// Takes these addresses.
    Names(Vec<Target>),
}

/// Where an endpoint listens: the user it belongs to, and its name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Target {
    user: u32,
    name: String,
}

/// The user that strangers become.
const NOBODY: u32 = 65534;
/// Rounds of each row in the short form.
const SHORT: u64 = 1;
/// How long an attack lasts.
const ATTACK: Duration = Duration::from_millis(500);
/// Strangers that flood together.
const FLOODERS: usize = 4;
/// Names that are taken before an endpoint opens: more than it may ask for one after the other.
const NAMES: u32 = 64;

/// Runs the campaign.
///
/// # Errors
/// When it cannot be run.
pub(super) fn intrusions(plan: &Plan) -> anyhow::Result<Report> {
    let mut report = Report::new("strangers", plan);
    if !geteuid().is_root() {
        let why = "strangers: only root can start a process of another user";
        report.skipped.push(why.into());
        return Ok(report);
    }
    type Attempt = fn() -> anyhow::Result<Exchanges>;
    let rows: [(&str, Attempt); 3] = [("flood", flood), ("linger", linger), ("names", names)];
    for (what, attempt) in rows.into_iter().filter(|(what, _)| plan.has(what)) {
        let mut row = Row::new(what);
        let (began, mut done, mut exchanges) = (Instant::now(), 0, Exchanges::default());
        while !plan.is_over(done, SHORT, began) {
            if let Some(during) = row.count(what, attempt()) {
                exchanges.add(during);
            }
            done += 1;
        }
        exchanges.report(&mut row);
        report.add(row);
    }
    Ok(report)
}

fn flood() -> anyhow::Result<Exchanges> {
    attack(FLOODERS, Order::Flood)
}

fn linger() -> anyhow::Result<Exchanges> {
    attack(1, Order::Linger)
}

/// Some strangers attack the target of a pair.
fn attack(strangers: usize, order: fn(Target) -> Order) -> anyhow::Result<Exchanges> {
    let mut pair = Bystanders::open()?;
    let target = Target::of(pair.target());
    let order = Part::Stranger(order(target));
    let strangers = (0..strangers).map(|_| stranger(&order));
    let strangers: Vec<_> = strangers.collect::<anyhow::Result<_>>()?;
    let exchanges = pair.exchange_for(ATTACK)?;
    drop(strangers);
    Ok(exchanges)
}

/// An endpoint opens whose first names are taken.
fn names() -> anyhow::Result<Exchanges> {
    let endpoint = CampaignEndpoint::open(None, &[])?;
    let process = part::hire()?;
    let name = |number| Target::of(&format!("{}:0:{number}", process.pid()));
    let taken = Order::Names((0..NAMES).map(name).collect());
    let _stranger = stranger(&Part::Stranger(taken))?;
    let target = Echo::play_by(process, &endpoint, &[], &[])?;
    Bystanders::connected(endpoint, target)?.exchange_for(Duration::ZERO)
}

/// Starts a stranger, and waits until it has begun.
fn stranger(part: &Part) -> anyhow::Result<Process> {
    let mut stranger = part.start()?;
    stranger.receive::<()>()?;
    Ok(stranger)
}

impl Target {
    fn of(name: &str) -> Self {
        Self {
            user: geteuid().as_raw(),
            name: name.trim_start_matches("fi_shm://").to_owned(),
        }
    }

    fn address(&self) -> anyhow::Result<UnixAddr> {
        Ok(rendezvous_of(self.user, &self.name)?)
    }
}

/// Child: becomes another user and attacks until it is ended.
pub(super) fn play(order: &Order) -> anyhow::Result<()> {
    setgroups(&[]).context("setgroups(2)")?;
    setgid(Gid::from_raw(NOBODY)).context("setgid(2)")?;
    setuid(Uid::from_raw(NOBODY)).context("setuid(2)")?;
    // Becoming another user has cut the tie.
    set_pdeathsig(Signal::SIGKILL).context("cannot tie this process to its parent")?;
    match order {
        Order::Flood(target) => connect_without_end(target),
        Order::Linger(target) => leave_lingering_sockets(target),
        Order::Names(targets) => take_names(targets),
    }
}

fn connect_without_end(target: &Target) -> anyhow::Result<()> {
    let address = target.address()?;
    process::reply(&())?;
    loop {
        // It may be refused: there are many.
        let _ = connect(packet_socket()?.as_raw_fd(), &address);
    }
}

fn leave_lingering_sockets(target: &Target) -> anyhow::Result<()> {
    let address = target.address()?;
    let receiver = TcpListener::bind("127.0.0.1:0")?;
    let mut unread = Vec::new();
    let mut leave = || -> anyhow::Result<()> {
        let sender = TcpStream::connect(receiver.local_addr()?)?;
        unread.push(receiver.accept()?);
        leave_lingering_socket(&address, sender)
    };
    leave()?;
    process::reply(&())?;
    for _ in 0..LINGERING {
        leave()?;
        std::thread::sleep(PAUSE);
    }
    process::next_request::<()>()
}

/// Sockets that are left to an endpoint, and the time between two.
const LINGERING: u32 = 50;
const PAUSE: Duration = Duration::from_millis(5);
/// How long the last close of each waits, in seconds.
const LINGER: i32 = 5;

/// Leaves a socket with unsent bytes in the queue of an endpoint, and nowhere else.
fn leave_lingering_socket(address: &UnixAddr, mut sender: TcpStream) -> anyhow::Result<()> {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: LINGER,
    };
    setsockopt(&sender, sockopt::Linger, &linger)?;
    sender.set_nonblocking(true)?;
    while sender.write(&[0; 1 << 16]).is_ok() {}
    let link = packet_socket()?;
    match connect(link.as_raw_fd(), address) {
        Ok(()) => {}
        Err(nix::errno::Errno::EAGAIN) => return Ok(()),
        Err(error) => bail!("connecting to the target: {error}"),
    }
    let fds = [sender.as_fd().as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&fds)];
    let iov = [IoSlice::new(b"?")];
    let flags = MsgFlags::MSG_NOSIGNAL;
    // It may have been turned away already.
    let _ = sendmsg::<UnixAddr>(link.as_raw_fd(), &iov, &rights, flags, None);
    Ok(())
}

fn take_names(targets: &[Target]) -> anyhow::Result<()> {
    let mut taken = Vec::new();
    for target in targets {
        let socket = packet_socket()?;
        bind(socket.as_raw_fd(), &target.address()?)?;
        listen(&socket, Backlog::new(1)?)?;
        taken.push(socket);
    }
    process::reply(&())?;
    process::next_request::<()>()
}
