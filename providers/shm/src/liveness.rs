//! Whether a peer lives, as the kernel knows it.
//!
//! Two facts: the end of the socket to the peer (it closed, died or called exec), and the peer's
//! pidfd (it died, even when a child of its holds copies of its descriptors). Neither depends on
//! time.

use std::os::fd::{FromRawFd, OwnedFd};

/// Opens a descriptor that becomes readable when the process dies. `None` where the kernel does not
/// offer it or the process cannot be seen; the socket's end must do then.
#[expect(unsafe_code, reason = "no wrapper for pidfd_open(2)")]
pub(crate) fn pidfd(pid: i32) -> Option<OwnedFd> {
    if pid <= 0 {
        return None;
    }
    // SAFETY: a system call with two integers; it touches no memory of ours.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = i32::try_from(fd).ok().filter(|&fd| fd >= 0)?;
    // SAFETY: the call above has just made the descriptor for us.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}
