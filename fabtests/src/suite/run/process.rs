//! One process of a test: started in a group of its own, listened to, and ended with all that it has
//! started.

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
use crate::suite::control::{Answer, RUNNER, Word};
use crate::suite::entry::Process;

/// What a process did; the number is its place in the entry.
#[derive(Debug)]
pub(super) enum Event {
    /// It said something.
    Said(usize, Word),
    /// It printed a line.
    Printed(usize, String),
    /// It has ended, and waits to be buried; everything that it said and printed came before.
    Ended(usize, WaitStatus),
}

/// A process of a test. Killed with its group when dropped.
#[derive(Debug)]
pub(super) struct Member {
    child: Child,
    control: UnixStream,
    printed: VecDeque<String>,
    is_buried: bool,
}

impl Member {
    /// Starts the process; what it does is sent to `events`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(super) fn start(
        place: usize,
        process: &Process,
        hosts: Option<&Hosts>,
        events: &Sender<Event>,
    ) -> anyhow::Result<Self> {
        let (control, stdin) = UnixStream::pair().context("cannot make a control socket")?;
        let (printed, output) = std::io::pipe().context("cannot make a pipe")?;
        // By this name it is there even if its file has been replaced.
        let program = format!("/proc/{}/exe", std::process::id());
        let mut command = match hosts {
            Some(hosts) => hosts.command(place, &program),
            None => Command::new(program),
        };
        command
            .args(&process.args)
            // Where a panic was is enough; its backtrace would push the rest out.
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
        // The command still holds the child's ends, which would keep both from ever closing.
        drop(command);
        let member = Self {
            child,
            control,
            printed: VecDeque::new(),
            is_buried: false,
        };
        let words = member.control.try_clone()?;
        let (speaks, is_silent) = channel();
        follow(words, events, speaks.clone(), move |line| {
            heard(place, &line)
        });
        follow(printed, events, speaks, move |line| {
            Event::Printed(place, line)
        });
        member.watch(place, events, is_silent);
        Ok(member)
    }

    /// Waits for the end in a thread, and leaves the dead where it is: as long as it is not buried,
    /// its number and that of its group belong to nobody else.
    fn watch(&self, place: usize, events: &Sender<Event>, is_silent: Receiver<()>) {
        let (pid, events) = (self.pid(), events.clone());
        std::thread::spawn(move || {
            let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
            loop {
                match waitid(Id::Pid(pid), flags) {
                    Err(Errno::EINTR) => {}
                    Ok(status) => {
                        // Whoever it has left behind may hold its output open.
                        let silence = is_silent.recv_timeout(LAST_WORDS);
                        debug_assert_ne!(silence, Ok(()), "nothing is sent");
                        // Nobody listens any more if the verdict is out.
                        let _ = events.send(Event::Ended(place, status));
                        return;
                    }
                    // It was buried meanwhile.
                    Err(_) => return,
                }
            }
        });
    }

    /// Tells it what all have said.
    pub(super) fn answer(&mut self, answer: &Answer) {
        if let Ok(mut line) = serde_json::to_string(answer) {
            line.push('\n');
            // One that is gone is heard of by its end.
            let _ = self.control.write_all(line.as_bytes());
        }
    }

    /// Keeps a line that it has printed.
    pub(super) fn keep(&mut self, line: String) {
        if self.printed.len() == KEPT_LINES {
            self.printed.pop_front();
        }
        self.printed.push_back(line);
    }

    /// What it printed last.
    pub(super) fn printed(&self) -> String {
        Vec::from_iter(self.printed.iter().map(String::as_str)).join("\n")
    }

    /// The processes that it has left behind, and their end: the dead one's group is its own until
    /// it is buried here.
    pub(super) fn bury(&mut self) -> Vec<String> {
        if self.is_buried {
            return Vec::new();
        }
        let left = leftovers::of_group(self.pid());
        self.end();
        left
    }

    fn end(&mut self) {
        // The group may be empty but for the dead.
        let _ = killpg(self.pid(), Signal::SIGKILL);
        let _ = self.child.wait();
        self.is_buried = true;
    }

    /// Its number.
    pub(super) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if !self.is_buried {
            self.end();
        }
    }
}

/// Turns the lines of `source` into events, in a thread that sleeps in between and drops `speaks` at
/// the end of them.
fn follow(
    source: impl Read + Send + 'static,
    events: &Sender<Event>,
    speaks: Sender<()>,
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
        drop(speaks);
    });
}

fn heard(place: usize, line: &str) -> Event {
    match serde_json::from_str(line) {
        Ok(word) => Event::Said(place, word),
        Err(_) => Event::Said(place, Word::Failed(format!("it said {line:?}"))),
    }
}

const KEPT_LINES: usize = 20;
/// How long to wait for the end of the output of a process that has ended.
const LAST_WORDS: Duration = Duration::from_millis(300);
