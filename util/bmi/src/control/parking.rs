//! `Parking`: the parked threads of an instance, each with an eventfd. Other threads signal it when
//! they report events.
//!
//! A thread increments the count of parked threads before its last poll. A thread that reported
//! events reads the count when it releases the method's lock. Therefore either the parking thread
//! sees the events or it is signalled.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use selvedge_kit::wait::{SPIN, Spin};

use crate::{Code, Result};

/// The parked threads of an instance.
#[derive(Debug)]
pub(super) struct Parking {
    count: AtomicUsize,
    wake_fds: Mutex<Vec<Arc<EventFd>>>,
    /// The instance is being dropped: no thread parks any more.
    pub(super) is_ending: AtomicBool,
    /// How long threads poll before they park.
    pub(super) spin: Spin,
}

impl Parking {
    pub(super) fn new() -> Self {
        Self {
            count: AtomicUsize::new(0),
            wake_fds: Mutex::default(),
            is_ending: AtomicBool::new(false),
            spin: Spin::new(SPIN),
        }
    }

    /// Wakes all parked threads if there are any.
    #[inline]
    pub(super) fn wake(&self) {
        if self.count.load(Ordering::SeqCst) > 0 {
            self.signal_all();
        }
    }

    /// Wakes all threads that are parked, after a change that was made without a method's lock.
    #[cold]
    pub(super) fn wake_all(&self) {
        // A parking thread increments the count, reads the changed state, and parks. By the two
        // fences either this thread sees the count or that thread sees the change.
        fence(Ordering::SeqCst);
        self.wake();
    }

    #[cold]
    fn signal_all(&self) {
        for wake_fd in &*self.wake_fds() {
            // The write fails only if the counter is at its maximum. The thread is signalled
            // already then.
            let _ = wake_fd.write(1);
        }
    }

    fn wake_fds(&self) -> MutexGuard<'_, Vec<Arc<EventFd>>> {
        self.wake_fds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn arm(&self) -> Result<ParkGuard<'_>> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake_fd = WAKE_FD.with(|fd| {
            fd.get_or_init(|| EventFd::from_value_and_flags(0, flags).map(Arc::new))
                .clone()
        });
        let wake_fd = wake_fd.map_err(|errno| Code::of_system(errno as i32))?;
        self.wake_fds().push(Arc::clone(&wake_fd));
        self.count.fetch_add(1, Ordering::SeqCst);
        // Pairs with the fence of [`Self::wake_all`].
        fence(Ordering::SeqCst);
        Ok(ParkGuard {
            parking: self,
            wake_fd,
        })
    }
}

thread_local! {
    static WAKE_FD: std::cell::OnceCell<Result<Arc<EventFd>, Errno>> =
        const { std::cell::OnceCell::new() };
}

/// Guard of a thread that is parked or about to park.
#[derive(Debug)]
pub(super) struct ParkGuard<'a> {
    parking: &'a Parking,
    pub(super) wake_fd: Arc<EventFd>,
}

impl Drop for ParkGuard<'_> {
    fn drop(&mut self) {
        self.parking.count.fetch_sub(1, Ordering::SeqCst);
        let mut wake_fds = self.parking.wake_fds();
        if let Some(index) = wake_fds
            .iter()
            .position(|wake_fd| Arc::ptr_eq(wake_fd, &self.wake_fd))
        {
            wake_fds.swap_remove(index);
        }
        drop(wake_fds);
        // Drains signals that were meant for this park.
        let _ = self.wake_fd.read();
    }
}
