//! Where an object was born: tells the process that made it from children that fork(2) gave copies
//! of it to.
//!
//! The answer is a word in a page that the kernel wipes in every child (`MADV_WIPEONFORK`, Linux
//! 4.14; where that is missing, libc's fork wipes it). So asking is one load, and there is no pid to
//! compare.
//!
//! What a copy may be used for is the owner's decision; [`Native`] allows nothing.

#![expect(unsafe_code, reason = "a page of its own, and how children see it")]

use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use selvedge::{Errno, Error, Result};

use crate::lock::{Guard, Lock};

/// A process, as the birthplace of an object.
///
/// # Examples
///
/// ```
/// use selvedge_kit::birth::Birth;
///
/// let here = Birth::here();
/// assert!(here.is_here());
/// ```
#[derive(Clone, Copy)]
pub struct Birth {
    /// [`BORN`] in the process itself, 0 in its children.
    word: &'static AtomicU32,
}

const BORN: u32 = 1;

/// The word of the process that runs, or of one that it was forked from.
static CURRENT: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

impl Birth {
    /// The process that runs.
    ///
    /// # Panics
    /// When there is no memory for a page.
    pub fn here() -> Self {
        let known = CURRENT.load(Ordering::Acquire);
        match Self::at(known) {
            Some(birth) if birth.is_here() => birth,
            _ => Self::settle(known),
        }
    }

    /// Whether this is the process that runs.
    #[inline(always)]
    pub fn is_here(self) -> bool {
        self.word.load(Ordering::Relaxed) == BORN
    }

    /// # Errors
    /// [`Errno::BadF`] in a process that was forked from this one.
    #[inline(always)]
    pub fn check(self) -> Result {
        if self.is_here() {
            Ok(())
        } else {
            Err(Errno::BadF)
        }
    }

    /// The same, for what a person reads; `what` names the object.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn check_for(self, what: &dyn fmt::Debug) -> Result<(), Error> {
        self.check().map_err(|errno| {
            let what = format!("{what:?} belongs to the process that this one was forked from");
            Error::new(errno, what)
        })
    }

    /// Makes the page of a process that has none, unless another thread is faster.
    #[cold]
    fn settle(known: *mut AtomicU32) -> Self {
        let page = new_page();
        match CURRENT.compare_exchange(known, page, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Self::at(page).expect("a page is never at address zero"),
            Err(other) => {
                give_back(page);
                Self::at(other).expect("only pages are stored")
            }
        }
    }

    fn at(page: *mut AtomicU32) -> Option<Self> {
        let word = NonNull::new(page)?;
        // SAFETY: `CURRENT` holds what `new_page` made: mapped for good once it is stored there,
        // and aligned.
        let word = unsafe { word.as_ref() };
        Some(Self { word })
    }
}

impl fmt::Debug for Birth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_here() { "here" } else { "elsewhere" })
    }
}

const PAGE: usize = 4096;

/// A page that begins with [`BORN`] and that children see wiped.
fn new_page() -> *mut AtomicU32 {
    // SAFETY: a new mapping at an address of the system's choice; it touches nothing that exists.
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
    // Miri has no such call, and no children.
    // SAFETY: the whole mapping made above, of which nobody else knows.
    let is_wiped = cfg!(miri) || unsafe { libc::madvise(page, PAGE, libc::MADV_WIPEONFORK) } == 0;
    if !is_wiped {
        // SAFETY: the function only stores to a static and to a page that stays mapped.
        unsafe { libc::pthread_atfork(None, None, Some(wipe)) };
    }
    let word = page.cast::<AtomicU32>();
    // SAFETY: mapped, aligned to a page, and not shared yet.
    unsafe { word.write(AtomicU32::new(BORN)) };
    word
}

fn give_back(page: *mut AtomicU32) {
    // SAFETY: made by `new_page`, and no reference was made to it.
    unsafe { libc::munmap(page.cast(), PAGE) };
}

/// Does in a child what the kernel would not.
extern "C" fn wipe() {
    if let Some(birth) = Birth::at(CURRENT.load(Ordering::Relaxed)) {
        birth.word.store(0, Ordering::Relaxed);
    }
}

/// A locked value that only the process that made it gets at.
pub struct Native<T> {
    birth: Birth,
    lock: Lock<T>,
}

impl<T> Native<T> {
    /// Gives a value to the process that runs.
    pub fn new(lock: Lock<T>) -> Self {
        Self {
            birth: Birth::here(),
            lock,
        }
    }

    /// Waits until the lock is free, and takes it.
    ///
    /// # Errors
    /// [`Errno::BadF`] in a process that was forked from the one that made the value. The lock may
    /// be held there by a thread that does not exist: it is not waited for.
    ///
    /// # Panics
    /// As [`Lock::lock`].
    #[inline(always)]
    pub fn lock(&self) -> Result<Guard<'_, T>> {
        self.birth.check()?;
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
        self.birth.check()?;
        Ok(self.lock.lock_for_pass())
    }

    /// Takes the lock if that needs nothing else: [`Self::lock`] has the reason why it does.
    #[inline(always)]
    pub fn lock_at_once(&self) -> Option<Guard<'_, T>> {
        match self.birth.is_here() {
            true => self.lock.try_lock(),
            false => None,
        }
    }
}

impl<T> fmt::Debug for Native<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Native")
            .field("birth", &self.birth)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `child` in a forked process; whether it says yes.
    fn in_child(child: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child only loads, stores and maps before it exits.
        match unsafe { libc::fork() } {
            // SAFETY: ends the process without running anything of the test's.
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
    fn an_object_is_not_born_in_a_child_of_its_process() {
        let born = Birth::here();
        assert!(in_child(
            || !born.is_here() && born.check() == Err(Errno::BadF)
        ));
        assert!(born.is_here());
    }

    #[test]
    fn a_child_is_a_birthplace_of_its_own() {
        let parent = Birth::here();
        assert!(in_child(|| {
            let own = Birth::here();
            own.is_here() && Birth::here().is_here() && !parent.is_here()
        }));
    }

    #[test]
    fn a_value_that_is_held_at_the_fork_is_not_waited_for() {
        let native = Native::new(Lock::new(1));
        let held = native.lock().unwrap();
        assert!(in_child(|| native.lock().is_err()));
        drop(held);
        assert_eq!(*native.lock().unwrap(), 1);
    }
}
