//! Child processes of a test. A child runs this program again, receives lines on its standard input
//! and replies with lines, as text or as JSON.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getppid};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A child process. Dropping it kills the process.
#[derive(Debug)]
pub struct Process {
    number: u32,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts this program with `args`.
    ///
    /// # Errors
    /// Those of the system.
    pub fn start<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> anyhow::Result<Self> {
        // This path works even if the file of the program was replaced.
        let mut child = Command::new("/proc/self/exe")
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a process")?;
        Ok(Self {
            number: child.id(),
            input: child.stdin.take().context("no standard input")?,
            output: BufReader::new(child.stdout.take().context("no standard output")?),
            child,
        })
    }

    /// Sets the number of the process in error texts, in place of its process id.
    #[must_use]
    pub fn numbered(mut self, number: u32) -> Self {
        self.number = number;
        self
    }

    /// Sends the process a line.
    ///
    /// # Errors
    /// When the process has exited.
    pub fn send_line(&mut self, line: &str) -> anyhow::Result<()> {
        let written = self.input.write_all(format!("{line}\n").as_bytes());
        written.with_context(|| format!("process {} died", self.number))
    }

    /// Sends the process a value.
    ///
    /// # Errors
    /// When the process has exited.
    pub fn send(&mut self, value: &impl Serialize) -> anyhow::Result<()> {
        self.send_line(&serde_json::to_string(value)?)
    }

    /// Waits for the next line of the process.
    ///
    /// # Errors
    /// When the process exits before it sends a line.
    pub fn receive_line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!("process {} died: {:?}", self.number, self.child.wait());
        }
        Ok(line.trim_end().to_owned())
    }

    /// Waits for the next value of the process.
    ///
    /// # Errors
    /// When the process exits before it sends a value; when the line is not such a value.
    pub fn receive<T: DeserializeOwned>(&mut self) -> anyhow::Result<T> {
        let line = self.receive_line()?;
        serde_json::from_str(&line).with_context(|| format!("cannot parse the reply {line:?}"))
    }

    /// Whether [`Self::receive`] would return without waiting.
    ///
    /// # Errors
    /// Those of the system.
    pub fn is_readable(&self) -> anyhow::Result<bool> {
        is_readable(self.output.get_ref())
    }

    /// Sends the process a signal.
    ///
    /// # Errors
    /// When the process has exited.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        kill(self.pid(), signal)
            .with_context(|| format!("cannot send {signal} to process {}", self.pid()))
    }

    /// Waits for the exit of the process.
    ///
    /// # Errors
    /// When the process has failed.
    pub fn join(mut self) -> anyhow::Result<()> {
        let status = self.child.wait()?;
        ensure!(
            status.success(),
            "process {} ended by {status}",
            self.number
        );
        Ok(())
    }

    /// Waits for the exit of the process. Returns whether it was killed.
    ///
    /// # Errors
    /// Those of the system.
    pub fn was_killed(mut self) -> anyhow::Result<bool> {
        let status = self.child.wait()?;
        Ok(status.signal() == Some(Signal::SIGKILL as i32))
    }

    /// The process id.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Errors are ignored: the process may have exited, and another thread may have waited for
        // it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for the next line of every process.
///
/// # Errors
/// When a process has exited.
pub fn receive_lines(processes: &mut [Process]) -> anyhow::Result<Vec<String>> {
    processes.iter_mut().map(Process::receive_line).collect()
}

/// A deadline at which processes are killed, which ends every wait for their lines. Dropping the
/// value cancels the deadline.
#[derive(Debug)]
pub struct Deadline(
    #[expect(dead_code, reason = "closing the channel cancels the deadline")] Sender<()>,
);

impl Deadline {
    /// Kills the processes after `timeout`.
    pub fn set(processes: &[Process], timeout: Duration) -> Self {
        let (cancel, cancelled) = channel::<()>();
        let pids: Vec<_> = processes.iter().map(Process::pid).collect();
        thread::spawn(move || {
            if cancelled.recv_timeout(timeout) == Err(RecvTimeoutError::Timeout) {
                for pid in pids {
                    let _ = kill(pid, Signal::SIGKILL);
                }
            }
        });
        Self(cancel)
    }
}

/// In the child: arranges that the child is killed when its parent with the process id `parent`
/// exits.
///
/// # Errors
/// When the parent has exited.
pub fn die_with_parent(parent: i32) -> anyhow::Result<()> {
    set_pdeathsig(Signal::SIGKILL).context("prctl(PR_SET_PDEATHSIG)")?;
    // The parent may have exited before the call.
    ensure!(
        getppid().as_raw() == parent,
        "the parent process {parent} has exited"
    );
    Ok(())
}

/// In the child: waits for a value from the parent.
///
/// # Errors
/// When the parent has exited, or the value is of another type.
pub fn next_request<T: DeserializeOwned>() -> anyhow::Result<T> {
    let line = next_line()?;
    serde_json::from_str(&line).with_context(|| format!("cannot parse the request {line:?}"))
}

/// In the child: waits for a line from the parent.
///
/// # Errors
/// When the parent has exited.
pub fn next_line() -> anyhow::Result<String> {
    let mut line = String::new();
    let len = std::io::stdin().read_line(&mut line)?;
    ensure!(len > 0, "the parent process has ended");
    Ok(line.trim_end().to_owned())
}

/// In the child: whether the parent has sent a value, or has exited.
///
/// # Errors
/// Those of the system.
pub fn has_request() -> anyhow::Result<bool> {
    is_readable(&std::io::stdin())
}

/// In the child: sends the parent a value.
///
/// # Errors
/// When the parent has exited.
pub fn reply(value: &impl Serialize) -> anyhow::Result<()> {
    reply_line(&serde_json::to_string(value)?)
}

/// In the child: sends the parent a line.
///
/// # Errors
/// When the parent has exited.
pub fn reply_line(line: &str) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    output.write_all(format!("{line}\n").as_bytes())?;
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
