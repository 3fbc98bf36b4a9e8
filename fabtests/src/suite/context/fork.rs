//! Forked children of a test's process.

#![expect(unsafe_code, reason = "fork(2)")]

use std::io::{PipeReader, PipeWriter, Read as _, pipe};
use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::{Context as _, bail};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

/// A forked child. After its work, the child waits until the parent stops it.
pub(crate) struct Child {
    pid: Pid,
    stop_signal: Option<PipeWriter>,
}

/// Forks a child that runs `work`. The child's exit code is the result of `work`. The child exits
/// without closing the objects that it has inherited.
///
/// # Errors
/// The error of the system call.
pub(crate) fn fork_child(work: impl FnOnce() -> bool) -> anyhow::Result<Child> {
    let (stop_signal_reader, stop_signal) = pipe().context("cannot make a pipe")?;
    // SAFETY: processes of tests have one thread unless the provider has created others. The child
    // has no copy of those and does not wait for them: its calls are refused before they take a
    // lock, which is what is tested. It ends in `run_child`.
    match unsafe { fork() }.context("cannot fork")? {
        ForkResult::Child => {
            drop(stop_signal);
            run_child(work, stop_signal_reader)
        }
        ForkResult::Parent { child: pid } => Ok(Child {
            pid,
            stop_signal: Some(stop_signal),
        }),
    }
}

fn run_child(work: impl FnOnce() -> bool, mut stop_signal_reader: PipeReader) -> ! {
    let succeeded = catch_unwind(AssertUnwindSafe(work)).unwrap_or(false);
    // The read returns when the parent closes its side of the pipe or ends.
    let _ = stop_signal_reader.read(&mut [0]);
    // SAFETY: `_exit` ends the process without running exit handlers of the parent.
    unsafe { libc::_exit(i32::from(!succeeded)) }
}

impl Child {
    /// Ends the child and waits for it. Returns whether its work succeeded.
    ///
    /// # Errors
    /// The child ended in another way.
    pub(crate) fn stop(mut self) -> anyhow::Result<bool> {
        drop(self.stop_signal.take());
        match waitpid(self.pid, None)? {
            WaitStatus::Exited(_, code) => Ok(code == 0),
            other => bail!("a forked child ended as {other:?}"),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.stop_signal.is_some() {
            let _ = kill(self.pid, Signal::SIGKILL);
            let _ = waitpid(self.pid, None);
        }
    }
}
