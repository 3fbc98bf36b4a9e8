//! Memory fences that one thread runs on the processors of other threads: `membarrier(2)`.
//!
//! Two threads each store a word and then load the other's; at least one of them must see the
//! other's store. Each needs a full fence between its store and its load. Where one of them is
//! about to park, it runs the fence on the processors of the others, and they need a compiler fence
//! only.

#![expect(unsafe_code, reason = "no wrapper for membarrier(2)")]

/// The threads whose processors run the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The threads of this process.
    Process,
    /// The threads of all processes that have registered.
    Machine,
}

/// Registers this process for fences of a scope. `false` if the kernel does not support it (before
/// 4.16) or refuses it. A forked child has to register again; registering twice is harmless.
pub fn register(scope: Scope) -> bool {
    membarrier(match scope {
        Scope::Process => libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED,
        Scope::Machine => libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED,
    })
}

/// Runs a full fence on every processor that runs a thread of the scope. `false` if the system call
/// failed.
pub fn fence_all(scope: Scope) -> bool {
    membarrier(match scope {
        Scope::Process => libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED,
        Scope::Machine => libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED,
    })
}

fn membarrier(cmd: libc::c_int) -> bool {
    // Miri has no such call.
    // SAFETY: a system call with integers; it accesses no memory of this process.
    !cfg!(miri) && unsafe { libc::syscall(libc::SYS_membarrier, cmd, 0, 0) == 0 }
}
