//! The wait object of a queue or counter: what parked threads wait on, and how they are woken.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use selvedge::wait::Object;
use selvedge::{Errno, Error, Result};

use super::epoll_set::EpollSet;
use super::spin::Spin;
use crate::fork_guard::ForkGuard;

/// The wait object (fi_cq(3), fi_cntr(3), fi_eq(3)) of one queue or counter.
#[derive(Debug)]
pub(crate) struct WaitObject {
    object: Object,
    pub(super) fork_guard: ForkGuard,
    /// The set that threads park on, and the descriptor for `poll(2)`.
    pub(super) set: Option<EpollSet>,
    parking: Mutex<Parking>,
    /// Whether a thread is parked, or in `poll(2)`, and was not woken. While such a thread exists
    /// and the flag is `false`, the set is ready.
    pub(super) is_armed: AtomicBool,
    pub(super) signalled: AtomicBool,
    pub(super) spin: Spin,
}

/// The threads that are parked or in `poll(2)`.
#[derive(Debug, Default)]
pub(super) struct Parking {
    /// Threads inside [`WaitObject::wait`].
    pub(super) threads: usize,
    /// The time since which a thread may be in `poll(2)`.
    pub(super) fd_armed_at: Option<Instant>,
}

impl WaitObject {
    /// Opens the wait object of `owner`, as error texts call it. Threads poll for `spin` at most
    /// before they park.
    ///
    /// # Errors
    /// The system's error, if no descriptor is left; [`Errno::NoSys`], with the object's name, for
    /// an object that is not supported.
    pub(crate) fn open(owner: &str, object: Object, spin: Duration) -> Result<Arc<Self>, Error> {
        let set = match object {
            Object::None | Object::Yield => None,
            Object::Unspec | Object::Fd => Some(EpollSet::open(owner)?),
            _ => {
                let message = format!("{owner}: wait object {object:?} is not supported");
                return Err(Error::new(Errno::NoSys, message));
            }
        };
        Ok(Arc::new(Self {
            object,
            fork_guard: ForkGuard::current(),
            set,
            parking: Mutex::default(),
            is_armed: AtomicBool::new(false),
            signalled: AtomicBool::new(false),
            spin: Spin::new(spin),
        }))
    }

    /// Wakes the parked threads, which then check their conditions.
    #[cold]
    pub(crate) fn wake(&self) {
        if self.is_armed.load(Ordering::SeqCst)
            && self.fork_guard.is_owner()
            && self.is_armed.swap(false, Ordering::SeqCst)
            && let Some(set) = &self.set
        {
            set.wake();
        }
    }

    /// Whether the queue or counter was opened with a wait object.
    pub(crate) fn has_object(&self) -> bool {
        self.object != Object::None
    }

    /// Ends the wait of one thread: of one that waits now, or else of the next one that waits.
    pub(crate) fn signal(&self) -> Result {
        if !self.has_object() {
            return Err(Errno::NoSys);
        }
        self.fork_guard.check()?;
        self.signalled.store(true, Ordering::SeqCst);
        self.wake();
        Ok(())
    }

    /// The descriptor for `poll(2)`.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd_set().map(EpollSet::fd)
    }

    /// The set, if `poll(2)` may wait on it.
    pub(super) fn fd_set(&self) -> Option<&EpollSet> {
        self.set.as_ref().filter(|_| self.object == Object::Fd)
    }

    pub(super) fn parking(&self) -> MutexGuard<'_, Parking> {
        self.parking.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
