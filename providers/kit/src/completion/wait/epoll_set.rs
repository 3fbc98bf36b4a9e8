//! The set that waiting threads park on: an `epoll(7)` descriptor over those of the endpoints, an
//! `eventfd(2)` that wakes the threads, and a timer for programs that poll the descriptor
//! themselves.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use selvedge::{Errno, Error, Result};

#[derive(Debug)]
pub(super) struct EpollSet {
    epoll: Epoll,
    wakeup: EventFd,
    /// Whether `wakeup` was written since the last clear. Without a write, [`Self::clear`] makes no
    /// system call. The flag is set after the write, so that every write is cleared in the end.
    is_signalled: AtomicBool,
    /// The timer, which is made at its first use.
    timer: OnceLock<TimerFd>,
}

impl EpollSet {
    pub(super) fn open(owner: &str) -> Result<Self, Error> {
        let open_error = |cause| system_error(&format!("{owner}: a wait object"), cause);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(open_error)?;
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wakeup = EventFd::from_value_and_flags(0, flags).map_err(open_error)?;
        let set = Self {
            epoll,
            wakeup,
            is_signalled: AtomicBool::new(false),
            timer: OnceLock::new(),
        };
        set.add(set.wakeup.as_fd())?;
        Ok(set)
    }

    /// The descriptor that is ready when a member of the set is.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    /// Adds a descriptor. Adding a member has no effect.
    pub(super) fn add(&self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, 0);
        match self.epoll.add(fd, event) {
            Ok(()) | Err(nix::errno::Errno::EEXIST) => Ok(()),
            Err(cause) => Err(system_error("waiting for an endpoint", cause)),
        }
    }

    /// Removes a descriptor.
    pub(super) fn remove(&self, fd: BorrowedFd<'_>) {
        // The call fails for a descriptor that is not in the set, which is harmless.
        let _ = self.epoll.delete(fd);
    }

    /// Makes the set ready until [`Self::clear`].
    pub(super) fn wake(&self) {
        // The write fails when the count has reached 2^64 - 1, and then the descriptor is ready.
        let _ = self.wakeup.write(1);
        self.is_signalled.store(true, Ordering::Release);
    }

    pub(super) fn clear(&self) {
        if self.is_signalled.swap(false, Ordering::AcqRel) {
            // The read fails when another thread has read the count.
            let _ = self.wakeup.read();
        }
    }

    /// Parks until a member of the set is ready, the timeout has passed, or a signal of the system
    /// arrives.
    pub(super) fn park(&self, timeout: Option<Duration>) {
        let mut fds = [PollFd::new(self.fd(), PollFlags::POLLIN)];
        // Every return is a reason to check the condition again.
        let _ = ppoll(&mut fds, timeout.map(timespec), None);
    }

    /// Makes the set ready after this time, or disarms the timer.
    ///
    /// # Errors
    /// [`Errno::Again`] if no timer can be made: the thread has to poll instead of parking.
    pub(super) fn set_timer(&self, timeout: Option<Duration>) -> Result {
        match timeout {
            None => match self.timer.get() {
                Some(timer) => timer.unset().map_err(to_again),
                None => Ok(()),
            },
            Some(timeout) => {
                let expiration = Expiration::OneShot(timespec(timeout));
                let timer = self.timer()?;
                let flags = TimerSetTimeFlags::empty();
                timer.set(expiration, flags).map_err(to_again)
            }
        }
    }

    fn timer(&self) -> Result<&TimerFd> {
        if let Some(timer) = self.timer.get() {
            return Ok(timer);
        }
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(to_again)?;
        let timer = self.timer.get_or_init(|| timer);
        self.add(timer.as_fd()).map_err(|_| Errno::Again)?;
        Ok(timer)
    }
}

/// Converts a timeout. A longer one than a day, which may be beyond the kernel's range, becomes a
/// day.
fn timespec(timeout: Duration) -> TimeSpec {
    const LONGEST: Duration = Duration::from_hours(24);
    TimeSpec::from_duration(timeout.min(LONGEST))
}

fn to_again(_: nix::errno::Errno) -> Errno {
    Errno::Again
}

fn system_error(message: &str, cause: nix::errno::Errno) -> Error {
    Error::new(Errno::from_raw(cause as i32), message).because(cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_ready(set: &EpollSet) -> bool {
        let mut fds = [PollFd::new(set.fd(), PollFlags::POLLIN)];
        ppoll(&mut fds, Some(timespec(Duration::ZERO)), None).unwrap() == 1
    }

    #[test]
    fn a_set_is_ready_from_wake_to_clear() {
        let set = EpollSet::open("a test").unwrap();
        assert!(!is_ready(&set));
        set.wake();
        set.wake();
        assert!(is_ready(&set));
        set.park(None);
        set.clear();
        assert!(!is_ready(&set));
        set.clear();
        set.park(Some(Duration::ZERO));
    }

    #[test]
    fn a_concurrent_wake_is_cleared_in_the_end() {
        const ROUNDS: usize = 200;
        let set = EpollSet::open("a test").unwrap();
        for _ in 0..ROUNDS {
            std::thread::scope(|scope| {
                let waker = scope.spawn(|| set.wake());
                while !waker.is_finished() {
                    set.clear();
                }
            });
            set.clear();
            assert!(!is_ready(&set), "a wake-up stays pending");
        }
    }

    #[test]
    fn a_set_is_ready_with_any_of_its_members_and_with_its_timer() {
        let set = EpollSet::open("a test").unwrap();
        let member = EpollSet::open("another").unwrap();
        set.add(member.fd()).unwrap();
        set.add(member.fd()).unwrap();
        member.wake();
        assert!(is_ready(&set));
        set.remove(member.fd());
        set.remove(member.fd());
        assert!(!is_ready(&set));
        set.set_timer(None).unwrap();
        set.set_timer(Some(Duration::from_nanos(1))).unwrap();
        set.park(None);
        set.set_timer(None).unwrap();
        assert!(!is_ready(&set));
    }
}
