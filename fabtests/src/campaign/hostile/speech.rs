//! What is said over the sockets of an endpoint: hellos and all other packets, good and bad.
//!
//! Written from docs/WIRE.md alone: it shares no code with what it attacks.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use anyhow::Context as _;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr,
    connect, getsockopt, recvmsg, sendmsg, socket, sockopt,
};
use selvedge::info::EpType;
use selvedge_shm::smr::layout::VERSION;

/// Bytes of a packet.
pub(super) const PACKET: usize = 256;
pub(super) const HELLO: u32 = 1;
pub(super) const BOUNCE: u32 = 2;
pub(super) const KEYS: u32 = 5;
pub(super) const BLOCK: u32 = 6;
pub(super) const RELEASE: u32 = 7;

/// The sizes of an outbox, as a hello says them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) commands: usize,
    pub(super) answers: usize,
    pub(super) pool: usize,
}

impl Sizes {
    /// What an endpoint has that nobody has configured.
    pub(super) const USUAL: Self = Self {
        commands: 256,
        answers: 512,
        pool: 65_536,
    };

    pub(super) const fn answers_at(self) -> usize {
        512
    }

    pub(super) const fn commands_at(self) -> usize {
        (self.answers_at() + self.answers * 16).next_multiple_of(128)
    }

    pub(super) const fn lane_at(self) -> usize {
        (self.commands_at() + self.commands * 64).next_multiple_of(128)
    }

    pub(super) const fn pool_at(self) -> usize {
        (self.lane_at() + 32 * 64).next_multiple_of(4096)
    }

    pub(super) const fn total(self) -> usize {
        (self.pool_at() + self.pool).next_multiple_of(4096)
    }
}

/// The beginning of a packet.
pub(super) fn packet(kind: u32) -> Vec<u8> {
    let mut packet = b"selvedge".to_vec();
    packet.extend(VERSION.to_le_bytes());
    packet.extend(kind.to_le_bytes());
    packet
}

/// A hello that is in order, behind which so many chunks of a table are to follow.
pub(super) fn hello(
    name: &str,
    incarnation: u128,
    nonce: &u64,
    sizes: Sizes,
    chunks: u32,
) -> Vec<u8> {
    let mut packet = packet(HELLO);
    packet.extend((EpType::Rdm as u32).to_le_bytes());
    packet.extend(incarnation.to_le_bytes());
    packet.extend(0_u32.to_le_bytes());
    for size in [sizes.commands, sizes.answers, sizes.pool] {
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

/// One end of a connection to an endpoint.
#[derive(Debug)]
pub(super) struct Line(OwnedFd);

/// What was heard.
#[derive(Debug)]
pub(super) enum Heard {
    Nothing,
    Packet(Vec<OwnedFd>),
    End,
}

impl Line {
    /// Connects to the endpoint of this address.
    pub(super) fn connect(address: &str) -> anyhow::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
        let name = address.strip_prefix("fi_shm://").unwrap_or(address);
        let path = format!("selvedge-shm/{}/{name}", nix::unistd::geteuid());
        let addr = UnixAddr::new_abstract(path.as_bytes())?;
        connect(socket.as_raw_fd(), &addr).with_context(|| format!("connecting to {name}"))?;
        Ok(Self(socket))
    }

    /// Sends a packet; nobody may listen any more.
    pub(super) fn say(&self, packet: &[u8], fds: &[BorrowedFd<'_>]) {
        let _ = self.try_say(packet, fds);
    }

    /// Sends a packet. Says whether there was room.
    pub(super) fn try_say(&self, packet: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
        let fds: Vec<_> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&fds)];
        let rights = if fds.is_empty() { &[][..] } else { &rights };
        let iov = [IoSlice::new(packet)];
        let flags = MsgFlags::MSG_NOSIGNAL;
        sendmsg::<UnixAddr>(self.0.as_raw_fd(), &iov, rights, flags, None).is_ok()
    }

    /// The process at the other end.
    pub(super) fn peer_pid(&self) -> anyhow::Result<i32> {
        Ok(getsockopt(&self.0, sockopt::PeerCredentials)?.pid())
    }

    /// What the other end says.
    pub(super) fn hear(&self) -> Heard {
        let mut bytes = [0; PACKET];
        let mut space = nix::cmsg_space!([i32; 4]);
        let mut iov = [IoSliceMut::new(&mut bytes)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let heard = recvmsg::<UnixAddr>(self.0.as_raw_fd(), &mut iov, Some(&mut space), flags);
        match heard {
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => Heard::Nothing,
            Ok(message) if message.bytes > 0 => {
                let rights = message.cmsgs().into_iter().flatten();
                Heard::Packet(rights.flat_map(taken).collect())
            }
            Ok(_) | Err(_) => Heard::End,
        }
    }

    /// Whether the other end has hung up.
    pub(super) fn is_over(&self) -> bool {
        loop {
            match self.hear() {
                Heard::Nothing => return false,
                Heard::Packet(_) => {}
                Heard::End => return true,
            }
        }
    }
}

#[expect(
    unsafe_code,
    reason = "the kernel has just given the descriptors to us"
)]
fn taken(message: ControlMessageOwned) -> Vec<OwnedFd> {
    let ControlMessageOwned::ScmRights(fds) = message else {
        return Vec::new();
    };
    // SAFETY: received just now, and owned by nothing else.
    let own = |fd| unsafe { OwnedFd::from_raw_fd(fd) };
    fds.into_iter().map(own).collect()
}
