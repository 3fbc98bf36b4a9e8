//! Fork guard: distinguishes the process that made an object from children that inherited a copy of
//! the object through fork(2).
//!
//! The state is a word in a page that the kernel zeroes in every child (`MADV_WIPEONFORK`, Linux
//! 4.14; where that is missing, a libc fork handler zeroes it). A check is one load, without a
//! comparison of pids.
//!
//! The owner of the guard decides what a child may do with its copy. [`ForkGuarded`] allows no
//! access.

#![expect(unsafe_code, reason = "maps a page that the kernel zeroes in children")]

use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use selvedge::{Errno, Error, Result};

use crate::lock::{Guard, Lock};

/// The process that made an object.
///
/// # Examples
///
/// ```
/// use selvedge_kit::fork_guard::ForkGuard;
///
/// let guard = ForkGuard::current();
/// assert!(guard.is_owner());
/// ```
#[derive(Clone, Copy)]
pub struct ForkGuard {
    /// [`ALIVE`] in the process itself, 0 in its children.
    word: &'static AtomicU32,
}

const ALIVE: u32 = 1;

/// The word of the calling process, or of the process that it was forked from.
static CURRENT: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

impl ForkGuard {
    /// Makes a guard of the calling process.
    ///
    /// # Panics
    /// If there is no memory for a page.
    pub fn current() -> Self {
        let current = CURRENT.load(Ordering::Acquire);
        match Self::from_page(current) {
            Some(guard) if guard.is_owner() => guard,
            _ => Self::replace(current),
        }
    }

    /// Whether the calling process is the one that made the guard.
    #[inline(always)]
    pub fn is_owner(self) -> bool {
        self.word.load(Ordering::Relaxed) == ALIVE
    }

    /// Checks that the calling process made the guard.
    ///
    /// # Errors
    /// [`Errno::BadF`] in a forked child of that process.
    #[inline(always)]
    pub fn check(self) -> Result {
        if self.is_owner() {
            Ok(())
        } else {
            Err(Errno::BadF)
        }
    }

    /// As [`Self::check`], with an error whose text names `object`.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn check_for(self, object: &dyn fmt::Debug) -> Result<(), Error> {
        self.check().map_err(|errno| {
            let message = format!(
                "{object:?} belongs to the parent of this forked process; open it anew after fork(2)"
            );
            Error::new(errno, message)
        })
    }

    /// Makes the page of a process that has none, unless another thread does so first.
    #[cold]
    fn replace(current: *mut AtomicU32) -> Self {
        let page = new_page();
        match CURRENT.compare_exchange(current, page, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Self::from_page(page).expect("a page is never at address zero"),
            Err(other) => {
                unmap(page);
                Self::from_page(other).expect("only pages are stored")
            }
        }
    }

    fn from_page(page: *mut AtomicU32) -> Option<Self> {
        let word = NonNull::new(page)?;
        // SAFETY: `CURRENT` holds a pointer that `new_page` returned. Such a page stays mapped for
        // good once its address is stored there, and the word is aligned.
        let word = unsafe { word.as_ref() };
        Some(Self { word })
    }
}

impl fmt::Debug for ForkGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_owner() { "owner" } else { "child" })
    }
}

const PAGE: usize = 4096;

/// A page that begins with [`ALIVE`] and is zeroed in children.
fn new_page() -> *mut AtomicU32 {
    // SAFETY: a new mapping at an address of the system's choice; it changes no existing mapping.
    let page = unsafe {
        libc::mmap(
            ptr::null_mut(),
            PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(page, libc::MAP_FAILED, "no memory for one page");
    // Miri has neither the call nor child processes.
    // SAFETY: the whole mapping made above; no other code has its address yet.
    let is_wiped = cfg!(miri) || unsafe { libc::madvise(page, PAGE, libc::MADV_WIPEONFORK) } == 0;
    if !is_wiped {
        // SAFETY: the function only stores to a static and to a page that stays mapped.
        unsafe { libc::pthread_atfork(None, None, Some(wipe)) };
    }
    let word = page.cast::<AtomicU32>();
    // SAFETY: mapped, aligned to a page, and not shared yet.
    unsafe { word.write(AtomicU32::new(ALIVE)) };
    word
}

fn unmap(page: *mut AtomicU32) {
    // SAFETY: `new_page` made the mapping, and there is no reference to it.
    unsafe { libc::munmap(page.cast(), PAGE) };
}

/// Zeroes the word in a child, where the kernel cannot.
extern "C" fn wipe() {
    if let Some(guard) = ForkGuard::from_page(CURRENT.load(Ordering::Relaxed)) {
        guard.word.store(0, Ordering::Relaxed);
    }
}

/// A locked value that only the process that made it can access.
pub struct ForkGuarded<T> {
    fork_guard: ForkGuard,
    lock: Lock<T>,
}

impl<T> ForkGuarded<T> {
    /// Guards a value for the calling process.
    pub fn new(lock: Lock<T>) -> Self {
        Self {
            fork_guard: ForkGuard::current(),
            lock,
        }
    }

    /// Waits until the lock is free, and takes it.
    ///
    /// # Errors
    /// [`Errno::BadF`] in a process that was forked from the one that made the value. The child
    /// does not wait for the lock, because a thread that does not exist there may hold it.
    ///
    /// # Panics
    /// As [`Lock::lock`].
    #[inline(always)]
    pub fn lock(&self) -> Result<Guard<'_, T>> {
        self.fork_guard.check()?;
        Ok(self.lock.lock())
    }

    /// Takes the lock for a progress pass, after the threads that wait for it.
    ///
    /// # Errors
    /// As [`Self::lock`].
    ///
    /// # Panics
    /// As [`Lock::lock`].
    #[inline(always)]
    pub fn lock_for_pass(&self) -> Result<Guard<'_, T>> {
        self.fork_guard.check()?;
        Ok(self.lock.lock_for_pass())
    }

    /// Takes the lock if it is free, for a fast path: `None` if it is taken, and in a forked child.
    #[inline(always)]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        if self.fork_guard.is_owner() {
            self.lock.try_lock()
        } else {
            None
        }
    }
}

impl<T> fmt::Debug for ForkGuarded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForkGuarded")
            .field("fork_guard", &self.fork_guard)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `child` in a forked process. Returns whether `child` returned `true`.
    fn run_in_child(child: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child only loads, stores and maps before it exits.
        match unsafe { libc::fork() } {
            // SAFETY: ends the process without running other code of the test.
            0 => unsafe { libc::_exit(i32::from(!child())) },
            pid => {
                let mut status = 0;
                // SAFETY: waits for the child made above.
                let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
                assert_eq!(waited, pid);
                status == 0
            }
        }
    }

    #[test]
    fn a_guard_of_the_parent_fails_in_the_child() {
        let parent = ForkGuard::current();
        assert!(run_in_child(
            || !parent.is_owner() && parent.check() == Err(Errno::BadF)
        ));
        assert!(parent.is_owner());
    }

    #[test]
    fn a_child_has_a_guard_of_its_own() {
        let parent = ForkGuard::current();
        assert!(run_in_child(|| {
            let child = ForkGuard::current();
            child.is_owner() && ForkGuard::current().is_owner() && !parent.is_owner()
        }));
    }

    #[test]
    fn a_child_does_not_wait_for_a_lock_that_was_held_at_the_fork() {
        let guarded = ForkGuarded::new(Lock::new(1));
        let held = guarded.lock().unwrap();
        assert!(run_in_child(|| guarded.lock().is_err()));
        drop(held);
        assert_eq!(*guarded.lock().unwrap(), 1);
    }
}
