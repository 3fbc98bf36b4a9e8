//! Checks whether a peer is alive, by the kernel's information.
//!
//! There are two sources. The socket to the peer closes when the peer closes it, dies or calls
//! exec. The peer's pidfd becomes readable when the peer dies, even if a child of the peer holds
//! copies of its descriptors. Neither source depends on time.

use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Whether one of `events` is pending for the descriptor. A closed socket is ready for every event.
pub(crate) fn is_ready(fd: &OwnedFd, events: PollFlags) -> bool {
    let mut fds = [PollFd::new(fd.as_fd(), events)];
    matches!(poll(&mut fds, PollTimeout::ZERO), Ok(1))
}

/// Opens a descriptor that becomes readable when the process dies. `None` if the kernel lacks
/// pidfds or the process is not visible; then the socket alone reports the end. Only for kernels
/// before 6.5, which do not offer the pidfd with the socket: another process may have the number by
/// now.
#[expect(unsafe_code, reason = "no wrapper for pidfd_open(2)")]
pub(crate) fn pidfd(pid: i32) -> Option<OwnedFd> {
    if pid <= 0 {
        return None;
    }
    // SAFETY: a system call with two integers; it accesses no memory of this process.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = i32::try_from(fd).ok().filter(|&fd| fd >= 0)?;
    // SAFETY: the call above has just created the descriptor for this process.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}
