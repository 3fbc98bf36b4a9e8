//! `Parker`: one descriptor for everything that a hub waits for.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::Error;

/// A set of descriptors: those of the ports, a timer, and an event by which threads of this process
/// end a wait.
#[derive(Debug)]
pub(in crate::hub) struct Parker {
    epoll: Epoll,
    timer: TimerFd,
    event: EventFd,
    /// Whether the event was signalled and not taken.
    is_signalled: AtomicBool,
}

impl Parker {
    pub(in crate::hub) fn new<'a>(
        ports: impl Iterator<Item = Result<BorrowedFd<'a>, Error>>,
    ) -> Result<Self, Error> {
        let open = || -> Result<Self, Errno> {
            Ok(Self {
                epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
                timer: TimerFd::new(
                    ClockId::CLOCK_MONOTONIC,
                    TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK,
                )?,
                event: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
                is_signalled: AtomicBool::new(false),
            })
        };
        let parker = open().map_err(failed)?;
        parker.add(parker.timer.as_fd())?;
        parker.add(parker.event.as_fd())?;
        for port in ports {
            parker.add(port?)?;
        }
        Ok(parker)
    }

    fn add(&self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, 0);
        self.epoll.add(fd, event).map_err(failed)
    }

    /// The descriptor that is readable when a wait ends.
    pub(in crate::hub) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    /// Sets the timer.
    pub(in crate::hub) fn set_timer(&self, at: Instant) {
        let left = at.saturating_duration_since(Instant::now());
        // Zero would stop the timer.
        let left = TimeSpec::from_duration(left.max(Duration::from_nanos(1)));
        if let Err(errno) = self
            .timer
            .set(Expiration::OneShot(left), TimerSetTimeFlags::empty())
        {
            log::warn!("the timer of a hub cannot be set: {errno}");
        }
    }

    /// Ends the current wait, or the next one.
    pub(in crate::hub) fn signal(&self) {
        // A full counter is readable, too.
        let _ = self.event.write(1);
        // After the write: a thread that takes the signal finds the counter that it is to clear.
        self.is_signalled.store(true, Ordering::Release);
    }

    /// Takes the event of [`Self::signal`]. Without one, the call is no system call.
    pub(in crate::hub) fn take_signal(&self) {
        if self.is_signalled.load(Ordering::Acquire)
            && self.is_signalled.swap(false, Ordering::Acquire)
        {
            let _ = self.event.read();
        }
    }

    /// Takes the event of the timer. Returns whether there was one.
    pub(in crate::hub) fn take_expiration(&self) -> bool {
        let mut expirations = [0; 8];
        nix::unistd::read(&self.timer, &mut expirations).is_ok()
    }

    /// Blocks until the descriptor is readable or `timeout` has passed.
    pub(in crate::hub) fn block(&self, timeout: Option<Duration>) -> Result<(), Error> {
        let timeout = match timeout {
            None => PollTimeout::NONE,
            // Rounded up, so that the thread does not spin through the last millisecond.
            Some(timeout) => {
                let millis = timeout.as_nanos().div_ceil(1_000_000);
                PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
            }
        };
        match poll(&mut [PollFd::new(self.fd(), PollFlags::POLLIN)], timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Whether a wait would end at once.
    #[cfg(feature = "tokio")]
    pub(in crate::hub) fn is_readable(&self) -> bool {
        let mut fds = [PollFd::new(self.fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO) != Ok(0)
    }
}

fn failed(errno: Errno) -> Error {
    Error::Transport(format!("a hub cannot wait: {errno}"))
}
