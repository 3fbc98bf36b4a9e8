//! One process of a test: started in a process group, observed, and killed with all its children.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::Context as _;
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use super::hosts::Hosts;
use super::leftovers;
use crate::suite::control::{Message, RUNNER, Values};
use crate::suite::entry::Process;

/// An event of a process; the number is its index in the entry.
#[derive(Debug)]
pub(super) enum Event {
    /// It sent a message.
    Message(usize, Message),
    /// It printed a line.
    Printed(usize, String),
    /// It has ended and is a zombie; its messages and output precede this event.
    Ended(usize, WaitStatus),
}

/// A process of a test, which is killed with its group when this is dropped.
#[derive(Debug)]
pub(super) struct Member {
    child: Child,
    control: UnixStream,
    printed: VecDeque<String>,
    is_reaped: bool,
}

impl Member {
    /// Starts the process; its events are sent to `events`.
    ///
    /// # Errors
    /// The process cannot be started.
    pub(super) fn start(
        index: usize,
        process: &Process,
        hosts: Option<&Hosts>,
        events: &Sender<Event>,
    ) -> anyhow::Result<Self> {
        let (control, stdin) = UnixStream::pair().context("cannot make a control socket")?;
        let (printed, output) = std::io::pipe().context("cannot make a pipe")?;
        // This path is valid even if the program's file has been replaced.
        let program = format!("/proc/{}/exe", std::process::id());
        let mut command = match hosts {
            Some(hosts) => hosts.command(index, &program),
            None => Command::new(program),
        };
        command
            .args(&process.args)
            // The location of a panic is enough; a backtrace would displace other lines.
            .env("RUST_BACKTRACE", "0")
            .env(RUNNER, std::process::id().to_string())
            .envs(process.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(OwnedFd::from(stdin)))
            .stdout(Stdio::from(output.try_clone()?))
            .stderr(Stdio::from(output))
            .process_group(0);
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {:?}", process.args))?;
        // The command still holds the child's sides of the socket and the pipe, which would keep
        // both open.
        drop(command);
        let member = Self {
            child,
            control,
            printed: VecDeque::new(),
            is_reaped: false,
        };
        let socket = member.control.try_clone()?;
        let (is_open, closed) = channel();
        follow(socket, events, is_open.clone(), move |line| {
            parse_message(index, &line)
        });
        follow(printed, events, is_open, move |line| {
            Event::Printed(index, line)
        });
        member.watch(index, events, closed);
        Ok(member)
    }

    /// Waits in a thread for the end of the process and leaves it a zombie: until it is reaped, the
    /// system does not assign its identifier and that of its group to another process.
    fn watch(&self, index: usize, events: &Sender<Event>, closed: Receiver<()>) {
        let (pid, events) = (self.pid(), events.clone());
        std::thread::spawn(move || {
            let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
            loop {
                match waitid(Id::Pid(pid), flags) {
                    Err(Errno::EINTR) => {}
                    Ok(status) => {
                        // Processes that it has left behind may hold its output open.
                        let result = closed.recv_timeout(OUTPUT_TIMEOUT);
                        debug_assert_ne!(result, Ok(()), "no value is sent");
                        // The receiver has ended if the outcome is decided.
                        let _ = events.send(Event::Ended(index, status));
                        return;
                    }
                    // It was reaped meanwhile.
                    Err(_) => return,
                }
            }
        });
    }

    /// Sends the values of all processes.
    pub(super) fn send_values(&mut self, values: &Values) {
        if let Ok(mut line) = serde_json::to_string(values) {
            line.push('\n');
            // An error means that the process has ended, which another event reports.
            let _ = self.control.write_all(line.as_bytes());
        }
    }

    /// Keeps a printed line.
    pub(super) fn keep(&mut self, line: String) {
        if self.printed.len() == KEPT_LINES {
            self.printed.pop_front();
        }
        self.printed.push_back(line);
    }

    /// The last printed lines.
    pub(super) fn printed(&self) -> String {
        Vec::from_iter(self.printed.iter().map(String::as_str)).join("\n")
    }

    /// Reaps the process, kills its group, and returns the processes that it has left behind. The
    /// group's identifier is valid until the process is reaped.
    pub(super) fn reap(&mut self) -> Vec<String> {
        if self.is_reaped {
            return Vec::new();
        }
        let left = leftovers::processes_of_group(self.pid());
        self.end();
        left
    }

    fn end(&mut self) {
        // The group may be empty except for the zombie.
        let _ = killpg(self.pid(), Signal::SIGKILL);
        let _ = self.child.wait();
        self.is_reaped = true;
    }

    /// Its process identifier.
    pub(super) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if !self.is_reaped {
            self.end();
        }
    }
}

/// Turns the lines of `source` into events, in a thread that drops `is_open` at the end of the
/// input.
fn follow(
    source: impl Read + Send + 'static,
    events: &Sender<Event>,
    is_open: Sender<()>,
    event: impl Fn(String) -> Event + Send + 'static,
) {
    let events = events.clone();
    std::thread::spawn(move || {
        let lines = BufReader::new(source).split(b'\n').map_while(Result::ok);
        for line in lines {
            let line = String::from_utf8_lossy(&line).into_owned();
            if events.send(event(line)).is_err() {
                break;
            }
        }
        drop(is_open);
    });
}

fn parse_message(index: usize, line: &str) -> Event {
    match serde_json::from_str(line) {
        Ok(message) => Event::Message(index, message),
        Err(_) => Event::Message(
            index,
            Message::Failed(format!("the process sent an invalid message: {line:?}")),
        ),
    }
}

const KEPT_LINES: usize = 20;
/// How long to wait for the end of the output of a process that has ended.
const OUTPUT_TIMEOUT: Duration = Duration::from_millis(300);
