//! What a process of a test and its runner say to each other.
//!
//! The process has one end of a socket as its standard input; a word is a line of JSON. Outside of a
//! run there is no runner, and saying something does nothing.

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

/// What a process says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    /// Others may begin; the text is for them: an address, for instance.
    Ready(String),
    /// What all others shall know; the runner answers an [`Answer`] when all have said theirs.
    Exchange(Value),
    /// What it is doing, for who wonders why it takes so long.
    Doing(String),
    /// The test needs something that is not there.
    Skip(String),
    /// The test has failed.
    Failed(String),
    /// Something was left behind.
    Leaked(String),
    /// It is over, and all is well.
    Done {
        /// Checks that were made.
        checks: u64,
        /// Bytes that were compared.
        bytes: u64,
    },
}

/// What all processes have said, in their order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// One for each process.
    pub all: Vec<Value>,
}

/// The variable that says who the runner is: its process number.
pub const RUNNER: &str = "FABTESTS_RUNNER";

/// The process's end.
#[derive(Debug)]
pub struct Control {
    runner: Option<BufReader<UnixStream>>,
}

impl Control {
    /// Finds the runner, if there is one, and ties this process's life to it.
    ///
    /// # Errors
    /// When the runner is gone already.
    pub fn find() -> anyhow::Result<Self> {
        let Some(runner) = std::env::var_os(RUNNER) else {
            return Ok(Self { runner: None });
        };
        set_pdeathsig(Signal::SIGKILL).context("cannot tie this process to its runner")?;
        // The runner may have ended before the tie was made.
        let parent = getppid().as_raw().to_string();
        ensure!(runner == *parent, "the runner {runner:?} is gone");
        let stdin = std::io::stdin().as_fd().try_clone_to_owned()?;
        Ok(Self {
            runner: Some(BufReader::new(stdin.into())),
        })
    }

    /// Whether there is a runner.
    pub fn is_run(&self) -> bool {
        self.runner.is_some()
    }

    /// Says something.
    ///
    /// # Errors
    /// When the runner is gone.
    pub fn say(&self, word: &Word) -> anyhow::Result<()> {
        let Some(runner) = &self.runner else {
            return Ok(());
        };
        let mut line = serde_json::to_string(word)?;
        line.push('\n');
        let written = runner.get_ref().write_all(line.as_bytes());
        written.context("the runner is gone")
    }

    /// Says that others may begin, and gives them a text.
    ///
    /// # Errors
    /// When the runner is gone.
    pub fn ready(&self, text: &str) -> anyhow::Result<()> {
        self.say(&Word::Ready(text.to_owned()))
    }

    /// Tells all others something and learns what they have to tell, in the order of the processes;
    /// does `meanwhile` again and again until all have spoken.
    ///
    /// # Errors
    /// When the runner is gone or the time is over; those of `meanwhile`.
    pub fn exchange(
        &mut self,
        own: Value,
        until: Instant,
        mut meanwhile: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<Vec<Value>> {
        self.say(&Word::Exchange(own))?;
        while !self.is_called()? {
            ensure!(Instant::now() < until, "the other processes do not come");
            meanwhile()?;
        }
        self.answer()
    }

    /// As [`Self::exchange`], asleep in between.
    ///
    /// # Errors
    /// When the runner is gone.
    pub fn exchange_asleep(&mut self, own: Value) -> anyhow::Result<Vec<Value>> {
        self.say(&Word::Exchange(own))?;
        self.answer()
    }

    fn answer(&mut self) -> anyhow::Result<Vec<Value>> {
        let Some(runner) = &mut self.runner else {
            bail!("there is no runner to exchange words over");
        };
        let mut line = String::new();
        ensure!(runner.read_line(&mut line)? > 0, "the runner is gone");
        let answer: Answer =
            serde_json::from_str(&line).with_context(|| format!("odd {line:?}"))?;
        Ok(answer.all)
    }

    fn is_called(&self) -> anyhow::Result<bool> {
        let Some(runner) = &self.runner else {
            bail!("there is no runner to exchange words over");
        };
        let mut fds = [PollFd::new(runner.get_ref().as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::ZERO) {
            Ok(ready) => Ok(ready > 0),
            Err(nix::errno::Errno::EINTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The descriptor, for whoever counts descriptors.
    pub fn descriptor(&self) -> Option<i32> {
        self.runner
            .as_ref()
            .map(|runner| runner.get_ref().as_raw_fd())
    }
}
