//! Lets go of descriptors that another process has chosen, in a thread that nothing waits for.
//!
//! The last close of a file may block for as long as its maker likes: a TCP socket with `SO_LINGER`
//! and unsent bytes, a file of a file system that does not answer. It takes place in whichever thread
//! drops the last reference: by close(2), by recvmsg(2) where a descriptor has no room, by closing a
//! socket in whose queue such a descriptor waits. A thread of the application must do none of that to
//! the socket of a process that was refused.
//!
//! [`Collected`] puts a socket into the queue of another one that is in its own queue, too. When
//! both are closed here, nobody can reach them any more, and the kernel's collector of sockets lets
//! go of them: since Linux 6.9 in a thread of the kernel. Older kernels collect in the thread that
//! closes a socket; there [`discard`] starts a thread.

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use nix::sys::signal::SigSet;
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, sendmsg, socketpair,
};
use nix::sys::utsname::uname;
use selvedge_kit::close_on_fork::CloseOnFork;

/// The first Linux whose collector of sockets has a thread of its own.
const COLLECTS_ASIDE: (u32, u32) = (6, 9);
/// Threads that close descriptors at a time, on an older kernel.
const THREADS_MAX: usize = 8;
/// Descriptors that go into a queue in one message: `SCM_MAX_FD` but that of the queue itself.
const HELD: usize = 252;

/// Threads that are closing a descriptor.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Closes the descriptors that came with a packet of a process that was refused, without waiting: all
/// of them together, by the kernel or in one thread.
pub(crate) fn discard(fds: Vec<OwnedFd>) {
    let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    let collected = Collected::hold(&borrowed);
    close_with(collected, fds);
}

/// Closes descriptors that the kernel collects, or has a thread close them.
fn close_with(collected: Option<Collected>, fds: Vec<OwnedFd>) {
    match collected {
        Some(collected) => {
            drop(fds);
            drop(collected);
        }
        None => drop_in_thread(fds),
    }
}

/// Whether as many threads as there may be wait for the last close of a descriptor. New connections
/// have to wait then.
pub(crate) fn is_behind() -> bool {
    THREADS.load(Ordering::Relaxed) >= THREADS_MAX
}

/// What keeps a socket while it is closed. Dropped after the socket.
#[derive(Debug)]
pub(crate) enum Keeper {
    /// The kernel.
    Collected { _by: Collected },
    /// A thread.
    Thread(Option<Arc<CloseOnFork>>),
}

impl Keeper {
    /// Keeps a socket of a process that was refused.
    pub(crate) fn of_refused(socket: &Arc<CloseOnFork>) -> Self {
        let collected = Self::of_peer(socket);
        collected.unwrap_or_else(|| Self::Thread(Some(Arc::clone(socket))))
    }

    /// Keeps a socket of a process of our own user, where that takes no thread.
    pub(crate) fn of_peer(socket: &Arc<CloseOnFork>) -> Option<Self> {
        let collected = Collected::hold(&[socket.as_fd()]);
        collected.map(|by| Self::Collected { _by: by })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Self::Thread(socket) = self {
            drop_in_thread(socket.take());
        }
    }
}

/// The queue that keeps a socket until the kernel collects both.
#[derive(Debug)]
pub(crate) struct Collected {
    _queue: OwnedFd,
    _way_in: OwnedFd,
}

impl Collected {
    /// Has the kernel let go of descriptors once they are closed here. `None` where the kernel would do
    /// so in this thread, or is short of something.
    fn hold(fds: &[BorrowedFd<'_>]) -> Option<Self> {
        if !collects_aside() {
            return None;
        }
        let (kind, flags) = (SockType::SeqPacket, SockFlag::SOCK_CLOEXEC);
        let (queue, way_in) = socketpair(AddressFamily::Unix, kind, None, flags).ok()?;
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        for some in fds.chunks(HELD) {
            let mut held: Vec<_> = some.iter().map(AsRawFd::as_raw_fd).collect();
            held.push(queue.as_raw_fd());
            let rights = [ControlMessage::ScmRights(&held)];
            let iov = [IoSlice::new(&[0])];
            sendmsg::<UnixAddr>(way_in.as_raw_fd(), &iov, &rights, flags, None).ok()?;
        }
        Some(Self {
            _queue: queue,
            _way_in: way_in,
        })
    }
}

fn collects_aside() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let release = uname().ok();
        let release = release.as_ref().and_then(|name| name.release().to_str());
        release
            .and_then(version)
            .is_some_and(|v| v >= COLLECTS_ASIDE)
    })
}

/// The version that the name of a release begins with.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Drops descriptors in a thread of their own; in this one if there can be none.
fn drop_in_thread(fd: impl Send + 'static) {
    THREADS.fetch_add(1, Ordering::Relaxed);
    let kept = Arc::new(Mutex::new(Some(fd)));
    let of_thread = Arc::clone(&kept);
    let closing = move || {
        // Handlers of signals are for the application's threads.
        let _ = SigSet::all().thread_block();
        drop(take(&of_thread));
        THREADS.fetch_sub(1, Ordering::Relaxed);
    };
    let thread = thread::Builder::new().name("selvedge-close".to_owned());
    if thread.spawn(closing).is_err() {
        THREADS.fetch_sub(1, Ordering::Relaxed);
        drop(take(&kept));
    }
}

fn take<T>(kept: &Mutex<Option<T>>) -> Option<T> {
    kept.lock().unwrap_or_else(PoisonError::into_inner).take()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use nix::sys::socket::{setsockopt, sockopt};

    use super::*;

    /// A socket whose last close waits for an hour unless its other end is read to the end.
    fn lingering() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let linger = libc::linger {
            l_onoff: 1,
            l_linger: 3600,
        };
        setsockopt(&sender, sockopt::Linger, &linger).unwrap();
        sender.set_nonblocking(true).unwrap();
        while sender.write(&[0; 1 << 16]).is_ok() {}
        (sender.into(), listener.accept().unwrap().0)
    }

    /// Reads until the socket was closed, which proves that the bytes had not been read before.
    fn read_to_the_end(mut receiver: TcpStream) {
        let mut bytes = Vec::new();
        receiver.read_to_end(&mut bytes).unwrap();
        assert!(!bytes.is_empty());
    }

    #[test]
    fn a_last_close_that_waits_holds_up_no_thread_of_the_caller() {
        let (sender, receiver) = lingering();
        discard(vec![sender]);
        read_to_the_end(receiver);
    }

    /// Threads of this process that close descriptors.
    fn closing() -> usize {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")));
        names
            .filter(|name| {
                name.as_ref()
                    .is_ok_and(|name| name.starts_with("selvedge-close"))
            })
            .count()
    }

    #[test]
    fn descriptors_of_one_packet_take_one_thread_at_most() {
        let mut receivers = Vec::new();
        // Where the kernel collects aside, and where it does not.
        for discard in [discard, |fds| close_with(None, fds)] {
            let mut fds = Vec::new();
            for _ in 0..20 {
                let (sender, receiver) = lingering();
                fds.push(sender);
                receivers.push(receiver);
            }
            // As many as come with a packet.
            let more = (fds.len()..253).map(|_| fds[0].try_clone().unwrap());
            let more: Vec<_> = more.collect();
            fds.extend(more);
            if collects_aside() {
                let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
                assert!(Collected::hold(&borrowed).is_some());
            }
            discard(fds);
        }
        assert!(closing() <= 4, "{} threads", closing());
        // All at once: they are closed one after the other.
        let read = |receiver| thread::spawn(|| read_to_the_end(receiver));
        let readers: Vec<_> = receivers.into_iter().map(read).collect();
        readers
            .into_iter()
            .for_each(|reader| reader.join().unwrap());
    }

    #[test]
    fn a_last_close_that_waits_takes_a_thread_where_the_kernel_has_none() {
        let (sender, receiver) = lingering();
        drop_in_thread(sender);
        read_to_the_end(receiver);
    }

    #[test]
    fn a_release_begins_with_its_version() {
        assert_eq!(version("6.18.44-x"), Some((6, 18)));
        assert_eq!(version("5.15.0-91-generic"), Some((5, 15)));
        assert!((6, 10) >= COLLECTS_ASIDE && (5, 15) < COLLECTS_ASIDE);
        assert_eq!(version("?"), None);
    }
}
