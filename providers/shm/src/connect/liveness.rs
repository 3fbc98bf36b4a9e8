//! Whether a peer lives, as the kernel knows it.
//!
//! Two facts: the end of the socket to the peer (it closed, died or called exec), and the peer's
//! pidfd (it died, even when a child of its holds copies of its descriptors). Neither depends on
//! time.

use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Whether one of `events` has happened to the descriptor. One that has come to its end is ready
/// for everything.
pub(crate) fn is_ready(fd: &OwnedFd, events: PollFlags) -> bool {
    let mut fds = [PollFd::new(fd.as_fd(), events)];
    matches!(poll(&mut fds, PollTimeout::ZERO), Ok(1))
}

/// Opens a descriptor that becomes readable when the process dies. `None` where the kernel does not
/// offer it or the process cannot be seen; the socket's end must do then. The number may have passed
/// to another process: for kernels before 6.5, which do not offer the descriptor with the socket.
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
