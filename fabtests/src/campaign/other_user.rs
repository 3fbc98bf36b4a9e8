//! The campaign `other-user`: processes of another user attack an endpoint, whose socket every
//! process of the machine can connect to. Meanwhile the endpoint and its peer exchange messages.

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
use selvedge_testkit::shm_peer::{packet_socket, socket_address_of_user};
use serde::{Deserialize, Serialize};

use super::echo::Echo;
use super::echo::bystanders::{Bystanders, Exchanges};
use super::endpoint::CampaignEndpoint;
use super::report::{Plan, Report, Row};
use super::role::{self, Role};

/// The action of an attacking process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Config {
    /// Connects and disconnects again and again, until it is killed.
    Flood(TargetAddr),
    /// Connects again and again. Through each connection it sends the descriptor of a TCP socket
    /// whose last close blocks for a while (`SO_LINGER`).
    Linger(TargetAddr),
    /// Binds these addresses, which an endpoint is going to try.
    Names(Vec<TargetAddr>),
}

/// The address of an endpoint: its user id and its name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TargetAddr {
    user: u32,
    name: String,
}

/// The user id of the attacking processes.
const OTHER_USER: u32 = 65534;
/// The number of attempts of each row, if the command line does not give one.
const SHORT: u64 = 1;
/// Duration of an attack.
const ATTACK: Duration = Duration::from_millis(500);
/// The number of processes that connect at the same time in the row `flood`.
const CONNECTING: usize = 4;
/// The number of names that are bound before an endpoint opens: more than it tries in succession.
const NAMES: u32 = 64;

/// Runs the campaign.
///
/// # Errors
/// The campaign cannot be run.
pub(super) fn run(plan: &Plan) -> anyhow::Result<Report> {
    let mut report = Report::new("other-user", plan);
    if !geteuid().is_root() {
        let why = "other-user: only root can start a process of another user";
        report.skipped.push(why.into());
        return Ok(report);
    }
    type Attempt = fn() -> anyhow::Result<Exchanges>;
    let rows: [(&str, Attempt); 3] = [
        ("flood", flood),
        ("linger", linger),
        ("names", open_with_taken_names),
    ];
    for (name, attempt) in rows.into_iter().filter(|(name, _)| plan.includes(name)) {
        let mut row = Row::new(name);
        let (began, mut done, mut exchanges) = (Instant::now(), 0, Exchanges::default());
        while !plan.is_over(done, SHORT, began) {
            if let Some(during) = row.count(name, attempt()) {
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
    attack(CONNECTING, Config::Flood)
}

fn linger() -> anyhow::Result<Exchanges> {
    attack(1, Config::Linger)
}

/// Opens a pair of endpoints, whose target a number of processes attack. Returns the exchanges of
/// the pair during the attack.
fn attack(processes: usize, config: fn(TargetAddr) -> Config) -> anyhow::Result<Exchanges> {
    let mut pair = Bystanders::open()?;
    let target = TargetAddr::of(pair.target());
    let config = config(target);
    let attackers = (0..processes).map(|_| start(&config));
    let attackers: Vec<_> = attackers.collect::<anyhow::Result<_>>()?;
    let exchanges = pair.exchange_for(ATTACK)?;
    drop(attackers);
    Ok(exchanges)
}

/// Opens an endpoint whose first names are bound by a process of another user already.
fn open_with_taken_names() -> anyhow::Result<Exchanges> {
    let endpoint = CampaignEndpoint::open(None, &[])?;
    let process = role::start_process()?;
    let name = |number| TargetAddr::of(&format!("{}:0:{number}", process.pid()));
    let taken = Config::Names((0..NAMES).map(name).collect());
    let _attacker = start(&taken)?;
    let target = Echo::start_in(process, &endpoint, &[], &[])?;
    Bystanders::connect(endpoint, target)?.exchange_for(Duration::ZERO)
}

/// Starts a process of another user, and waits until its attack has begun.
fn start(config: &Config) -> anyhow::Result<Process> {
    let mut process = config.start()?;
    process.receive::<()>()?;
    Ok(process)
}

impl TargetAddr {
    fn of(name: &str) -> Self {
        Self {
            user: geteuid().as_raw(),
            name: name.trim_start_matches("fi_shm://").to_owned(),
        }
    }

    fn address(&self) -> anyhow::Result<UnixAddr> {
        Ok(socket_address_of_user(self.user, &self.name)?)
    }
}

impl Role for Config {
    const NAME: &'static str = "other_user";

    /// Child process: becomes another user and attacks until it is killed.
    fn execute(&self) -> anyhow::Result<()> {
        setgroups(&[]).context("setgroups(2)")?;
        setgid(Gid::from_raw(OTHER_USER)).context("setgid(2)")?;
        setuid(Uid::from_raw(OTHER_USER)).context("setuid(2)")?;
        // Changing the user has cleared the parent-death signal.
        set_pdeathsig(Signal::SIGKILL).context("cannot tie this process to its parent")?;
        match self {
            Self::Flood(target) => connect_without_end(target),
            Self::Linger(target) => leave_lingering_sockets(target),
            Self::Names(targets) => take_names(targets),
        }
    }
}

fn connect_without_end(target: &TargetAddr) -> anyhow::Result<()> {
    let address = target.address()?;
    process::reply(&())?;
    loop {
        // An error is expected: the target may refuse a connection when it has too many.
        let _ = connect(packet_socket()?.as_raw_fd(), &address);
    }
}

fn leave_lingering_sockets(target: &TargetAddr) -> anyhow::Result<()> {
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

/// The number of lingering sockets after the first one.
const LINGERING: u32 = 50;
/// The time between two of them.
const PAUSE: Duration = Duration::from_millis(5);
/// The linger timeout of each socket, in seconds: the longest time that its last close blocks.
const LINGER_TIMEOUT: i32 = 5;

/// Fills the send buffer of `sender`, sends its descriptor to an endpoint, and closes it here. The
/// queue of the endpoint's socket then has the last descriptor, so that the endpoint makes the last
/// close.
fn leave_lingering_socket(address: &UnixAddr, mut sender: TcpStream) -> anyhow::Result<()> {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: LINGER_TIMEOUT,
    };
    setsockopt(&sender, sockopt::Linger, &linger)?;
    sender.set_nonblocking(true)?;
    while sender.write(&[0; 1 << 16]).is_ok() {}
    let connection = packet_socket()?;
    match connect(connection.as_raw_fd(), address) {
        Ok(()) => {}
        Err(nix::errno::Errno::EAGAIN) => return Ok(()),
        Err(error) => bail!("cannot connect to the target: {error}"),
    }
    let fds = [sender.as_fd().as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&fds)];
    let iov = [IoSlice::new(b"?")];
    let flags = MsgFlags::MSG_NOSIGNAL;
    // The target may have closed the connection already.
    let _ = sendmsg::<UnixAddr>(connection.as_raw_fd(), &iov, &rights, flags, None);
    Ok(())
}

/// Binds the addresses of `targets`, until the process is killed.
fn take_names(targets: &[TargetAddr]) -> anyhow::Result<()> {
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
