//! A peer of the shm provider that is made by hand: its packets and its memory, good and bad.
//!
//! Written from docs/WIRE.md alone: it shares no code with the provider. The version of the protocol
//! is the caller's.

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

/// Bytes of a packet.
pub const PACKET: usize = 256;
/// Kinds of packets.
pub const HELLO: u32 = 1;
pub const BOUNCE: u32 = 2;
pub const KEYS: u32 = 5;
pub const BLOCK: u32 = 6;
pub const RELEASE: u32 = 7;

/// The sizes of an outbox, as a hello says them.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub commands: usize,
    pub responses: usize,
    pub pool: usize,
}

impl Sizes {
    /// What an endpoint has that nobody has configured.
    pub const DEFAULT: Self = Self {
        commands: 256,
        responses: 512,
        pool: 65_536,
    };

    pub const fn responses_at(self) -> usize {
        512
    }

    pub const fn commands_at(self) -> usize {
        (self.responses_at() + self.responses * 16).next_multiple_of(128)
    }

    pub const fn lane_at(self) -> usize {
        (self.commands_at() + self.commands * 64).next_multiple_of(128)
    }

    pub const fn pool_at(self) -> usize {
        (self.lane_at() + 32 * 64).next_multiple_of(4096)
    }

    pub const fn total(self) -> usize {
        (self.pool_at() + self.pool).next_multiple_of(4096)
    }
}

/// The beginning of a packet.
pub fn packet(version: u32, kind: u32) -> Vec<u8> {
    let mut packet = b"selvedge".to_vec();
    packet.extend(version.to_le_bytes());
    packet.extend(kind.to_le_bytes());
    packet
}

/// A hello that is in order.
#[derive(Clone, Copy, Debug)]
pub struct Hello<'a> {
    /// The name of the endpoint.
    pub name: &'a str,
    /// The number of this incarnation of the name.
    pub incarnation: u128,
    /// A word of this process, by which the peer finds out whether it may read its memory.
    pub nonce: &'a u64,
    /// The sizes of the outbox.
    pub sizes: Sizes,
    /// Chunks of a table that are to follow.
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
        packet.resize(PACKET, 0);
        packet
    }
}

/// A packet socket of the provider's protocol: one end of a connection, or a listener.
#[derive(Debug)]
pub struct PeerSocket(OwnedFd);

/// What was received.
#[derive(Debug)]
pub enum Received {
    /// Nothing yet.
    Nothing,
    /// A packet, and the descriptors that came with it.
    Packet(Vec<u8>, Vec<OwnedFd>),
    /// The end of the connection.
    End,
}

impl PeerSocket {
    /// A connection that was made already.
    pub fn of(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Connects to the endpoint of this address.
    ///
    /// # Errors
    /// The system's.
    pub fn connect(address: &str) -> anyhow::Result<Self> {
        let socket = packet_socket()?;
        let name = address.strip_prefix("fi_shm://").unwrap_or(address);
        connect(socket.as_raw_fd(), &rendezvous(name)?)
            .with_context(|| format!("connecting to {name}"))?;
        Ok(Self(socket))
    }

    /// Has a name; a peer that connects to it is taken by [`Self::accept`].
    ///
    /// # Errors
    /// The system's.
    pub fn listen(name: &str) -> anyhow::Result<Self> {
        let socket = packet_socket()?;
        bind(socket.as_raw_fd(), &rendezvous(name)?)?;
        listen(&socket, Backlog::new(10)?)?;
        Ok(Self(socket))
    }

    /// Takes a peer that has connected.
    ///
    /// # Errors
    /// When there is none.
    pub fn accept(&self) -> anyhow::Result<Self> {
        let socket = accept4(self.0.as_raw_fd(), SockFlag::SOCK_NONBLOCK)?;
        Ok(Self(owned(socket)))
    }

    /// Sends a packet; the other end may have hung up.
    pub fn send(&self, packet: &[u8], fds: &[BorrowedFd<'_>]) {
        let _ = self.try_send(packet, fds);
    }

    /// Sends a packet. Says whether there was room.
    pub fn try_send(&self, packet: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
        let fds: Vec<_> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&fds)];
        let rights = if fds.is_empty() { &[][..] } else { &rights };
        let iov = [IoSlice::new(packet)];
        let flags = MsgFlags::MSG_NOSIGNAL;
        sendmsg::<UnixAddr>(self.0.as_raw_fd(), &iov, rights, flags, None).is_ok()
    }

    /// The process at the other end.
    ///
    /// # Errors
    /// The system's.
    pub fn peer_pid(&self) -> anyhow::Result<i32> {
        Ok(getsockopt(&self.0, sockopt::PeerCredentials)?.pid())
    }

    /// What the other end says.
    pub fn receive(&self) -> Received {
        let mut bytes = vec![0; PACKET];
        let mut space = nix::cmsg_space!([i32; 4]);
        let mut iov = [IoSliceMut::new(&mut bytes)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let received = recvmsg::<UnixAddr>(self.0.as_raw_fd(), &mut iov, Some(&mut space), flags);
        let (len, fds) = match received {
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => return Received::Nothing,
            Ok(message) if message.bytes > 0 => {
                let rights = message.cmsgs().into_iter().flatten();
                (message.bytes, rights.flat_map(taken).collect())
            }
            Ok(_) | Err(_) => return Received::End,
        };
        bytes.truncate(len);
        Received::Packet(bytes, fds)
    }

    /// Whether the other end has hung up.
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

/// A socket of the kind that endpoints have.
///
/// # Errors
/// The system's.
pub fn packet_socket() -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)
}

/// Where an endpoint of this user listens.
///
/// # Errors
/// When the name is too long.
pub fn rendezvous(name: &str) -> nix::Result<UnixAddr> {
    rendezvous_of(nix::unistd::geteuid().as_raw(), name)
}

/// Where an endpoint of a user listens.
///
/// # Errors
/// When the name is too long.
pub fn rendezvous_of(user: u32, name: &str) -> nix::Result<UnixAddr> {
    UnixAddr::new_abstract(format!("selvedge-shm/{user}/{name}").as_bytes())
}

fn taken(message: ControlMessageOwned) -> Vec<OwnedFd> {
    match message {
        ControlMessageOwned::ScmRights(fds) => fds.into_iter().map(owned).collect(),
        _ => Vec::new(),
    }
}

#[expect(unsafe_code, reason = "the kernel has just given the descriptor to us")]
fn owned(fd: i32) -> OwnedFd {
    // SAFETY: received just now, and owned by nothing else.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
