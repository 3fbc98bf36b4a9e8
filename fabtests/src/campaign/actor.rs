//! The other processes of a campaign: this program again, in the part that it is given over its
//! standard input. What it has to say comes back as lines of JSON.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getppid};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::part::Part;

/// A process that plays a part. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Actor {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Actor {
    /// Starts a process that has no part yet.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn hire() -> anyhow::Result<Self> {
        // By this name it is there even if its file has been replaced.
        let mut child = Command::new("/proc/self/exe")
            .args(["actor", "--parent", &std::process::id().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a process")?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        Ok(Self {
            input: input.context("no standard input")?,
            output: BufReader::new(output.context("no standard output")?),
            child,
        })
    }

    /// Starts a process in a part.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn start(part: &Part) -> anyhow::Result<Self> {
        let mut actor = Self::hire()?;
        actor.tell(part)?;
        Ok(actor)
    }

    /// Says something to it.
    ///
    /// # Errors
    /// When it is gone.
    pub(crate) fn tell(&mut self, what: &impl Serialize) -> anyhow::Result<()> {
        let mut line = serde_json::to_string(what)?;
        line.push('\n');
        let written = self.input.write_all(line.as_bytes());
        written.with_context(|| format!("process {} is gone", self.pid()))
    }

    /// Waits for what it has to say.
    ///
    /// # Errors
    /// When it is gone without a word.
    pub(crate) fn hear<T: DeserializeOwned>(&mut self) -> anyhow::Result<T> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!("process {} is gone: {:?}", self.pid(), self.child.wait());
        }
        serde_json::from_str(&line).with_context(|| format!("odd words: {line:?}"))
    }

    /// Whether [`Self::hear`] would not wait.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn has_spoken(&self) -> anyhow::Result<bool> {
        is_readable(self.output.get_ref())
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When it is gone.
    pub(crate) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        kill(self.pid(), signal).with_context(|| format!("{signal} for {}", self.pid()))
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When that was none in peace.
    pub(crate) fn join(mut self) -> anyhow::Result<()> {
        let status = self.child.wait()?;
        ensure!(status.success(), "process {} ended by {status}", self.pid());
        Ok(())
    }

    /// Waits for its end; whether it was killed.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn was_killed(mut self) -> anyhow::Result<bool> {
        let status = self.child.wait()?;
        Ok(status.signal() == Some(Signal::SIGKILL as i32))
    }

    /// Its number.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        // It may be gone, and somebody else may have waited for it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How an actor is started; no part of the command line for people.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The process whose campaign it is
    #[arg(long)]
    parent: i32,
}

/// Plays the part that standard input names.
///
/// # Errors
/// What the part comes to grief over.
pub fn run(args: &Args) -> anyhow::Result<()> {
    set_pdeathsig(Signal::SIGKILL).context("cannot tie this process to its parent")?;
    // The parent may have ended before the tie was made.
    let parent = getppid().as_raw();
    ensure!(parent == args.parent, "process {} is gone", args.parent);
    listen::<Part>()?.play()
}

/// Child: waits for an order.
///
/// # Errors
/// When there are no more, or it is none.
pub(super) fn listen<T: DeserializeOwned>() -> anyhow::Result<T> {
    let mut line = String::new();
    ensure!(std::io::stdin().read_line(&mut line)? > 0, "no more orders");
    serde_json::from_str(&line).with_context(|| format!("{line:?} is no order"))
}

/// Child: whether there is an order, or the end of them.
pub(super) fn is_called() -> anyhow::Result<bool> {
    is_readable(&std::io::stdin())
}

/// Child: says something.
pub(super) fn say(what: &impl Serialize) -> anyhow::Result<()> {
    let mut line = serde_json::to_string(what)?;
    line.push('\n');
    let mut output = std::io::stdout();
    output.write_all(line.as_bytes())?;
    Ok(output.flush()?)
}

fn is_readable(source: &impl AsFd) -> anyhow::Result<bool> {
    let mut fds = [PollFd::new(source.as_fd(), PollFlags::POLLIN)];
    match poll(&mut fds, PollTimeout::ZERO) {
        Ok(ready) => Ok(ready > 0),
        Err(nix::errno::Errno::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
