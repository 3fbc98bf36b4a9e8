//! `Socket` and `BoundSocket`: connect and listen, and the system calls that send and receive.

#![expect(unsafe_code, reason = "system calls on memory that is not a slice")]

use std::cell::Cell;
use std::io::{self, Read as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, bind,
    connect, listen, recv, sendmsg, setsockopt, socket, sockopt,
};
use selvedge_kit::close_on_fork::CloseOnFork;

use crate::socket::tls::Session;
use crate::socket::vecs::{RecvVecs, SendVecs};

/// The number of connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 4096;

/// Options of a socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketOptions {
    pub(crate) no_delay: bool,
    /// Idle time and interval in seconds, and number of probes.
    pub(crate) keepalive: Option<(u32, u32, u32)>,
    /// In milliseconds; 0 for the system's choice.
    pub(crate) user_timeout: u32,
}

/// A non-blocking TCP connection.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: CloseOnFork<TcpStream>,
    /// The TLS session over the stream, if any.
    tls: Option<Box<Session>>,
}

thread_local! {
    static BYTES_SENT: Cell<usize> = const { Cell::new(0) };
}

/// Returns the number of bytes that this thread has sent over all its connections. Linux appends
/// sent bytes to pages that belong to the thread.
pub(crate) fn bytes_sent_by_thread() -> usize {
    BYTES_SENT.get()
}

#[cfg(test)]
thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

/// Returns the number of this thread's system calls that send, receive or poll.
#[cfg(test)]
pub(crate) fn call_count() -> usize {
    CALLS.get()
}

#[cfg(test)]
pub(crate) fn count_call() {
    CALLS.set(CALLS.get() + 1);
}

impl Socket {
    /// Starts to connect. The socket becomes writable when the attempt has succeeded or failed.
    pub(crate) fn connect(
        src_ip: IpAddr,
        dest_addr: SocketAddr,
        socket_options: &SocketOptions,
    ) -> io::Result<Self> {
        let fd = open_socket(dest_addr)?;
        if !src_ip.is_unspecified() {
            // The kernel chooses the port at connect(2), so that connections to different peers can
            // share one.
            let _ = setsockopt(&fd, sockopt::IpBindAddressNoPort, &true);
            bind(
                fd.as_raw_fd(),
                &SockaddrStorage::from(SocketAddr::new(src_ip, 0)),
            )?;
        }
        Self::new(TcpStream::from(fd), socket_options)?.start_connect(dest_addr)
    }

    fn start_connect(self, dest_addr: SocketAddr) -> io::Result<Self> {
        match connect(self.stream.as_raw_fd(), &SockaddrStorage::from(dest_addr)) {
            Ok(()) | Err(nix::errno::Errno::EINPROGRESS) => Ok(self),
            Err(cause) => Err(cause.into()),
        }
    }

    /// Wraps a stream and sets its options.
    pub(crate) fn new(stream: TcpStream, socket_options: &SocketOptions) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(socket_options.no_delay)?;
        if let Some((idle, interval, count)) = socket_options.keepalive {
            setsockopt(&stream, sockopt::TcpKeepIdle, &idle)?;
            setsockopt(&stream, sockopt::TcpKeepInterval, &interval)?;
            setsockopt(&stream, sockopt::TcpKeepCount, &count)?;
            setsockopt(&stream, sockopt::KeepAlive, &true)?;
        }
        if socket_options.user_timeout > 0 {
            setsockopt(
                &stream,
                sockopt::TcpUserTimeout,
                &socket_options.user_timeout,
            )?;
        }
        Ok(Self {
            stream: CloseOnFork::new(stream),
            tls: None,
        })
    }

    /// Returns the names and the bytes of the peer's certificate, which was verified.
    pub(crate) fn peer_certificate(&self) -> Option<(Vec<String>, Vec<u8>)> {
        self.tls.as_ref()?.peer_certificate()
    }

    /// Sends and receives through a TLS session from now on.
    pub(crate) fn set_tls(&mut self, session: Session) {
        self.tls = Some(Box::new(session));
    }

    /// Continues the TLS handshake. Returns true when the handshake is complete, or without TLS.
    ///
    /// # Errors
    /// The errors of [`Session::continue_handshake`].
    pub(crate) fn continue_tls_handshake(&mut self) -> io::Result<bool> {
        match &mut self.tls {
            None => Ok(true),
            Some(tls) => tls.continue_handshake(&mut RawStream(self.stream.as_fd())),
        }
    }

    /// Whether input is buffered in the TLS session, for which epoll(7) reports no event.
    #[inline]
    pub(crate) fn has_buffered_input(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_input())
    }

    /// Whether TLS records wait to be sent, beside the connection's queue.
    #[inline]
    pub(crate) fn has_unsent_records(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_output())
    }

    /// Sends waiting TLS records. Returns true when no record is left.
    ///
    /// # Errors
    /// System errors.
    pub(crate) fn flush_records(&mut self) -> io::Result<bool> {
        match &mut self.tls {
            None => Ok(true),
            Some(tls) => tls.flush(&mut RawStream(self.stream.as_fd())),
        }
    }

    /// Whether the stream is encrypted.
    #[inline]
    pub(crate) const fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns the result of connecting. The caller waits until the socket is writable.
    pub(crate) fn finish_connect(&self) -> io::Result<()> {
        let stream = self.stream.fd();
        if let Some(cause) = stream.take_error()? {
            return Err(cause);
        }
        // TCP connects a socket to itself if the kernel has chosen the destination port as the
        // source port.
        if stream.peer_addr()? == stream.local_addr()? {
            Err(io::ErrorKind::ConnectionRefused.into())
        } else {
            Ok(())
        }
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.fd().local_addr()
    }

    /// Sends as many bytes as fit, and returns their number.
    #[inline]
    pub(crate) fn send(&mut self, vecs: &mut SendVecs<'_>) -> io::Result<usize> {
        if let Some(tls) = &mut self.tls {
            return send_tls(tls, self.stream.as_fd(), vecs);
        }
        #[cfg(test)]
        count_call();
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        let fd = self.stream.as_raw_fd();
        let sent = if let [segment] = vecs.0.list() {
            // SAFETY: `SendVecs` borrows the memory that its list names.
            unsafe { libc::send(fd, segment.iov_base, segment.iov_len, flags) }
        } else {
            let header = vecs.0.header();
            // SAFETY: as above. The header points to the list, which outlives the call.
            unsafe { libc::sendmsg(fd, &raw const header, flags) }
        };
        let sent = usize::try_from(sent).map_err(|_| io::Error::last_os_error())?;
        BYTES_SENT.set(BYTES_SENT.get().wrapping_add(sent));
        Ok(sent)
    }

    /// Receives available bytes, and returns their number. 0 means the end of the stream.
    #[inline]
    pub(crate) fn recv(&mut self, vecs: &mut RecvVecs<'_>) -> io::Result<usize> {
        if let Some(tls) = &mut self.tls {
            return recv_tls(tls, self.stream.as_fd(), vecs);
        }
        #[cfg(test)]
        count_call();
        let fd = self.stream.as_raw_fd();
        let flags = libc::MSG_DONTWAIT;
        let received = if let [segment] = vecs.0.list() {
            // SAFETY: `RecvVecs` borrows the memory that its list names exclusively, or borrows the
            // registered regions that contain the memory.
            unsafe { libc::recv(fd, segment.iov_base, segment.iov_len, flags) }
        } else {
            let mut header = vecs.0.header();
            // SAFETY: as above. The header points to the list, which outlives the call.
            unsafe { libc::recvmsg(fd, &raw mut header, flags) }
        };
        usize::try_from(received).map_err(|_| io::Error::last_os_error())
    }

    /// Receives into a slice.
    #[inline]
    pub(crate) fn recv_bytes(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut vecs = RecvVecs::new();
        vecs.push_bytes(bytes);
        self.recv(&mut vecs)
    }

    /// Sends as much of a slice as fits.
    fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut vecs = SendVecs::new();
        vecs.push(bytes);
        self.send(&mut vecs)
    }

    /// Sends a whole slice. The send buffer of a new connection has room for a handshake message.
    ///
    /// # Errors
    /// System errors; [`io::ErrorKind::WriteZero`] when the socket buffer has too little room.
    pub(crate) fn send_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.send_bytes(bytes)? == bytes.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }

    /// Shuts the connection down so that the peer receives all bytes that were sent. Unread input
    /// is read and discarded, because close(2) with unread input resets the connection.
    pub(crate) fn close_gracefully(&mut self) {
        const DISCARD_MAX: usize = 1 << 20;
        self.shutdown(std::net::Shutdown::Write);
        let (mut bytes, mut total) = ([0; 4096], 0);
        let mut stream = RawStream(self.stream.as_fd());
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            total += count;
            if total > DISCARD_MAX {
                break;
            }
        }
    }

    /// Shuts the connection down for every process that holds the socket.
    pub(crate) fn shutdown(&mut self, how: std::net::Shutdown) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify(&mut RawStream(self.stream.as_fd()));
        }
        // shutdown(2) fails if the connection has already ended.
        let _ = self.stream.fd().shutdown(how);
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Whether an error only means "no data yet" or "interrupted by a signal".
pub(crate) fn is_not_ready(cause: &io::Error) -> bool {
    matches!(
        cause.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

#[cold]
fn send_tls(tls: &mut Session, fd: BorrowedFd<'_>, vecs: &SendVecs<'_>) -> io::Result<usize> {
    tls.send(&mut RawStream(fd), vecs.len(), |offset, out| {
        vecs.copy(offset, out)
    })
}

#[cold]
fn recv_tls(tls: &mut Session, fd: BorrowedFd<'_>, vecs: &mut RecvVecs<'_>) -> io::Result<usize> {
    let max_len = vecs.len();
    tls.recv(&mut RawStream(fd), max_len, |offset, bytes| {
        vecs.write(offset, bytes)
    })
}

/// The raw stream under a TLS session.
struct RawStream<'a>(BorrowedFd<'a>);

impl io::Read for RawStream<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        Ok(recv(self.0.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT)?)
    }
}

impl io::Write for RawStream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[io::IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        let no_address = None::<&SockaddrStorage>;
        Ok(sendmsg(self.0.as_raw_fd(), slices, &[], flags, no_address)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens a non-blocking socket of the address family of `addr`.
fn open_socket(addr: SocketAddr) -> io::Result<OwnedFd> {
    let family = match addr {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(family, SockType::Stream, flags, SockProtocol::Tcp)?;
    if addr.is_ipv6() {
        setsockopt(&fd, sockopt::Ipv6V6Only, &true)?;
    }
    Ok(fd)
}

/// A bound socket, which later listens or connects.
#[derive(Debug)]
pub(crate) struct BoundSocket(CloseOnFork<OwnedFd>);

impl BoundSocket {
    /// Binds a socket. Port 0 lets the kernel choose.
    pub(crate) fn bind(addr: SocketAddr) -> io::Result<Self> {
        let fd = open_socket(addr)?;
        setsockopt(&fd, sockopt::ReuseAddr, &true)?;
        bind(fd.as_raw_fd(), &SockaddrStorage::from(addr))?;
        Ok(Self(CloseOnFork::new(fd)))
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        TcpListener::from(self.0.fd().try_clone()?).local_addr()
    }

    pub(crate) fn listen(self) -> io::Result<CloseOnFork<TcpListener>> {
        let fd = self.0.fd().try_clone()?;
        listen(&fd, Backlog::new(BACKLOG)?)?;
        Ok(CloseOnFork::new(TcpListener::from(fd)))
    }

    /// Starts to connect from the bound address, as [`Socket::connect`] does.
    pub(crate) fn connect(
        &self,
        dest_addr: SocketAddr,
        socket_options: &SocketOptions,
    ) -> io::Result<Socket> {
        let stream = TcpStream::from(self.0.fd().try_clone()?);
        Socket::new(stream, socket_options)?.start_connect(dest_addr)
    }
}

/// Listens at an address.
pub(crate) fn listen_at(addr: SocketAddr) -> io::Result<CloseOnFork<TcpListener>> {
    BoundSocket::bind(addr)?.listen()
}
