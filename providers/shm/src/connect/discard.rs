//! Closes descriptors that another process has chosen, in a thread on which no other thread waits.
//!
//! The last close of a file may block without limit: a TCP socket with `SO_LINGER` and unsent
//! bytes, a file of a file system that does not respond. The last close takes place in the thread
//! that drops the last reference: by close(2), by recvmsg(2) without room for a descriptor, or by
//! closing a socket whose queue holds such a descriptor. A thread of the application must do none
//! of these to the socket of a refused process.
//!
//! [`KernelCollected`] puts a descriptor into the queue of a socket that is in its own queue, too.
//! When this process has closed the descriptor and the socket, both are unreachable, and the
//! kernel's garbage collector of sockets closes them: since Linux 6.9 in a kernel thread. Older
//! kernels collect in the thread that closes a socket; there [`discard`] starts a thread.

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

/// The first Linux version that collects sockets in a kernel thread.
const KERNEL_THREAD_SINCE: (u32, u32) = (6, 9);
/// The maximum number of threads that close descriptors at a time, on an older kernel.
const THREADS_MAX: usize = 8;
/// Descriptors per message: `SCM_MAX_FD` less the descriptor of the queue itself.
const DESCRIPTORS_PER_MESSAGE: usize = 252;

/// Number of threads that are closing a descriptor.
static CLOSING_THREADS: AtomicUsize = AtomicUsize::new(0);

/// Closes the descriptors of a refused packet without blocking. The kernel or one thread closes all
/// of them.
pub(crate) fn discard(fds: Vec<OwnedFd>) {
    let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    let collected = KernelCollected::hold(&borrowed);
    close_with(collected, fds);
}

/// Closes descriptors through the kernel's collector, or in a thread.
fn close_with(collected: Option<KernelCollected>, fds: Vec<OwnedFd>) {
    match collected {
        Some(collected) => {
            drop(fds);
            drop(collected);
        }
        None => drop_in_thread(fds),
    }
}

/// Whether the maximum number of threads is closing descriptors. New connections have to wait then.
pub(crate) fn is_saturated() -> bool {
    CLOSING_THREADS.load(Ordering::Relaxed) >= THREADS_MAX
}

/// A second reference to a socket, dropped after the socket: the last close then takes place
/// outside of the dropping thread.
#[derive(Debug)]
pub(crate) enum DeferredClose {
    /// The kernel closes the socket.
    KernelCollected { _holder: KernelCollected },
    /// A thread closes the socket.
    Thread(Option<Arc<CloseOnFork>>),
}

impl DeferredClose {
    /// Defers the close of a socket of a refused process.
    pub(crate) fn of_refused(socket: &Arc<CloseOnFork>) -> Self {
        let collected = Self::of_peer(socket);
        collected.unwrap_or_else(|| Self::Thread(Some(Arc::clone(socket))))
    }

    /// Defers the close of a socket of a process of the same user, if the kernel can close it.
    pub(crate) fn of_peer(socket: &Arc<CloseOnFork>) -> Option<Self> {
        let collected = KernelCollected::hold(&[socket.as_fd()]);
        collected.map(|holder| Self::KernelCollected { _holder: holder })
    }
}

impl Drop for DeferredClose {
    fn drop(&mut self) {
        if let Self::Thread(socket) = self {
            drop_in_thread(socket.take());
        }
    }
}

/// A socket queue that holds descriptors until the kernel collects the queue and the descriptors.
#[derive(Debug)]
pub(crate) struct KernelCollected {
    _queue: OwnedFd,
    _sender: OwnedFd,
}

impl KernelCollected {
    /// Passes descriptors to the kernel's collector, which closes them once this process has closed
    /// them. `None` if the kernel collects in the calling thread, or is out of memory or
    /// descriptors.
    fn hold(fds: &[BorrowedFd<'_>]) -> Option<Self> {
        if !collects_in_kernel_thread() {
            return None;
        }
        let (kind, flags) = (SockType::SeqPacket, SockFlag::SOCK_CLOEXEC);
        let (queue, sender) = socketpair(AddressFamily::Unix, kind, None, flags).ok()?;
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        for chunk in fds.chunks(DESCRIPTORS_PER_MESSAGE) {
            let mut held: Vec<_> = chunk.iter().map(AsRawFd::as_raw_fd).collect();
            held.push(queue.as_raw_fd());
            let rights = [ControlMessage::ScmRights(&held)];
            let iov = [IoSlice::new(&[0])];
            sendmsg::<UnixAddr>(sender.as_raw_fd(), &iov, &rights, flags, None).ok()?;
        }
        Some(Self {
            _queue: queue,
            _sender: sender,
        })
    }
}

fn collects_in_kernel_thread() -> bool {
    static RESULT: OnceLock<bool> = OnceLock::new();
    *RESULT.get_or_init(|| {
        let release = uname().ok();
        let release = release.as_ref().and_then(|name| name.release().to_str());
        release
            .and_then(parse_version)
            .is_some_and(|v| v >= KERNEL_THREAD_SINCE)
    })
}

/// Parses the version at the beginning of a release name.
fn parse_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Drops descriptors in a new thread, or in the calling thread if no thread can be started.
fn drop_in_thread(fd: impl Send + 'static) {
    CLOSING_THREADS.fetch_add(1, Ordering::Relaxed);
    let shared = Arc::new(Mutex::new(Some(fd)));
    let thread_copy = Arc::clone(&shared);
    let close = move || {
        // Signal handlers run in the application's threads.
        let _ = SigSet::all().thread_block();
        drop(take(&thread_copy));
        CLOSING_THREADS.fetch_sub(1, Ordering::Relaxed);
    };
    let thread = thread::Builder::new().name("selvedge-close".to_owned());
    if thread.spawn(close).is_err() {
        CLOSING_THREADS.fetch_sub(1, Ordering::Relaxed);
        drop(take(&shared));
    }
}

fn take<T>(shared: &Mutex<Option<T>>) -> Option<T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner).take()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use nix::sys::socket::{setsockopt, sockopt};

    use super::*;

    /// A socket whose last close blocks for an hour unless the receiver reads all bytes.
    fn lingering_socket() -> (OwnedFd, TcpStream) {
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

    /// Reads until the socket is closed.
    fn read_until_close(mut receiver: TcpStream) {
        let mut bytes = Vec::new();
        receiver.read_to_end(&mut bytes).unwrap();
        assert!(!bytes.is_empty());
    }

    #[test]
    fn a_blocking_last_close_does_not_block_the_caller() {
        let (sender, receiver) = lingering_socket();
        discard(vec![sender]);
        read_until_close(receiver);
    }

    /// Number of threads of this process that close descriptors.
    fn count_closing_threads() -> usize {
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
        // Once with the kernel's collector and once without it.
        for discard in [discard, |fds| close_with(None, fds)] {
            let mut fds = Vec::new();
            for _ in 0..20 {
                let (sender, receiver) = lingering_socket();
                fds.push(sender);
                receivers.push(receiver);
            }
            // The maximum number of descriptors of a packet.
            let copies = (fds.len()..253).map(|_| fds[0].try_clone().unwrap());
            let copies: Vec<_> = copies.collect();
            fds.extend(copies);
            if collects_in_kernel_thread() {
                let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
                assert!(KernelCollected::hold(&borrowed).is_some());
            }
            discard(fds);
        }
        assert!(
            count_closing_threads() <= 4,
            "{} threads",
            count_closing_threads()
        );
        // All receivers read at the same time, because the descriptors are closed one after the
        // other.
        let read = |receiver| thread::spawn(|| read_until_close(receiver));
        let readers: Vec<_> = receivers.into_iter().map(read).collect();
        readers
            .into_iter()
            .for_each(|reader| reader.join().unwrap());
    }

    #[test]
    fn a_blocking_last_close_takes_a_thread_on_an_older_kernel() {
        let (sender, receiver) = lingering_socket();
        drop_in_thread(sender);
        read_until_close(receiver);
    }

    #[test]
    fn a_release_begins_with_its_version() {
        assert_eq!(parse_version("6.18.44-x"), Some((6, 18)));
        assert_eq!(parse_version("5.15.0-91-generic"), Some((5, 15)));
        assert!((6, 10) >= KERNEL_THREAD_SINCE && (5, 15) < KERNEL_THREAD_SINCE);
        assert_eq!(parse_version("?"), None);
    }
}
