//! Wake-up of a blocked process, by futex and by eventfd.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Context as _;
use nix::errno::Errno;

use super::shared::Layout;
use crate::measure::clock::Clock;
use crate::measure::timing::{Counts, Timing, round_trips};
use crate::pair::Side;

/// Two futexes: one on which this process blocks and one by which it wakes the other process.
#[derive(Debug)]
pub(super) struct Futexes<'a> {
    local: &'a AtomicU32,
    peer: &'a AtomicU32,
}

impl<'a> Futexes<'a> {
    pub(super) fn new(layout: &'a Layout, side: Side) -> Self {
        let (active, passive) = (&layout.futex_to_active.0, &layout.futex_to_passive.0);
        match side {
            Side::Active => Self {
                local: active,
                peer: passive,
            },
            Side::Passive => Self {
                local: passive,
                peer: active,
            },
        }
    }

    pub(super) fn measure(&self, clock: Clock, counts: Counts) -> anyhow::Result<Timing> {
        round_trips(clock, counts, || {
            self.wake()?;
            self.block()
        })
    }

    pub(super) fn respond(&self, counts: Counts) -> anyhow::Result<()> {
        for _ in 0..counts.total() {
            self.block()?;
            self.wake()?;
        }
        Ok(())
    }

    fn wake(&self) -> anyhow::Result<()> {
        self.peer.store(1, Ordering::Release);
        futex(self.peer, libc::FUTEX_WAKE, 1).context("cannot wake by futex")
    }

    fn block(&self) -> anyhow::Result<()> {
        while self.local.swap(0, Ordering::Acquire) == 0 {
            match futex(self.local, libc::FUTEX_WAIT, 0) {
                Ok(()) | Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(error) => return Err(error).context("cannot wait on a futex"),
            }
        }
        Ok(())
    }
}

/// Calls futex(2) on a word that processes share, without a timeout.
#[expect(unsafe_code, reason = "the C library has no futex function")]
fn futex(word: &AtomicU32, op: libc::c_int, value: u32) -> Result<(), Errno> {
    let no_timeout = std::ptr::null::<libc::timespec>();
    // SAFETY: the word is aligned and lives during the call. The kernel only reads it, atomically.
    let result = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), op, value, no_timeout) };
    Errno::result(result).map(drop)
}

/// Two eventfds: one on which this process blocks and one by which it wakes the other process.
#[derive(Debug)]
pub struct EventFds {
    /// The eventfd that this process reads.
    pub local: OwnedFd,
    /// The eventfd that this process writes.
    pub peer: OwnedFd,
}

impl EventFds {
    pub(super) fn measure(&self, clock: Clock, counts: Counts) -> anyhow::Result<Timing> {
        round_trips(clock, counts, || {
            self.wake()?;
            self.block()
        })
    }

    pub(super) fn respond(&self, counts: Counts) -> anyhow::Result<()> {
        for _ in 0..counts.total() {
            self.block()?;
            self.wake()?;
        }
        Ok(())
    }

    fn wake(&self) -> anyhow::Result<()> {
        nix::unistd::write(&self.peer, &1_u64.to_ne_bytes()).context("cannot write an eventfd")?;
        Ok(())
    }

    fn block(&self) -> anyhow::Result<()> {
        nix::unistd::read(&self.local, &mut [0; 8]).context("cannot read an eventfd")?;
        Ok(())
    }
}
