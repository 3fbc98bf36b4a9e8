//! UDP sockets: send and receive batches of datagrams from and to arbitrary memory.

#![expect(unsafe_code, reason = "system calls on memory that is not a slice")]

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::sys::socket::{
    AddressFamily, SockFlag, SockProtocol, SockType, SockaddrLike as _, SockaddrStorage, bind,
    setsockopt, socket, sockopt,
};
use selvedge_kit::close_on_fork::CloseOnFork;

/// The maximum number of datagrams of one system call.
pub(crate) const BATCH: usize = 32;
/// The maximum number of segments of a local list.
pub(crate) const IOV_LIMIT: usize = 4;

/// A non-blocking UDP socket.
#[derive(Debug)]
pub(crate) struct Socket(CloseOnFork<UdpSocket>);

/// A batch of datagrams for one system call: datagrams to send, or buffers to receive into.
pub(crate) struct Batch<'a> {
    headers: [libc::mmsghdr; BATCH],
    segments: [[libc::iovec; IOV_LIMIT]; BATCH],
    addrs: [MaybeUninit<SockaddrStorage>; BATCH],
    count: usize,
    memory: PhantomData<&'a mut [u8]>,
}

/// The length and source of a received datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedDatagram {
    /// The length, which may exceed the buffer.
    pub(crate) len: usize,
    pub(crate) src: Option<SocketAddr>,
}

impl<'a> Batch<'a> {
    pub(crate) fn new() -> Self {
        const EMPTY: libc::iovec = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        Self {
            // SAFETY: all zeros are headers without address, memory and control data.
            headers: unsafe { MaybeUninit::zeroed().assume_init() },
            segments: [[EMPTY; IOV_LIMIT]; BATCH],
            addrs: [const { MaybeUninit::uninit() }; BATCH],
            count: 0,
            memory: PhantomData,
        }
    }

    /// Adds a datagram to send. Returns false when the batch is full.
    pub(crate) fn send<'b: 'a>(
        &mut self,
        dest: &SockaddrStorage,
        segments: impl Iterator<Item = &'b [u8]>,
    ) -> bool {
        self.push(
            Some(dest),
            segments.map(|segment| (segment.as_ptr().cast_mut(), segment.len())),
        )
    }

    /// Adds the buffer of a datagram to receive. Returns false when the batch is full.
    pub(crate) fn receive<'b: 'a>(
        &mut self,
        segments: impl Iterator<Item = &'b mut [MaybeUninit<u8>]>,
    ) -> bool {
        self.push(
            None,
            segments.map(|segment| (segment.as_mut_ptr().cast(), segment.len())),
        )
    }

    fn push(
        &mut self,
        dest: Option<&SockaddrStorage>,
        segments: impl Iterator<Item = (*mut u8, usize)>,
    ) -> bool {
        let index = self.count;
        let Some(header) = self.headers.get_mut(index) else {
            return false;
        };
        let mut count = 0;
        for ((base, len), slot) in segments.zip(&mut self.segments[index]) {
            *slot = libc::iovec {
                iov_base: base.cast(),
                iov_len: len,
            };
            count += 1;
        }
        header.msg_hdr.msg_iovlen = count;
        header.msg_hdr.msg_namelen = match dest {
            Some(dest) => {
                self.addrs[index].write(*dest);
                dest.len()
            }
            None => size_of::<SockaddrStorage>() as libc::socklen_t,
        };
        self.count += 1;
        true
    }

    /// Sets the pointers of the headers to the lists. The batch must not move until the system
    /// call.
    fn link_headers(&mut self) -> *mut libc::mmsghdr {
        for index in 0..self.count {
            let header = &mut self.headers[index].msg_hdr;
            header.msg_iov = self.segments[index].as_mut_ptr();
            header.msg_name = self.addrs[index].as_mut_ptr().cast();
        }
        self.headers.as_mut_ptr()
    }

    /// Returns length and source of a received datagram.
    fn received(&self, index: usize) -> ReceivedDatagram {
        let header = &self.headers[index];
        let addr = self.addrs[index].as_ptr().cast::<libc::sockaddr>();
        let len = header.msg_hdr.msg_namelen;
        // SAFETY: the kernel has written `len` bytes of an address there; `from_raw` rejects fewer
        // bytes than an address has.
        let addr = unsafe { SockaddrStorage::from_raw(addr, Some(len)) };
        ReceivedDatagram {
            len: header.msg_len as usize,
            src: addr.as_ref().and_then(socket_addr),
        }
    }
}

fn socket_addr(addr: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = addr.as_sockaddr_in() {
        return Some(SocketAddr::new(v4.ip().into(), v4.port()));
    }
    let v6 = addr.as_sockaddr_in6()?;
    Some(SocketAddrV6::new(v6.ip(), v6.port(), 0, v6.scope_id()).into())
}

impl Socket {
    /// Binds a socket to an address. With `is_shared`, other sockets may bind the same address.
    ///
    /// # Errors
    /// System errors.
    pub(crate) fn open(addr: SocketAddr, buffer: usize, is_shared: bool) -> io::Result<Self> {
        let family = match addr {
            SocketAddr::V4(_) => AddressFamily::Inet,
            SocketAddr::V6(_) => AddressFamily::Inet6,
        };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(family, SockType::Datagram, flags, SockProtocol::Udp)?;
        if addr.is_ipv6() {
            setsockopt(&fd, sockopt::Ipv6V6Only, &true)?;
        }
        if is_shared {
            setsockopt(&fd, sockopt::ReuseAddr, &true)?;
        }
        // The kernel limits the size of the buffer.
        let _ = setsockopt(&fd, sockopt::RcvBuf, &buffer);
        bind(fd.as_raw_fd(), &SockaddrStorage::from(addr))?;
        Ok(Self(CloseOnFork::new(UdpSocket::from(fd))))
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.fd().local_addr()
    }

    /// Sets the interface for outgoing multicast datagrams, by its address.
    ///
    /// # Errors
    /// System errors.
    pub(crate) fn set_multicast_interface(&self, ip: IpAddr) -> io::Result<()> {
        let IpAddr::V4(ip) = ip else {
            // IPv6 uses the routes of the system.
            return Ok(());
        };
        let interface = libc::in_addr {
            s_addr: u32::from_ne_bytes(ip.octets()),
        };
        // SAFETY: the option takes an `in_addr`, which lives as long as the call.
        let result = unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                libc::IPPROTO_IP,
                libc::IP_MULTICAST_IF,
                (&raw const interface).cast(),
                size_of_val(&interface) as libc::socklen_t,
            )
        };
        match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Joins a multicast group at the interface with an address.
    ///
    /// # Errors
    /// System errors.
    pub(crate) fn join(&self, group: IpAddr, interface: IpAddr) -> io::Result<()> {
        match (group, interface) {
            (IpAddr::V4(group), IpAddr::V4(interface)) => {
                self.0.fd().join_multicast_v4(&group, &interface)
            }
            (IpAddr::V6(group), _) => self.0.fd().join_multicast_v6(&group, 0),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Sends datagrams and returns how many the kernel has taken.
    ///
    /// # Errors
    /// The error of the first datagram.
    pub(crate) fn send(&self, batch: &mut Batch<'_>) -> io::Result<usize> {
        let (fd, count) = (self.0.as_raw_fd(), batch.count as u32);
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let headers = batch.link_headers();
        // SAFETY: `count` headers name lists and addresses inside of the batch, and memory that the
        // batch borrows; all of these live as long as the call.
        let sent = unsafe { libc::sendmmsg(fd, headers, count, flags) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// Receives datagrams into the buffers of a batch, and calls `each` for each of them in order.
    ///
    /// # Errors
    /// System errors; `WouldBlock` when there is no datagram.
    pub(crate) fn receive(
        &self,
        batch: &mut Batch<'_>,
        mut each: impl FnMut(ReceivedDatagram),
    ) -> io::Result<usize> {
        let (fd, count) = (self.0.as_raw_fd(), batch.count as u32);
        // With MSG_TRUNC the kernel returns the full length of a truncated datagram.
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        let headers = batch.link_headers();
        // SAFETY: as above; the memory is borrowed exclusively.
        let received =
            unsafe { libc::recvmmsg(fd, headers, count, flags as _, std::ptr::null_mut()) };
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        (0..received).for_each(|index| each(batch.received(index)));
        Ok(received)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
