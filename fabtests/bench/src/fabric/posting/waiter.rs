//! The wait of an endpoint for completions.

use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use selvedge::{CompletionQueue, Errno, cq};

use crate::fabric::WaitStrategy;
use crate::machine::cpu::Idle;

/// A `Waiter` waits for completions in the way that the configuration of its endpoint selects.
#[derive(Clone, Copy, Debug)]
pub(in crate::fabric) struct Waiter {
    strategy: WaitStrategy,
    idle: Idle,
}

impl Waiter {
    /// Makes the waiter of an endpoint.
    pub(in crate::fabric) const fn new(strategy: WaitStrategy, idle: Idle) -> Self {
        Self { strategy, idle }
    }

    /// Waits once, and returns the number of completions that the wait has read into `entries`.
    ///
    /// # Errors
    /// As [`CompletionQueue::read`].
    #[inline]
    pub(in crate::fabric) fn wait(
        self,
        cq: &dyn CompletionQueue,
        entries: &mut [cq::Entry],
    ) -> selvedge::Result<usize> {
        if self.strategy == WaitStrategy::Spin {
            self.idle.wait_between_calls();
            return Ok(0);
        }
        self.wait_without_spinning(cq, entries)
    }

    #[cold]
    fn wait_without_spinning(
        self,
        cq: &dyn CompletionQueue,
        entries: &mut [cq::Entry],
    ) -> selvedge::Result<usize> {
        match self.strategy {
            WaitStrategy::Spin | WaitStrategy::Yield => std::thread::yield_now(),
            WaitStrategy::Fd if cq.try_wait().is_ok() => {
                let fd = cq.wait_fd().ok_or(Errno::NoSys)?;
                let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
                // The queue is read again after any outcome.
                let _ = poll(&mut fds, PollTimeout::from(WAIT_TIMEOUT_MS));
            }
            WaitStrategy::Fd => {}
            WaitStrategy::Sleep => {
                let timeout = Duration::from_millis(WAIT_TIMEOUT_MS.into());
                return match cq.wait(entries, Some(timeout)) {
                    Err(Errno::Again) => Ok(0),
                    read => read,
                };
            }
        }
        Ok(0)
    }

    /// Waits before a post is tried again.
    pub(in crate::fabric) fn wait_before_repost(self) {
        match self.strategy {
            WaitStrategy::Spin => self.idle.wait_between_calls(),
            _ => std::thread::yield_now(),
        }
    }
}

/// Time limit of one wait, in milliseconds. The limit lets a process without completions notice its
/// deadline.
const WAIT_TIMEOUT_MS: u16 = 1000;
