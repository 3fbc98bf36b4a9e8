//! Forked children of a test's process.

#![expect(unsafe_code, reason = "fork(2)")]

use std::io::{PipeReader, PipeWriter, Read as _, pipe};
use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::{Context as _, bail};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

/// A child that has done its work and lives until it is told to end.
pub(crate) struct Child {
    pid: Pid,
    ends: Option<PipeWriter>,
}

/// Forks a child that does some work: whether that went well is its exit code. It ends without
/// closing anything that it has from its parent.
///
/// # Errors
/// The system's.
pub(crate) fn child(work: impl FnOnce() -> bool) -> anyhow::Result<Child> {
    let (waits, ends) = pipe().context("cannot make a pipe")?;
    // SAFETY: processes of tests have one thread unless the provider has made others, of which the
    // child has no copy and for none of which it waits: the calls that it makes are refused before
    // they take a lock, which is what is tested. It ends in `live`.
    match unsafe { fork() }.context("cannot fork")? {
        ForkResult::Child => {
            drop(ends);
            live(work, waits)
        }
        ForkResult::Parent { child: pid } => Ok(Child {
            pid,
            ends: Some(ends),
        }),
    }
}

fn live(work: impl FnOnce() -> bool, mut waits: PipeReader) -> ! {
    let is_well = catch_unwind(AssertUnwindSafe(work)).unwrap_or(false);
    // Until the parent says so, or is gone.
    let _ = waits.read(&mut [0]);
    // SAFETY: ends the process, and runs nothing of its parent's.
    unsafe { libc::_exit(i32::from(!is_well)) }
}

impl Child {
    /// Tells it to end, and waits for that: whether its work went well.
    ///
    /// # Errors
    /// That it has died of something else.
    pub(crate) fn end(mut self) -> anyhow::Result<bool> {
        drop(self.ends.take());
        match waitpid(self.pid, None)? {
            WaitStatus::Exited(_, code) => Ok(code == 0),
            other => bail!("a forked child ended as {other:?}"),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.ends.is_some() {
            let _ = kill(self.pid, Signal::SIGKILL);
            let _ = waitpid(self.pid, None);
        }
    }
}
