//! A peer of the shm provider for tests: it sends valid and invalid packets, and shares valid and
//! invalid memory.
//!
//! It implements docs/WIRE.md and shares no code with the provider. The caller gives the protocol
//! version.

mod memory;

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use anyhow::Context as _;
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType,
    UnixAddr, accept4, bind, connect, getsockopt, listen, recvmsg, sendmsg, socket, sockopt,
};
use selvedge::info::EpType;

pub use memory::{RawMemory, doorbell_seals, outbox_seals};

/// The size of a packet, in bytes.
pub const PACKET_SIZE: usize = 256;
/// Kinds of packets.
pub const HELLO: u32 = 1;
pub const BOUNCE: u32 = 2;
pub const KEYS: u32 = 5;
pub const BLOCK: u32 = 6;
pub const RELEASE: u32 = 7;

/// The sizes of an outbox, as in a hello packet.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub commands: usize,
    pub responses: usize,
    pub pool: usize,
}

impl Sizes {
    /// The default sizes of an endpoint.
    pub const DEFAULT: Self = Self {
        commands: 256,
        responses: 512,
        pool: 65_536,
    };

    pub const fn responses_offset(self) -> usize {
        512
    }

    pub const fn commands_offset(self) -> usize {
        (self.responses_offset() + self.responses * 16).next_multiple_of(128)
    }

    pub const fn coll_queue_offset(self) -> usize {
        (self.commands_offset() + self.commands * 64).next_multiple_of(128)
    }

    pub const fn pool_offset(self) -> usize {
        (self.coll_queue_offset() + 32 * 64).next_multiple_of(4096)
    }

    pub const fn total(self) -> usize {
        (self.pool_offset() + self.pool).next_multiple_of(4096)
    }
}

/// The header of a packet.
pub fn packet(version: u32, kind: u32) -> Vec<u8> {
    let mut packet = b"selvedge".to_vec();
    packet.extend(version.to_le_bytes());
    packet.extend(kind.to_le_bytes());
    packet
}

/// A valid hello packet.
#[derive(Clone, Copy, Debug)]
pub struct Hello<'a> {
    /// The name of the endpoint.
    pub name: &'a str,
    /// The number of this incarnation of the name.
    pub incarnation: u128,
    /// A word of this process. The peer reads it to find out whether it may read this process's
    /// memory.
    pub nonce: &'a u64,
    /// The sizes of the outbox.
    pub sizes: Sizes,
    /// The number of chunks of the key table that follow.
    pub chunks: u32,
}

impl Hello<'_> {
    /// The packet.
    pub fn packet(&self, version: u32) -> Vec<u8> {
        let &Self {
            name,
            incarnation,
            nonce,
            sizes,
            chunks,
        } = self;
        let mut packet = packet(version, HELLO);
        packet.extend((EpType::Rdm as u32).to_le_bytes());
        packet.extend(incarnation.to_le_bytes());
        packet.extend(0_u32.to_le_bytes());
        for size in [sizes.commands, sizes.responses, sizes.pool] {
            packet.extend((size as u32).to_le_bytes());
        }
        let addr = std::ptr::from_ref(nonce).expose_provenance() as u64;
        packet.extend(addr.to_le_bytes());
        packet.extend(nonce.to_le_bytes());
        packet.extend(chunks.to_le_bytes());
        packet.extend((name.len() as u32).to_le_bytes());
        packet.extend(name.as_bytes());
        // There is no authorization key.
        packet.resize(PACKET_SIZE, 0);
        packet
    }
}

/// A packet socket of the provider's protocol: one side of a connection, or a listener.
#[derive(Debug)]
pub struct PeerSocket(OwnedFd);

/// The result of a receive.
#[derive(Debug)]
pub enum Received {
    /// No packet has arrived.
    Nothing,
    /// A packet, with its descriptors.
    Packet(Vec<u8>, Vec<OwnedFd>),
    /// The connection was closed.
    End,
}

impl PeerSocket {
    /// Wraps an established connection.
    pub fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Connects to the endpoint of this address.
    ///
    /// # Errors
    /// Those of the system.
    pub fn connect(address: &str) -> anyhow::Result<Self> {
        let socket = packet_socket()?;
        let name = address.strip_prefix("fi_shm://").unwrap_or(address);
        connect(socket.as_raw_fd(), &socket_address(name)?)
            .with_context(|| format!("connecting to {name}"))?;
        Ok(Self(socket))
    }

    /// Listens with a name. [`Self::accept`] accepts connections.
    ///
    /// # Errors
    /// Those of the system.
    pub fn listen(name: &str) -> anyhow::Result<Self> {
        let socket = packet_socket()?;
        bind(socket.as_raw_fd(), &socket_address(name)?)?;
        listen(&socket, Backlog::new(10)?)?;
        Ok(Self(socket))
    }

    /// Accepts a connection.
    ///
    /// # Errors
    /// When no peer has connected.
    pub fn accept(&self) -> anyhow::Result<Self> {
        let socket = accept4(self.0.as_raw_fd(), SockFlag::SOCK_NONBLOCK)?;
        Ok(Self(own_fd(socket)))
    }

    /// Sends a packet, and ignores a closed connection or a full socket.
    pub fn send(&self, packet: &[u8], fds: &[BorrowedFd<'_>]) {
        let _ = self.try_send(packet, fds);
    }

    /// Sends a packet. Returns whether it was sent.
    pub fn try_send(&self, packet: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
        let fds: Vec<_> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&fds)];
        let rights = if fds.is_empty() { &[][..] } else { &rights };
        let iov = [IoSlice::new(packet)];
        let flags = MsgFlags::MSG_NOSIGNAL;
        sendmsg::<UnixAddr>(self.0.as_raw_fd(), &iov, rights, flags, None).is_ok()
    }

    /// The process id of the other side.
    ///
    /// # Errors
    /// Those of the system.
    pub fn peer_pid(&self) -> anyhow::Result<i32> {
        Ok(getsockopt(&self.0, sockopt::PeerCredentials)?.pid())
    }

    /// Receives a packet without waiting.
    pub fn receive(&self) -> Received {
        let mut bytes = vec![0; PACKET_SIZE];
        let mut space = nix::cmsg_space!([i32; 4]);
        let mut iov = [IoSliceMut::new(&mut bytes)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let received = recvmsg::<UnixAddr>(self.0.as_raw_fd(), &mut iov, Some(&mut space), flags);
        let (len, fds) = match received {
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => return Received::Nothing,
            Ok(message) if message.bytes > 0 => {
                let rights = message.cmsgs().into_iter().flatten();
                (message.bytes, rights.flat_map(received_fds).collect())
            }
            Ok(_) | Err(_) => return Received::End,
        };
        bytes.truncate(len);
        Received::Packet(bytes, fds)
    }

    /// Whether the other side has closed the connection. Discards received packets.
    pub fn is_closed(&self) -> bool {
        loop {
            match self.receive() {
                Received::Nothing => return false,
                Received::Packet(..) => {}
                Received::End => return true,
            }
        }
    }
}

/// Opens a socket of the type that endpoints use.
///
/// # Errors
/// Those of the system.
pub fn packet_socket() -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)
}

/// The socket address of an endpoint of this user.
///
/// # Errors
/// When the name is too long.
pub fn socket_address(name: &str) -> nix::Result<UnixAddr> {
    socket_address_of_user(nix::unistd::geteuid().as_raw(), name)
}

/// The socket address of an endpoint of a user.
///
/// # Errors
/// When the name is too long.
pub fn socket_address_of_user(user: u32, name: &str) -> nix::Result<UnixAddr> {
    UnixAddr::new_abstract(format!("selvedge-shm/{user}/{name}").as_bytes())
}

fn received_fds(message: ControlMessageOwned) -> Vec<OwnedFd> {
    match message {
        ControlMessageOwned::ScmRights(fds) => fds.into_iter().map(own_fd).collect(),
        _ => Vec::new(),
    }
}

#[expect(unsafe_code, reason = "a descriptor that was just received")]
fn own_fd(fd: i32) -> OwnedFd {
    // SAFETY: the descriptor was just received or accepted, and has no other owner.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
