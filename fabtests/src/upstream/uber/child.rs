//! Runs each configuration in a process of its own (`-f`), so that no state of one configuration
//! reaches the next.

#![expect(unsafe_code, reason = "fork(2)")]

use std::io::{Write as _, stdout};
use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::{Context as _, bail};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

/// The exit code of a child that could not run its function.
pub(super) const FAILED: u8 = 255;

/// Runs a function in a child process and returns its exit code.
///
/// # Errors
/// The system's error, or the child was killed.
pub(super) fn run_in_child(function: impl FnOnce() -> u8) -> anyhow::Result<u8> {
    // Both processes would otherwise print the buffered output.
    stdout().flush()?;
    // SAFETY: the process has one thread and no open fabric objects: with `-f`, only children open
    // such objects. The child exits in `run_child`.
    match unsafe { fork() }.context("cannot fork")? {
        ForkResult::Child => run_child(function),
        ForkResult::Parent { child } => match waitpid(child, None)? {
            WaitStatus::Exited(_, code) => Ok(u8::try_from(code)?),
            other => bail!("the process of a configuration ended with {other:?}"),
        },
    }
}

fn run_child(function: impl FnOnce() -> u8) -> ! {
    // The child is killed when its parent ends.
    let code = match set_pdeathsig(Signal::SIGKILL) {
        Ok(()) => catch_unwind(AssertUnwindSafe(function)).unwrap_or(FAILED),
        Err(_) => FAILED,
    };
    let _ = stdout().flush();
    // SAFETY: `_exit` ends the process without running exit handlers of the parent.
    unsafe { libc::_exit(code.into()) }
}
