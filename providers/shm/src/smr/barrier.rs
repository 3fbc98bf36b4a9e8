//! A fence that other processes pay for: `membarrier(2)`.
//!
//! A sender writes its command and then reads whether the receiver sleeps; a receiver says that it
//! sleeps and then looks for commands. Each needs a fence in between, or both may miss the other.
//! The receiver, who is about to sleep anyway, makes one run on the processors of all senders, and
//! they need none of their own.

#![expect(unsafe_code, reason = "no wrapper for membarrier(2)")]

/// Has this process take part in the fences of others. `false` where the kernel cannot (before 4.16)
/// or may not do that. To be said again after a fork; saying it again does no harm.
pub(crate) fn register() -> bool {
    membarrier(REGISTER_GLOBAL_EXPEDITED)
}

/// Runs a full fence on every processor that runs a thread of a process that has registered.
/// `false` when that did not work.
pub(crate) fn everywhere() -> bool {
    membarrier(GLOBAL_EXPEDITED)
}

/// linux/membarrier.h
const GLOBAL_EXPEDITED: i32 = 1 << 1;
const REGISTER_GLOBAL_EXPEDITED: i32 = 1 << 2;

fn membarrier(cmd: i32) -> bool {
    // SAFETY: a system call with integers; it touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, cmd, 0, 0) == 0 }
}
