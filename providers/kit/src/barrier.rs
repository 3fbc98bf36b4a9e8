//! Fences that one thread pays for and others get: `membarrier(2)`.
//!
//! Two threads each store a word and then load the other's, and at least one has to see the other's
//! store. Each needs a full fence in between. Where one of them is about to sleep anyway, it makes
//! one run on the processors of the others, and they need none of their own but for the compiler.

#![expect(unsafe_code, reason = "no wrapper for membarrier(2)")]

/// Whose processors run the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those of this process's threads.
    Process,
    /// Those of all threads of all processes that have registered.
    Machine,
}

/// Has this process take part in fences of a scope. `false` where the kernel cannot (before 4.16)
/// or may not do that. To be said again after a fork; saying it again does no harm.
pub fn register(scope: Scope) -> bool {
    membarrier(match scope {
        Scope::Process => libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED,
        Scope::Machine => libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED,
    })
}

/// Runs a full fence on every processor that runs a thread of the scope. `false` when that did not
/// work.
pub fn everywhere(scope: Scope) -> bool {
    membarrier(match scope {
        Scope::Process => libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED,
        Scope::Machine => libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED,
    })
}

fn membarrier(cmd: libc::c_int) -> bool {
    // Miri has no such call.
    // SAFETY: a system call with integers; it touches no memory of ours.
    !cfg!(miri) && unsafe { libc::syscall(libc::SYS_membarrier, cmd, 0, 0) == 0 }
}
