//! What sleepers sleep on: an `epoll(7)` descriptor over those of the endpoints, a bell for whoever
//! pushes, and a timer for those who poll the descriptor themselves.

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
pub(super) struct Set {
    epoll: Epoll,
    bell: EventFd,
    /// Whether the bell has rung since it was made quiet: most who lie down find that it has not.
    /// Set behind the ringing, so that a bell that rings is always made quiet in the end.
    has_rung: AtomicBool,
    /// Made when it is first needed.
    timer: OnceLock<TimerFd>,
}

impl Set {
    pub(super) fn open(what: &str) -> Result<Self, Error> {
        let failed = |cause| failed(&format!("{what}: a wait object"), cause);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed)?;
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let bell = EventFd::from_value_and_flags(0, flags).map_err(failed)?;
        let set = Self {
            epoll,
            bell,
            has_rung: AtomicBool::new(false),
            timer: OnceLock::new(),
        };
        set.add(set.bell.as_fd())?;
        Ok(set)
    }

    /// The descriptor that is ready when something in the set is.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    /// Adds a descriptor. Adding twice is adding once.
    pub(super) fn add(&self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, 0);
        match self.epoll.add(fd, event) {
            Ok(()) | Err(nix::errno::Errno::EEXIST) => Ok(()),
            Err(cause) => Err(failed("waiting for an endpoint", cause)),
        }
    }

    /// Takes a descriptor out.
    pub(super) fn remove(&self, fd: BorrowedFd<'_>) {
        // It fails for one that is not there, which is as well.
        let _ = self.epoll.delete(fd);
    }

    /// Makes the set ready until [`Self::quiet`].
    pub(super) fn ring(&self) {
        // It fails when it has rung 2^64 times, and is ready then too.
        let _ = self.bell.write(1);
        self.has_rung.store(true, Ordering::Release);
    }

    pub(super) fn quiet(&self) {
        if self.has_rung.swap(false, Ordering::AcqRel) {
            // It fails when what rang was read already.
            let _ = self.bell.read();
        }
    }

    /// Sleeps until something in the set is ready, the time is over, or a signal of the system
    /// comes.
    pub(super) fn sleep(&self, bound: Option<Duration>) {
        let mut fds = [PollFd::new(self.fd(), PollFlags::POLLIN)];
        // Every way in which the call returns is a reason to look again.
        let _ = ppoll(&mut fds, bound.map(time), None);
    }

    /// Has the set become ready after this time, or not by time.
    ///
    /// # Errors
    /// [`Errno::Again`] when there is no timer to be had: whoever wants to sleep has to look
    /// instead.
    pub(super) fn expire(&self, bound: Option<Duration>) -> Result {
        match bound {
            None => match self.timer.get() {
                Some(timer) => timer.unset().map_err(again),
                None => Ok(()),
            },
            Some(bound) => {
                let expiration = Expiration::OneShot(time(bound));
                let timer = self.timer()?;
                let flags = TimerSetTimeFlags::empty();
                timer.set(expiration, flags).map_err(again)
            }
        }
    }

    fn timer(&self) -> Result<&TimerFd> {
        if let Some(timer) = self.timer.get() {
            return Ok(timer);
        }
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(again)?;
        let timer = self.timer.get_or_init(|| timer);
        self.add(timer.as_fd()).map_err(|_| Errno::Again)?;
        Ok(timer)
    }
}

/// Times beyond what the kernel counts to are as good as its longest.
fn time(bound: Duration) -> TimeSpec {
    const LONGEST: Duration = Duration::from_hours(24);
    TimeSpec::from_duration(bound.min(LONGEST))
}

fn again(_: nix::errno::Errno) -> Errno {
    Errno::Again
}

fn failed(what: &str, cause: nix::errno::Errno) -> Error {
    Error::new(Errno::from_raw(cause as i32), what).because(cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_ready(set: &Set) -> bool {
        let mut fds = [PollFd::new(set.fd(), PollFlags::POLLIN)];
        ppoll(&mut fds, Some(time(Duration::ZERO)), None).unwrap() == 1
    }

    #[test]
    fn a_set_is_ready_from_the_ring_to_the_quiet() {
        let set = Set::open("a test").unwrap();
        assert!(!is_ready(&set));
        set.ring();
        set.ring();
        assert!(is_ready(&set));
        set.sleep(None);
        set.quiet();
        assert!(!is_ready(&set));
        set.quiet();
        set.sleep(Some(Duration::ZERO));
    }

    #[test]
    fn whoever_rings_meanwhile_is_made_quiet_in_the_end() {
        const ROUNDS: usize = 200;
        let set = Set::open("a test").unwrap();
        for _ in 0..ROUNDS {
            std::thread::scope(|scope| {
                let ringer = scope.spawn(|| set.ring());
                while !ringer.is_finished() {
                    set.quiet();
                }
            });
            set.quiet();
            assert!(!is_ready(&set), "a bell rings that nobody knows of");
        }
    }

    #[test]
    fn a_set_is_ready_with_any_of_its_members_and_with_its_timer() {
        let set = Set::open("a test").unwrap();
        let member = Set::open("another").unwrap();
        set.add(member.fd()).unwrap();
        set.add(member.fd()).unwrap();
        member.ring();
        assert!(is_ready(&set));
        set.remove(member.fd());
        set.remove(member.fd());
        assert!(!is_ready(&set));
        set.expire(None).unwrap();
        set.expire(Some(Duration::from_nanos(1))).unwrap();
        set.sleep(None);
        set.expire(None).unwrap();
        assert!(!is_ready(&set));
    }
}
