//! Two processes that execute orders: the *active* one measures, the *passive* one responds.
//!
//! Both are children of this process, or of a launcher that is its child. This process blocks while
//! they work. The standard input of each is one end of a socket, which carries orders and replies
//! as lines of JSON. The pair keeps the last lines of a child's output and adds them to the error
//! when the child dies.

mod backend;
pub(crate) mod exchange;
mod handover;
mod launched;
mod order;
mod owned;
pub mod role;
mod service;
mod side;
mod socket_ring;

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use nix::sys::eventfd::{EfdFlags, EventFd};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::fabric::{OpenOrder, Opened};
use crate::limits::Segment;
use crate::machine::cpu::Placement;

pub use order::{Order, Reply, RunResult};
pub use side::Side;

/// Both processes. Dropping the pair ends them.
#[derive(Debug)]
pub struct Pair {
    members: [Member; 2],
    /// Both processes, or their launcher.
    children: Vec<Child>,
    events: Receiver<(Side, Event)>,
    deadline: Instant,
}

#[derive(Debug)]
struct Member {
    name: String,
    control: UnixStream,
    printed: VecDeque<String>,
}

#[derive(Debug)]
enum Event {
    Replied(String),
    Printed(String),
    OutputClosed,
    Exited,
}

impl Pair {
    /// Starts this program twice, with its hidden `role` command.
    ///
    /// # Errors
    /// When a process cannot be started or dies at once.
    pub fn start(placement: Placement, deadline: Instant) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        Self::start_program(&program, placement, deadline)
    }

    /// Starts a program twice whose `role` command is [`role::run`].
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_program(
        program: &Path,
        placement: Placement,
        deadline: Instant,
    ) -> anyhow::Result<Self> {
        let mut pair = Self::spawn(deadline, |side| {
            let mut command = Command::new(program);
            command.args(["role", "--side", &side.to_string()]);
            command.args(["--parent", &std::process::id().to_string()]);
            if let Some(cores) = placement.cores() {
                command.args(["--core", &cores[side as usize].to_string()]);
            }
            if placement.is_one_core() {
                command.arg("--yielding");
            }
            command
        })?;
        pair.send_descriptors()?;
        pair.order(&Order::Ready)?;
        Ok(pair)
    }

    /// Starts two processes that execute [`Order`]s from their standard input.
    ///
    /// # Errors
    /// When a process cannot be started.
    pub fn spawn(deadline: Instant, command: impl Fn(Side) -> Command) -> anyhow::Result<Self> {
        let (sender, events) = channel();
        let (active, first) = Member::start(Side::Active, command(Side::Active), &sender)?;
        let (passive, second) = Member::start(Side::Passive, command(Side::Passive), &sender)?;
        Ok(Self {
            members: [active, passive],
            children: vec![first, second],
            events,
            deadline,
        })
    }

    /// Gives the same order to both processes and waits for both. Returns the replies in the order
    /// of [`Side::BOTH`].
    ///
    /// # Errors
    /// When the order fails in a process, a process dies, or the deadline passes. The error for a
    /// dead process contains its last output.
    pub fn order(&mut self, order: &Order) -> anyhow::Result<[Value; 2]> {
        self.order_each([order, order])
    }

    /// As [`Self::order`], and parses the active process's reply.
    ///
    /// # Errors
    /// As [`Self::order`].
    pub fn measure<T: DeserializeOwned>(&mut self, order: &Order) -> anyhow::Result<T> {
        let [active, _] = self.order(order)?;
        serde_json::from_value(active).with_context(|| format!("unexpected reply to {order:?}"))
    }

    /// As [`Self::order`], with a separate order for each process.
    ///
    /// # Errors
    /// As [`Self::order`].
    pub fn order_each(&mut self, orders: [&Order; 2]) -> anyhow::Result<[Value; 2]> {
        for (member, order) in self.members.iter_mut().zip(orders) {
            let mut line = serde_json::to_string(order)?;
            line.push('\n');
            // `next_reply` reports the death of a process with its last output.
            let _ = member.control.write_all(line.as_bytes());
        }
        let mut replies = [None, None];
        while replies.iter().any(Option::is_none) {
            let (side, reply) = self.next_reply(orders[0])?;
            replies[side as usize] = Some(reply);
        }
        Ok(replies.map(Option::unwrap_or_default))
    }

    /// Has both processes open endpoints and insert each other's address; returns the description
    /// of the active side's endpoint.
    ///
    /// # Errors
    /// As [`Self::order`].
    pub fn open(&mut self, order: &OpenOrder) -> anyhow::Result<Opened> {
        let replies = self.order(&Order::Open(order.clone()))?;
        let [active, passive] = replies.map(serde_json::from_value::<Opened>);
        let (active, passive) = (
            active.context("the active process's reply is not an endpoint")?,
            passive.context("the passive process's reply is not an endpoint")?,
        );
        let to_active = Order::Peer(passive.address);
        let to_passive = Order::Peer(active.address.clone());
        self.order_each([&to_active, &to_passive])?;
        Ok(active)
    }

    /// The process ID of the active process, or of the launcher.
    pub fn active_pid(&self) -> u32 {
        self.children[0].id()
    }

    fn next_reply(&mut self, order: &Order) -> anyhow::Result<(Side, Value)> {
        loop {
            let remaining = self.deadline.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(remaining) {
                Ok((side, Event::Replied(line))) => {
                    let name = &self.members[side as usize].name;
                    return match serde_json::from_str(&line) {
                        Ok(Reply::Done(value)) => Ok((side, value)),
                        Ok(Reply::Failed(reason)) => Err(anyhow!("{name}: {reason}")),
                        Err(_) => bail!("{name} replied {line:?} to {order:?}"),
                    };
                }
                Ok((side, Event::Printed(line))) => self.members[side as usize].keep_line(line),
                Ok((_, Event::OutputClosed)) => {}
                Ok((side, Event::Exited)) => return Err(self.exit_error(side)),
                Err(RecvTimeoutError::Timeout) => {
                    bail!(
                        "deadline reached while waiting for {order:?}: allow more time with --timeout"
                    )
                }
                Err(RecvTimeoutError::Disconnected) => bail!("both processes have exited"),
            }
        }
    }

    /// Makes the error for a process that died, with its exit status and its last output.
    fn exit_error(&mut self, side: Side) -> anyhow::Error {
        let deadline = Instant::now() + OUTPUT_TIMEOUT;
        while let Ok((source, event)) = self
            .events
            .recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            match event {
                Event::Printed(line) => self.members[source as usize].keep_line(line),
                Event::OutputClosed if source == side => break,
                Event::OutputClosed | Event::Replied(_) | Event::Exited => {}
            }
        }
        let child = match &mut self.children[..] {
            [launcher] => launcher,
            children => &mut children[side as usize],
        };
        let status = match child.try_wait() {
            Ok(Some(status)) => status.to_string(),
            Ok(None) | Err(_) => "it closed its control socket".to_owned(),
        };
        let member = &self.members[side as usize];
        anyhow!(
            "{} died ({status}); {}",
            member.name,
            last_output(&member.printed)
        )
    }

    /// Sends the shared memory, sockets and eventfds to both processes.
    fn send_descriptors(&mut self) -> anyhow::Result<()> {
        let segment = Segment::create()?;
        let tcp = tcp_pair().context("cannot connect over the loopback interface")?;
        let (unix_active, unix_passive) = UnixStream::pair()?;
        let (unix_active, unix_passive) = (OwnedFd::from(unix_active), OwnedFd::from(unix_passive));
        let wakes = [eventfd()?, eventfd()?];
        let fds: [[BorrowedFd<'_>; handover::COUNT]; 2] = [
            [
                segment.as_fd(),
                tcp[0].as_fd(),
                unix_active.as_fd(),
                wakes[0].as_fd(),
                wakes[1].as_fd(),
            ],
            [
                segment.as_fd(),
                tcp[1].as_fd(),
                unix_passive.as_fd(),
                wakes[1].as_fd(),
                wakes[0].as_fd(),
            ],
        ];
        for (member, fds) in self.members.iter().zip(fds) {
            handover::send(&member.control, &fds)?;
        }
        Ok(())
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.wait_for_exit();
        for child in &mut self.children {
            // The child may have exited already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Member {
    /// Starts a child process, whose standard input is its control socket.
    fn start(
        side: Side,
        command: Command,
        sender: &Sender<(Side, Event)>,
    ) -> anyhow::Result<(Self, Child)> {
        let (control, stdin) = UnixStream::pair().context("cannot create a control socket")?;
        let child = start_child(side, command, OwnedFd::from(stdin).into(), sender)?;
        let name = format!("the {side} process (pid {})", child.id());
        Ok((Self::new(side, name, control, sender)?, child))
    }

    /// A process at the other end of a control socket.
    fn new(
        side: Side,
        name: String,
        control: UnixStream,
        sender: &Sender<(Side, Event)>,
    ) -> anyhow::Result<Self> {
        forward_lines(
            side,
            control.try_clone()?,
            sender,
            Event::Replied,
            Event::Exited,
        );
        Ok(Self {
            name,
            control,
            printed: VecDeque::new(),
        })
    }

    /// Keeps a line that the process has printed for an error message. Prints it as well if the
    /// user asks for the log.
    fn keep_line(&mut self, line: String) {
        if std::env::var_os("FI_LOG_LEVEL").is_some() {
            eprintln!("{}: {line}", self.name);
        }
        if self.printed.len() == KEPT_LINES {
            self.printed.pop_front();
        }
        self.printed.push_back(line);
    }
}

/// Starts a child process whose output is sent as events of this side.
fn start_child(
    side: Side,
    mut command: Command,
    stdin: Stdio,
    sender: &Sender<(Side, Event)>,
) -> anyhow::Result<Child> {
    let (printed, output) = std::io::pipe().context("cannot create a pipe")?;
    command
        .stdin(stdin)
        .stdout(Stdio::from(output.try_clone()?))
        .stderr(Stdio::from(output));
    let child = command
        .spawn()
        .with_context(|| format!("cannot start {:?}", command.get_program()))?;
    // The command still holds the child's ends of its standard input and of the pipe. Without this
    // drop, neither would report that the child has closed it.
    drop(command);
    forward_lines(side, printed, sender, Event::Printed, Event::OutputClosed);
    Ok(child)
}

/// The kept output of a process, as the end of a sentence about it.
fn last_output(printed: &VecDeque<String>) -> String {
    let lines: Vec<_> = printed.iter().map(String::as_str).collect();
    if lines.is_empty() {
        "it printed nothing".to_owned()
    } else {
        format!("it printed last:\n  {}", lines.join("\n  "))
    }
}

/// Starts a thread that sends each line of `source` as an event, and `end` after the last line.
fn forward_lines(
    side: Side,
    source: impl std::io::Read + Send + 'static,
    sender: &Sender<(Side, Event)>,
    event: fn(String) -> Event,
    end: Event,
) {
    let sender = sender.clone();
    std::thread::spawn(move || {
        let lines = BufReader::new(source).split(b'\n').map_while(Result::ok);
        for line in lines {
            let line = String::from_utf8_lossy(&line).into_owned();
            if sender.send((side, event(line))).is_err() {
                return;
            }
        }
        // The send fails once the pair is dropped.
        let _ = sender.send((side, end));
    });
}

fn tcp_pair() -> std::io::Result<[OwnedFd; 2]> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let active = TcpStream::connect(listener.local_addr()?)?;
    let (passive, _) = listener.accept()?;
    active.set_nodelay(true)?;
    passive.set_nodelay(true)?;
    Ok([active.into(), passive.into()])
}

fn eventfd() -> anyhow::Result<OwnedFd> {
    let fd = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC);
    Ok(fd.context("cannot create an eventfd")?.into())
}

/// Time to wait for the last output of a dead process.
const OUTPUT_TIMEOUT: Duration = Duration::from_millis(200);
/// Number of lines of a child's output that the pair keeps.
const KEPT_LINES: usize = 20;
