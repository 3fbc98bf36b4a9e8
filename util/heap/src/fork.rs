//! What the heap does around fork(2).
//!
//! Before a fork, a private mapping of each arena's file, which was made with the arena, takes the
//! place of the shared one, in one call. The bytes stay, because a private mapping shows the file's
//! pages until they are written. From then on the writes of parent and child are their own, and a
//! peer that copies a message finds the bytes that were sent. The heap no longer offers the arena;
//! new allocations come from new ones.
//!
//! vfork(2) and posix_spawn(3) share the address space until the child executes a program, and need
//! nothing. A raw clone(2), and `_Fork`, run no handlers: parent and child share the arenas until
//! the child enters the heap. It finds that a page of it was zeroed, separates its memory then, and
//! says so on standard error.

#![expect(unsafe_code, reason = "handlers of pthread_atfork(3)")]

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use crate::arenas::{Arenas, HEAP};
use crate::system;

/// The word that the kernel zeroes in children; null until [`install`].
static WORD: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());

const OWNER: u64 = 1;
/// A thread of a child is entering it.
const ENTERING: u64 = 2;
/// The value in a new child.
const WIPED: u64 = 0;

/// Whether a thread is between its handlers before and after a fork.
static IS_FORKING: AtomicBool = AtomicBool::new(false);

/// Installs the handlers. Returns `false` if the system refuses them.
pub(crate) fn install() -> bool {
    if let Some(word) = system::map_fork_word() {
        word.store(OWNER, Ordering::Relaxed);
        WORD.store(ptr::from_ref(word).cast_mut(), Ordering::Release);
    }
    // SAFETY: the functions are in a library that is never unloaded, and may be called at any fork.
    unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) == 0 }
}

extern "C" fn prepare() {
    // A thread that is inside the heap already leaves the child to `enter_child`.
    if HEAP.hold(Arenas::separate_all).is_some() {
        IS_FORKING.store(true, Ordering::Relaxed);
    }
}

extern "C" fn parent() {
    if IS_FORKING.swap(false, Ordering::Relaxed) {
        HEAP.release();
    }
}

extern "C" fn child() {
    check_process();
    if IS_FORKING.swap(false, Ordering::Relaxed) {
        // Without a word (before Linux 4.14), nothing else has freed the lock.
        // SAFETY: a forked child has one thread until it makes others.
        unsafe { HEAP.reset() };
    }
}

/// Makes the heap usable in a child, before its first use there.
#[inline]
pub(crate) fn check_process() {
    let word = WORD.load(Ordering::Acquire);
    // SAFETY: null, or the word of a page that stays mapped for good.
    let Some(word) = (unsafe { word.as_ref() }) else {
        return;
    };
    if word.load(Ordering::Acquire) != OWNER {
        enter_child(word);
    }
}

#[cold]
fn enter_child(word: &AtomicU64) {
    let order = Ordering::AcqRel;
    if word
        .compare_exchange(WIPED, ENTERING, order, Ordering::Acquire)
        .is_err()
    {
        while word.load(Ordering::Acquire) == ENTERING {
            std::thread::yield_now();
        }
        return;
    }
    IS_FORKING.store(false, Ordering::Relaxed);
    // SAFETY: the word was zeroed when this child was made, and nothing has entered the heap since.
    // A child has one thread then; those that it makes before this call have not entered the heap
    // either, and wait above.
    unsafe { HEAP.reset() };
    if HEAP.with(Arenas::separate_from_parent) == Some(true) {
        system::print_error(&[
            b"this child was made without the handlers of fork (clone or _Fork): until now it \
              shared its large allocations with its parent",
        ]);
    }
    word.store(OWNER, Ordering::Release);
}
