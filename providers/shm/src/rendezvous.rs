//! The rendezvous: how two endpoints meet and what they say before they share memory.
//!
//! An endpoint listens on a Unix socket in the abstract namespace, so its name dies with it,
//! however it dies. Whoever has a first message for it connects and sends [`Hello`] together with
//! the descriptors of its region and its doorbell; the answer is a hello too. The socket stays open
//! for life: its end is the news that the peer is gone.
//!
//! Who the peer is (user, process) is asked of the kernel. What a hello says is checked field by
//! field before anything is done with it.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno as Sys;
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType,
    UnixAddr, accept4, bind, connect, getsockopt, listen, recvmsg, sendmsg, socket, sockopt,
};
use nix::unistd::geteuid;
use selvedge::{Errno, Error};

use crate::name::Name;
use crate::smr::Sizes;
use crate::smr::layout::{MAGIC, NAME_MAX, VERSION};

/// Pending connections that the kernel keeps for us.
const BACKLOG: i32 = 4096;
/// Bytes of every packet.
const PACKET: usize = 256;
/// Descriptors that come with a packet at most.
const MAX_FDS: usize = 2;

/// What an endpoint says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// The endpoint type's number; only equal types talk.
    pub(crate) ep_type: u32,
    /// The sender's life: random, never a pid.
    pub(crate) incarnation: u128,
    /// The receiver's bit on the sender's doorbell.
    pub(crate) bell: u32,
    /// The receiver's index in the sender's map.
    pub(crate) index: u64,
    /// How the region that comes along is laid out.
    pub(crate) sizes: Sizes,
    /// Where `nonce` stands in the sender's memory: to try cross-memory attach by.
    pub(crate) nonce_addr: u64,
    /// A random number.
    pub(crate) nonce: u64,
    /// The sender's name.
    pub(crate) name: Name,
}

/// Everything that is said over the socket.
#[derive(Debug)]
pub(crate) enum Packet {
    /// Comes with the descriptors of a region and a doorbell.
    Hello(Hello, OwnedFd, OwnedFd),
    /// Comes with the descriptor of a bounce region.
    Bounce {
        segment_count: u32,
        segment_size: u32,
        fd: OwnedFd,
    },
}

const KIND_HELLO: u32 = 1;
const KIND_BOUNCE: u32 = 2;

/// Where an endpoint can be found.
#[derive(Debug)]
pub(crate) struct Listener {
    fd: OwnedFd,
}

impl Listener {
    /// Takes the name.
    pub(crate) fn bind(name: &Name) -> Result<Self, Error> {
        let what = || format!("listening as {}", name.to_address());
        let fd = packet_socket().map_err(|e| failed(what(), e))?;
        bind(fd.as_raw_fd(), &socket_addr(name)?).map_err(|e| failed(what(), e))?;
        let backlog = Backlog::new(BACKLOG).map_err(|e| failed(what(), e))?;
        listen(&fd, backlog).map_err(|e| failed(what(), e))?;
        Ok(Self { fd })
    }

    /// Takes the next connection of our own user; `None` when nobody waits.
    pub(crate) fn accept(&self) -> Result<Option<Link>, Error> {
        loop {
            match accept4(
                self.fd.as_raw_fd(),
                SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            ) {
                Ok(fd) => {
                    let link = Link { fd: owned(fd) };
                    match link.check_user() {
                        Ok(()) => return Ok(Some(link)),
                        Err(error) => log::warn!(target: "selvedge::shm::ep_ctrl", "{error}"),
                    }
                }
                Err(Sys::EAGAIN) => return Ok(None),
                Err(Sys::EINTR | Sys::ECONNABORTED) => {}
                Err(error) => return Err(failed("accepting a peer".into(), error)),
            }
        }
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }
}

/// The socket between two endpoints.
#[derive(Debug)]
pub(crate) struct Link {
    fd: OwnedFd,
}

/// Why a connection did not come about.
#[derive(Debug)]
pub(crate) enum ConnectError {
    /// Nobody has the name, or too many want to talk to it: worth another try.
    NotYet,
    /// Something that another try does not mend.
    Failed(Error),
}

impl Link {
    /// Connects to the endpoint called `name`.
    pub(crate) fn connect(name: &Name) -> Result<Self, ConnectError> {
        let what = || format!("connecting to {}", name.to_address());
        let fd = packet_socket().map_err(|e| ConnectError::Failed(failed(what(), e)))?;
        let addr = socket_addr(name).map_err(ConnectError::Failed)?;
        match connect(fd.as_raw_fd(), &addr) {
            Ok(()) => {}
            Err(Sys::ECONNREFUSED | Sys::EAGAIN | Sys::EINTR | Sys::ENOENT) => {
                return Err(ConnectError::NotYet);
            }
            Err(error) => return Err(ConnectError::Failed(failed(what(), error))),
        }
        let link = Self { fd };
        link.check_user().map_err(ConnectError::Failed)?;
        Ok(link)
    }

    /// The peer's process, as the kernel knows it; 0 when it is in a namespace that we cannot see.
    pub(crate) fn peer_pid(&self) -> i32 {
        getsockopt(&self.fd, sockopt::PeerCredentials).map_or(0, |c| c.pid())
    }

    fn check_user(&self) -> Result<(), Error> {
        let peer = getsockopt(&self.fd, sockopt::PeerCredentials)
            .map_err(|e| failed("asking who the peer is".into(), e))?;
        let own = geteuid().as_raw();
        if peer.uid() != own {
            let what = format!(
                "the peer belongs to user {}, this process to {own}",
                peer.uid()
            );
            return Err(Error::new(Errno::Acces, what));
        }
        Ok(())
    }

    /// Sends a packet with its descriptors.
    pub(crate) fn send(&self, bytes: &[u8; PACKET], fds: &[BorrowedFd<'_>]) -> Result<(), Error> {
        let iov = [IoSlice::new(bytes)];
        let fds: Vec<_> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&fds)];
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        loop {
            match sendmsg::<UnixAddr>(self.fd.as_raw_fd(), &iov, &rights, flags, None) {
                Ok(_) => return Ok(()),
                Err(Sys::EINTR) => {}
                Err(error) => return Err(failed("sending a hello".into(), error)),
            }
        }
    }

    /// What arrived next.
    pub(crate) fn receive(&self) -> Result<Heard, Error> {
        let mut bytes = [0; PACKET];
        let mut fds = Vec::with_capacity(MAX_FDS);
        let mut space = nix::cmsg_space!([i32; MAX_FDS]);
        let len = {
            let mut iov = [IoSliceMut::new(&mut bytes)];
            let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
            let fd = self.fd.as_raw_fd();
            let message = match recvmsg::<UnixAddr>(fd, &mut iov, Some(&mut space), flags) {
                Ok(message) => message,
                Err(Sys::EAGAIN | Sys::EINTR) => return Ok(Heard::Nothing),
                Err(Sys::ECONNRESET) => return Ok(Heard::End),
                Err(error) => return Err(failed("hearing from a peer".into(), error)),
            };
            for control in message
                .cmsgs()
                .map_err(|e| failed("hearing from a peer".into(), e))?
            {
                if let ControlMessageOwned::ScmRights(rights) = control {
                    fds.extend(rights.into_iter().map(owned));
                }
            }
            message.bytes
        };
        if len == 0 && fds.is_empty() {
            return Ok(Heard::End);
        }
        parse(&bytes[..len], fds).map(|packet| Heard::Packet(Box::new(packet)))
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }
}

/// What [`Link::receive`] found.
#[derive(Debug)]
pub(crate) enum Heard {
    /// Nothing yet.
    Nothing,
    /// A packet.
    Packet(Box<Packet>),
    /// The peer has closed its end.
    End,
}

impl Hello {
    /// The packet that says this.
    pub(crate) fn encode(&self) -> [u8; PACKET] {
        let mut out = Writer::new(KIND_HELLO);
        out.u32(self.ep_type);
        out.bytes(&self.incarnation.to_le_bytes());
        out.u32(self.bell);
        out.u64(self.index);
        out.u32(self.sizes.cmd_count as u32);
        out.u32(self.sizes.resp_count as u32);
        out.u32(self.sizes.inject_size as u32);
        out.u64(self.nonce_addr);
        out.u64(self.nonce);
        out.u32(self.name.as_str().len() as u32);
        out.bytes(self.name.as_str().as_bytes());
        out.packet
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self {
            ep_type: input.u32()?,
            incarnation: u128::from_le_bytes(input.array()?),
            bell: input.u32()?,
            index: input.u64()?,
            sizes: Sizes {
                cmd_count: input.u32()? as usize,
                resp_count: input.u32()? as usize,
                inject_size: input.u32()? as usize,
            },
            nonce_addr: input.u64()?,
            nonce: input.u64()?,
            name: {
                let len = input.u32()? as usize;
                let text = input.slice(len.min(NAME_MAX + 1))?;
                let text = std::str::from_utf8(text).map_err(|_| nonsense("its name"))?;
                Name::plain(text)?
            },
        })
    }
}

/// The packet that comes with a bounce region.
pub(crate) fn encode_bounce(segment_count: u32, segment_size: u32) -> [u8; PACKET] {
    let mut out = Writer::new(KIND_BOUNCE);
    out.u32(segment_count);
    out.u32(segment_size);
    out.packet
}

fn parse(bytes: &[u8], fds: Vec<OwnedFd>) -> Result<Packet, Error> {
    let mut input = Reader { bytes };
    if input.u64()? != MAGIC {
        return Err(nonsense("its first word"));
    }
    let version = input.u32()?;
    if version != VERSION {
        let what = format!("a peer speaks version {version}, this endpoint {VERSION}");
        return Err(Error::new(Errno::Proto, what));
    }
    let kind = input.u32()?;
    let mut fds = fds.into_iter();
    let mut fd = || {
        fds.next()
            .ok_or_else(|| nonsense("the number of its descriptors"))
    };
    match kind {
        KIND_HELLO => Ok(Packet::Hello(Hello::decode(&mut input)?, fd()?, fd()?)),
        KIND_BOUNCE => Ok(Packet::Bounce {
            segment_count: input.u32()?,
            segment_size: input.u32()?,
            fd: fd()?,
        }),
        _ => Err(nonsense("its kind")),
    }
}

struct Writer {
    packet: [u8; PACKET],
    len: usize,
}

impl Writer {
    fn new(kind: u32) -> Self {
        let mut out = Self {
            packet: [0; PACKET],
            len: 0,
        };
        out.u64(MAGIC);
        out.u32(VERSION);
        out.u32(kind);
        out
    }

    fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.packet[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn slice(&mut self, len: usize) -> Result<&'a [u8], Error> {
        let (head, rest) = self
            .bytes
            .split_at_checked(len)
            .ok_or_else(|| nonsense("its length"))?;
        self.bytes = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        self.slice(N)
            .map(|s| s.try_into().expect("the slice has N bytes"))
    }

    fn u32(&mut self) -> Result<u32, Error> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Error> {
        self.array().map(u64::from_le_bytes)
    }
}

fn packet_socket() -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)
}

fn socket_addr(name: &Name) -> Result<UnixAddr, Error> {
    let path = format!("selvedge-shm/{}/{name}", geteuid());
    UnixAddr::new_abstract(path.as_bytes())
        .map_err(|e| failed(format!("the address {}", name.to_address()), e))
}

fn owned(fd: i32) -> OwnedFd {
    take_fd::owned(fd)
}

#[expect(unsafe_code, reason = "the kernel has just given the descriptor to us")]
mod take_fd {
    use super::{FromRawFd, OwnedFd};

    pub(super) fn owned(fd: i32) -> OwnedFd {
        // SAFETY: called only with descriptors that accept(2) or recvmsg(2) has just made for us.
        unsafe { OwnedFd::from_raw_fd(fd) }
    }
}

fn failed(what: String, cause: Sys) -> Error {
    Error::new(Errno::from_raw(cause as i32), what).because(cause)
}

fn nonsense(what: &str) -> Error {
    Error::new(
        Errno::Proto,
        format!("a peer's hello was refused: {what} makes no sense"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            ep_type: 3,
            incarnation: 0x1234_5678_9abc_def0_1122_3344_5566_7788,
            bell: 7,
            index: 9,
            sizes: Sizes {
                cmd_count: 256,
                resp_count: 256,
                inject_size: 65536,
            },
            nonce_addr: 0x7fff_0000_1000,
            nonce: 42,
            name: Name::plain("1:2:3").unwrap(),
        }
    }

    fn fds() -> Vec<OwnedFd> {
        (0..2).map(|_| packet_socket().unwrap()).collect()
    }

    #[test]
    fn a_hello_survives_the_wire() {
        let Packet::Hello(heard, _, _) = parse(&hello().encode(), fds()).unwrap() else {
            panic!("not a hello")
        };
        assert_eq!(heard, hello());
    }

    #[test]
    fn every_truncation_of_a_hello_is_refused() {
        let packet = hello().encode();
        let needed = 16 + 4 + 16 + 4 + 8 + 12 + 16 + 4 + 5;
        for len in 0..needed {
            assert_eq!(
                parse(&packet[..len], fds()).unwrap_err().errno(),
                Errno::Proto
            );
        }
    }

    #[test]
    fn a_hello_without_its_descriptors_is_refused() {
        assert!(parse(&hello().encode(), Vec::new()).is_err());
    }

    #[test]
    fn another_version_is_refused_by_number() {
        let mut packet = hello().encode();
        packet[8] = 99;
        let error = parse(&packet, fds()).unwrap_err().to_string();
        assert!(error.contains("99"), "{error}");
    }
}
