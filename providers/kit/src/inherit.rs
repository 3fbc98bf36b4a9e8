//! What children do not inherit: the sockets.
//!
//! fork(2) gives a child copies of all descriptors. With a copy of an endpoint's sockets, a child
//! that has no use for them would keep the endpoint's name and its connections alive after the
//! endpoint is gone. So libc's fork calls a hook of ours in the child, which puts a dead socket in
//! the place of each. The parent's are not touched by that.
//!
//! Children that are made past libc keep their copies. Peers notice the end of the process all the
//! same, by its pidfd, and closing shuts a connection down for all who hold it; only the name stays
//! taken.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A descriptor that children do not inherit, or something that holds one.
#[derive(Debug)]
pub struct Uninherited<F: AsRawFd = OwnedFd>(F);

impl<F: AsRawFd> Uninherited<F> {
    /// Keeps a descriptor from the children that are made from now on.
    pub fn new(fd: F) -> Self {
        hook::install();
        mark(fd.as_raw_fd());
        Self(fd)
    }

    /// The descriptor.
    pub fn fd(&self) -> &F {
        &self.0
    }
}

impl<F: AsRawFd + AsFd> AsFd for Uninherited<F> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl<F: AsRawFd> AsRawFd for Uninherited<F> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl<F: AsRawFd> Drop for Uninherited<F> {
    /// Before the number can become another descriptor's.
    fn drop(&mut self) {
        if let Some((word, bit)) = place(self.0.as_raw_fd()) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

/// Descriptors with higher numbers are inherited: the table is there for a hook that may neither
/// allocate nor wait.
const FDS: usize = 1 << 20;

/// A bit for each descriptor of this process that children do not inherit.
static MARKED: [AtomicU64; FDS / 64] = [const { AtomicU64::new(0) }; FDS / 64];
/// Words of the table that were ever used.
static USED: AtomicUsize = AtomicUsize::new(0);

fn place(fd: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok().filter(|&fd| fd < FDS)?;
    Some((&MARKED[fd / 64], 1 << (fd % 64)))
}

fn mark(fd: RawFd) {
    if let Some((word, bit)) = place(fd) {
        word.fetch_or(bit, Ordering::Relaxed);
        USED.fetch_max(fd.unsigned_abs() as usize / 64 + 1, Ordering::Relaxed);
    }
}

#[expect(unsafe_code, reason = "a hook of libc's, and what may be called there")]
mod hook {
    use super::{MARKED, Once, Ordering, RawFd, USED};

    pub(super) fn install() {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(|| {
            // SAFETY: `in_child` calls only what a child may call right after fork, and lives as
            // long as the process. Where there is no memory for the hook, children inherit.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
    }

    /// Runs in a child, before fork returns there.
    extern "C" fn in_child() {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: a system call with integers.
        let dead = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
        if dead < 0 {
            return;
        }
        let used = USED.load(Ordering::Relaxed);
        for (index, word) in MARKED.iter().enumerate().take(used) {
            let mut bits = word.swap(0, Ordering::Relaxed);
            while bits != 0 {
                let fd = index * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                // SAFETY: the number stays a descriptor of whoever holds it; nobody holds `dead`.
                unsafe { libc::dup3(dead, fd as RawFd, libc::O_CLOEXEC) };
            }
        }
        // SAFETY: made above and known to nobody else.
        unsafe { libc::close(dead) };
    }
}
