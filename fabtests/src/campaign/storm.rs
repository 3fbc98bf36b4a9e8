//! A storm of signals: the process is interrupted many thousand times a second, and no system call
//! is begun again by the kernel.

#![expect(
    unsafe_code,
    reason = "signal handlers and timers have no safe wrappers"
)]

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, ensure};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// Signals that came.
static CAUGHT: AtomicU64 = AtomicU64::new(0);

/// A storm. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Storm(());

extern "C" fn catch(_: i32) {
    CAUGHT.fetch_add(1, Ordering::Relaxed);
}

impl Storm {
    /// Begins a storm of so many signals per second. There may be one in a process.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn begin(per_second: u32) -> anyhow::Result<Self> {
        let action = SigAction::new(
            SigHandler::Handler(catch),
            SaFlags::empty(),
            SigSet::empty(),
        );
        // SAFETY: the handler adds to an atomic and does nothing else.
        unsafe { sigaction(Signal::SIGALRM, &action) }.context("sigaction(2)")?;
        interrupt_every(1_000_000 / i64::from(per_second.max(1)))?;
        Ok(Self(()))
    }

    /// Signals that this process has caught so far.
    pub(crate) fn caught() -> u64 {
        CAUGHT.load(Ordering::Relaxed)
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        // Nothing is left to be done if the system refuses to stop a timer.
        let _ = interrupt_every(0);
    }
}

fn interrupt_every(microseconds: i64) -> anyhow::Result<()> {
    let interval = libc::timeval {
        tv_sec: 0,
        tv_usec: microseconds,
    };
    let timer = libc::itimerval {
        it_interval: interval,
        it_value: interval,
    };
    // SAFETY: the timer lives through the call, which reads it; the old one is not asked for.
    let done =
        unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
    ensure!(
        done == 0,
        "setitimer(2): {}",
        std::io::Error::last_os_error()
    );
    Ok(())
}
