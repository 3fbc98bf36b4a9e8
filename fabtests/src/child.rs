//! Child processes of a tool: this program again, which takes lines and answers lines.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A child process, killed when dropped.
#[derive(Debug)]
pub(crate) struct ChildProcess {
    number: usize,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl ChildProcess {
    /// Starts this program with `args`; messages call the process by `number`.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn start<I: AsRef<str>>(
        number: usize,
        args: impl IntoIterator<Item = I>,
    ) -> anyhow::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        for arg in args {
            command.arg(arg.as_ref());
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting process {number}"))?;
        Ok(Self {
            number,
            input: child.stdin.take().context("no pipe")?,
            output: BufReader::new(child.stdout.take().context("no pipe")?),
            child,
        })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends the process a line.
    ///
    /// # Errors
    /// When the process has ended.
    pub(crate) fn tell(&mut self, line: &str) -> anyhow::Result<()> {
        writeln!(self.input, "{line}").with_context(|| format!("process {} died", self.number))
    }

    /// Waits for the next line of the process.
    ///
    /// # Errors
    /// When the process has ended.
    pub(crate) fn answer(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        let len = self.output.read_line(&mut line)?;
        ensure!(len > 0, "process {} died or was killed", self.number);
        Ok(line.trim().to_owned())
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The next line of every process.
///
/// # Errors
/// When one has ended.
pub(crate) fn answers(processes: &mut [ChildProcess]) -> anyhow::Result<Vec<String>> {
    processes.iter_mut().map(ChildProcess::answer).collect()
}

/// Kills processes at a deadline, which ends every wait for one of their lines. Dropping it cancels
/// the deadline.
#[derive(Debug)]
pub(crate) struct Deadline(
    #[expect(dead_code, reason = "closing the channel cancels the deadline")] Sender<()>,
);

impl Deadline {
    pub(crate) fn set(processes: &[ChildProcess], timeout: Duration) -> Self {
        let (alive, over) = channel::<()>();
        let pids: Vec<_> = processes.iter().map(ChildProcess::id).collect();
        std::thread::spawn(move || {
            if over.recv_timeout(timeout) == Err(RecvTimeoutError::Timeout) {
                for pid in pids {
                    let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
                }
            }
        });
        Self(alive)
    }
}
