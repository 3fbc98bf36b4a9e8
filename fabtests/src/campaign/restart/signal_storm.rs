//! A timer that interrupts the process with thousands of signals per second. Its handler has no
//! `SA_RESTART`, so the kernel restarts no system call.

#![expect(
    unsafe_code,
    reason = "signal handlers and timers have no safe wrappers"
)]

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, ensure};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// Signals that were caught.
static CAUGHT: AtomicU64 = AtomicU64::new(0);

/// A running timer. Dropping this value stops the timer.
#[derive(Debug)]
pub(crate) struct SignalStorm(());

extern "C" fn count_signal(_: i32) {
    CAUGHT.fetch_add(1, Ordering::Relaxed);
}

impl SignalStorm {
    /// Starts a timer with `per_second` signals per second. A process may have one timer.
    ///
    /// # Errors
    /// The error of the system call.
    pub(crate) fn start(per_second: u32) -> anyhow::Result<Self> {
        let action = SigAction::new(
            SigHandler::Handler(count_signal),
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

impl Drop for SignalStorm {
    fn drop(&mut self) {
        // If the system refuses to stop the timer, there is no remedy.
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
    // SAFETY: the timer lives through the call, which reads it; the pointer for the old timer is
    // null.
    let result =
        unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
    ensure!(
        result == 0,
        "setitimer(2): {}",
        std::io::Error::last_os_error()
    );
    Ok(())
}
