//! The messages between a process of a test and its runner.
//!
//! The standard input of the process is one side of a socket pair; the runner has the other. A
//! message is a line of JSON. A process that no runner started sends nothing.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::getppid;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A message to the runner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// The next process may begin. The runner passes it the text, for instance an address.
    Ready(String),
    /// A value for all other processes. The runner responds with [`Values`] when all processes have
    /// sent a value.
    Exchange(Value),
    /// The current activity, which the runner reports if the test takes too long.
    Doing(String),
    /// The test needs a capability that the provider lacks.
    Skip(String),
    /// The test has failed.
    Failed(String),
    /// The process has leaked a resource.
    Leaked(String),
    /// The process has ended successfully.
    Done {
        /// Number of checks.
        checks: u64,
        /// Number of compared bytes.
        bytes: u64,
    },
}

/// The values of all processes, in the order of the processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Values {
    /// One value for each process.
    pub all: Vec<Value>,
}

/// The environment variable with the runner's process identifier.
pub const RUNNER: &str = "FABTESTS_RUNNER";

/// The process's side of the socket.
#[derive(Debug)]
pub struct Control {
    runner: Option<BufReader<UnixStream>>,
}

impl Control {
    /// Finds the runner, if there is one. The kernel kills this process when the runner ends.
    ///
    /// # Errors
    /// The runner has ended already.
    pub fn find() -> anyhow::Result<Self> {
        let Some(runner) = std::env::var_os(RUNNER) else {
            return Ok(Self { runner: None });
        };
        set_pdeathsig(Signal::SIGKILL).context("cannot tie this process to its runner")?;
        // The runner may have ended before the parent-death signal was set.
        let parent = getppid().as_raw().to_string();
        ensure!(
            runner == *parent,
            "the runner, process {runner:?}, has ended"
        );
        let stdin = std::io::stdin().as_fd().try_clone_to_owned()?;
        Ok(Self {
            runner: Some(BufReader::new(stdin.into())),
        })
    }

    /// Returns whether there is a runner.
    pub fn is_run(&self) -> bool {
        self.runner.is_some()
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The runner has ended.
    pub fn send(&self, message: &Message) -> anyhow::Result<()> {
        let Some(runner) = &self.runner else {
            return Ok(());
        };
        let mut line = serde_json::to_string(message)?;
        line.push('\n');
        let written = runner.get_ref().write_all(line.as_bytes());
        written.context("the runner has ended")
    }

    /// Sends [`Message::Ready`] with a text for the next process.
    ///
    /// # Errors
    /// The runner has ended.
    pub fn ready(&self, text: &str) -> anyhow::Result<()> {
        self.send(&Message::Ready(text.to_owned()))
    }

    /// Sends a value to all other processes and returns the values of all, in the order of the
    /// processes. Calls `progress` repeatedly until all have sent a value.
    ///
    /// # Errors
    /// There is no runner, the runner has ended, `deadline` has passed, or `progress` fails.
    pub fn exchange(
        &mut self,
        own: Value,
        deadline: Instant,
        mut progress: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<Vec<Value>> {
        self.send(&Message::Exchange(own))?;
        while !self.has_response()? {
            ensure!(
                Instant::now() < deadline,
                "the other processes did not reach the barrier in time"
            );
            progress()?;
        }
        self.receive_values()
    }

    /// As [`Self::exchange`], but blocks until all processes have sent a value.
    ///
    /// # Errors
    /// There is no runner, or the runner has ended.
    pub fn exchange_blocking(&mut self, own: Value) -> anyhow::Result<Vec<Value>> {
        self.send(&Message::Exchange(own))?;
        self.receive_values()
    }

    fn receive_values(&mut self) -> anyhow::Result<Vec<Value>> {
        let Some(runner) = &mut self.runner else {
            bail!("processes cannot exchange values without a runner");
        };
        let mut line = String::new();
        ensure!(runner.read_line(&mut line)? > 0, "the runner has ended");
        let response: Values =
            serde_json::from_str(&line).with_context(|| format!("the runner sent {line:?}"))?;
        Ok(response.all)
    }

    fn has_response(&self) -> anyhow::Result<bool> {
        let Some(runner) = &self.runner else {
            bail!("processes cannot exchange values without a runner");
        };
        let mut fds = [PollFd::new(runner.get_ref().as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::ZERO) {
            Ok(ready) => Ok(ready > 0),
            Err(nix::errno::Errno::EINTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the descriptor of the socket, so that a count of open descriptors can leave it out.
    pub fn descriptor(&self) -> Option<i32> {
        self.runner
            .as_ref()
            .map(|runner| runner.get_ref().as_raw_fd())
    }
}
