//! Descriptors that children do not inherit through fork(2): the sockets.
//!
//! fork(2) gives a child copies of all descriptors. A child with a copy of an endpoint's sockets
//! would keep the endpoint's name and its connections alive after the endpoint is closed. So a fork
//! handler in libc (`pthread_atfork(3)`) replaces each marked descriptor in the child by an
//! unconnected socket. The parent's descriptors are not affected.
//!
//! Children that are made without libc's fork keep their copies. Peers still notice the end of the
//! process, by its pidfd, and a close shuts the connection down for all holders; only the name
//! stays taken.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A descriptor that children do not inherit, or an object that owns one.
#[derive(Debug)]
pub struct CloseOnFork<F: AsRawFd = OwnedFd>(F);

impl<F: AsRawFd> CloseOnFork<F> {
    /// Excludes a descriptor from the children that are made from now on.
    pub fn new(fd: F) -> Self {
        fork_handler::install();
        mark(fd.as_raw_fd());
        Self(fd)
    }

    /// The descriptor.
    pub fn fd(&self) -> &F {
        &self.0
    }
}

impl<F: AsRawFd + AsFd> AsFd for CloseOnFork<F> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl<F: AsRawFd> AsRawFd for CloseOnFork<F> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl<F: AsRawFd> Drop for CloseOnFork<F> {
    /// Unmarks the number before the system can give it to another descriptor.
    fn drop(&mut self) {
        if let Some((word, bit)) = bit_of(self.0.as_raw_fd()) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

/// Descriptors with higher numbers are inherited: the table has a fixed size because the fork
/// handler may neither allocate nor wait.
const FDS: usize = 1 << 20;

/// A bit for each descriptor of this process that children do not inherit.
static MARKED: [AtomicU64; FDS / 64] = [const { AtomicU64::new(0) }; FDS / 64];
/// The number of leading words of the table that were ever used.
static USED: AtomicUsize = AtomicUsize::new(0);

fn bit_of(fd: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok().filter(|&fd| fd < FDS)?;
    Some((&MARKED[fd / 64], 1 << (fd % 64)))
}

fn mark(fd: RawFd) {
    if let Some((word, bit)) = bit_of(fd) {
        word.fetch_or(bit, Ordering::Relaxed);
        USED.fetch_max(fd.unsigned_abs() as usize / 64 + 1, Ordering::Relaxed);
    }
}

#[expect(
    unsafe_code,
    reason = "a fork handler of libc, and the system calls in it"
)]
mod fork_handler {
    use super::{MARKED, Once, Ordering, RawFd, USED};

    pub(super) fn install() {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(|| {
            // SAFETY: `replace_descriptors` calls only async-signal-safe functions, and exists as
            // long as the process. If there is no memory for the handler, children inherit.
            unsafe { libc::pthread_atfork(None, None, Some(replace_descriptors)) };
        });
    }

    /// Runs in a child, before fork returns there.
    extern "C" fn replace_descriptors() {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: a system call with integers.
        let unconnected = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
        if unconnected < 0 {
            return;
        }
        let used = USED.load(Ordering::Relaxed);
        for (index, word) in MARKED.iter().enumerate().take(used) {
            let mut bits = word.swap(0, Ordering::Relaxed);
            while bits != 0 {
                let fd = index * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                // SAFETY: `fd` stays a descriptor of its owner; no other code has `unconnected`.
                unsafe { libc::dup3(unconnected, fd as RawFd, libc::O_CLOEXEC) };
            }
        }
        // SAFETY: made above; no other code has it.
        unsafe { libc::close(unconnected) };
    }
}
