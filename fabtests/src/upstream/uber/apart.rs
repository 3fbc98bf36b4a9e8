//! Configurations in processes of their own (`-f`): each is run by a forked child, so that nothing
//! of one is left for the next.

#![expect(unsafe_code, reason = "fork(2)")]

use std::io::{Write as _, stdout};
use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::{Context as _, bail};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

/// The code of a child whose work could not be done.
pub(super) const BROKEN: u8 = 255;

/// Does some work in a child, and answers the code that it ends with.
///
/// # Errors
/// The system's; that the child was killed.
pub(super) fn apart(work: impl FnOnce() -> u8) -> anyhow::Result<u8> {
    // What is still to be printed would be printed by both.
    stdout().flush()?;
    // SAFETY: the process has one thread and nothing open of the fabric: with `-f` all of it is
    // opened in children. The child ends in `end`.
    match unsafe { fork() }.context("cannot fork")? {
        ForkResult::Child => end(work),
        ForkResult::Parent { child } => match waitpid(child, None)? {
            WaitStatus::Exited(_, code) => Ok(u8::try_from(code)?),
            other => bail!("the process of a configuration ended as {other:?}"),
        },
    }
}

fn end(work: impl FnOnce() -> u8) -> ! {
    // It ends with its parent; whoever kills that one means both.
    let code = match set_pdeathsig(Signal::SIGKILL) {
        Ok(()) => catch_unwind(AssertUnwindSafe(work)).unwrap_or(BROKEN),
        Err(_) => BROKEN,
    };
    let _ = stdout().flush();
    // SAFETY: ends the process, and runs nothing of its parent's.
    unsafe { libc::_exit(code.into()) }
}
