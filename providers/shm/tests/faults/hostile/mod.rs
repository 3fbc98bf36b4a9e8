//! Peers that speak nonsense: garbled greetings, wrong descriptors, silence, forged answers, and
//! random commands, credits and segments. They harm nobody but themselves.
//!
//! Here is what all of them are made of; the tests are in the modules.

mod answers;
mod commands;
mod extents;
mod flips;
mod greetings;
mod segments;
mod tables;

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType,
    UnixAddr, accept4, bind, connect, listen, recvmsg, sendmsg, socket,
};
use selvedge::FiAddr;
use selvedge::info::EpType;
use selvedge_shm::smr::bounce::{BounceSender, Shape};
use selvedge_shm::smr::cmd_queue::Sender;
use selvedge_shm::smr::doorbell::{Bell, Doorbell};
use selvedge_shm::smr::inject_pool::Walk;
use selvedge_shm::smr::keys::Chunk;
use selvedge_shm::smr::layout::VERSION;
use selvedge_shm::smr::resp_queue::RespSender;
use selvedge_shm::smr::{Attr, PeerRegion, Region, Sizes};

use crate::death::Random;
use crate::side::{Kind, Side, content};

const SIZES: Sizes = Sizes {
    cmd_count: 256,
    resp_count: 512,
    inject_size: 65536,
};

/// Kinds of packets.
const HELLO: u32 = 1;
const BOUNCE: u32 = 2;
const KEYS: u32 = 5;
const BLOCK: u32 = 6;
const RELEASE: u32 = 7;
pub(crate) const REFUSAL: u32 = 4;
pub(crate) const QUESTION: u32 = 9;
pub(crate) const NONCE: u32 = 10;
pub(crate) const PROOF: u32 = 11;

/// A good pair, and the endpoint of it that is attacked.
pub(crate) struct Scene {
    pub(crate) victim: Side,
    other: Side,
    to_victim: FiAddr,
    number: u64,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    /// The victim has these parameters.
    fn with(params: &[(&str, &str)]) -> Self {
        let (victim, other) = (Side::with(None, params), Side::new());
        let to_victim = other.insert(victim.name());
        let mut scene = Self {
            victim,
            other,
            to_victim,
            number: 0,
        };
        scene.goes_on();
        scene
    }

    /// Messages of every size pass between the good ones.
    #[track_caller]
    pub(crate) fn goes_on(&mut self) {
        let source = self.victim.insert(self.other.name());
        for len in [8, 3000, 100_000] {
            self.number += 1;
            let (kind, number) = (Kind::Delivered, self.number);
            self.victim.recv(kind, source, len, number).unwrap();
            self.other.send(kind, self.to_victim, len, number).unwrap();
            self.other.next_with(&mut [&mut self.victim]).ok();
            let event = loop {
                let event = self.victim.next();
                if event.context == number {
                    break event.ok();
                }
            };
            assert!(event.bytes == content(number, len));
        }
    }
}

/// One end of a connection to an endpoint, held by nobody good.
pub(crate) struct Hostile {
    socket: OwnedFd,
}

impl Hostile {
    /// A connection that was made already.
    pub(crate) fn of(socket: OwnedFd) -> Self {
        Self { socket }
    }

    pub(crate) fn connect(victim: &Side) -> Self {
        let (socket, name) = (packet_socket(), victim.name());
        let name = name.strip_prefix("fi_shm://").unwrap();
        connect(socket.as_raw_fd(), &rendezvous(name)).unwrap();
        Self { socket }
    }

    /// Has a name; whoever looks for it can be taken by [`Self::accept`].
    pub(crate) fn listen(name: &str) -> Self {
        let socket = packet_socket();
        bind(socket.as_raw_fd(), &rendezvous(name)).unwrap();
        listen(&socket, Backlog::new(10).unwrap()).unwrap();
        Self { socket }
    }

    pub(crate) fn accept(&self) -> Self {
        let socket = accept4(self.socket.as_raw_fd(), SockFlag::SOCK_NONBLOCK).unwrap();
        Self {
            socket: accepted(socket),
        }
    }

    /// The same, if somebody has come.
    pub(crate) fn try_accept(&self) -> Option<Self> {
        let socket = accept4(self.socket.as_raw_fd(), SockFlag::SOCK_NONBLOCK).ok()?;
        Some(Self {
            socket: accepted(socket),
        })
    }

    /// Sends a packet; the victim may have hung up already.
    pub(crate) fn say(&self, packet: &[u8], fds: &[BorrowedFd<'_>]) {
        let _ = self.try_say(packet, fds);
    }

    /// Sends a packet. Says whether there was room.
    fn try_say(&self, packet: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
        let fds: Vec<_> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&fds)];
        let rights = if fds.is_empty() { &[][..] } else { &rights };
        let iov = [IoSlice::new(packet)];
        let flags = MsgFlags::MSG_NOSIGNAL;
        sendmsg::<UnixAddr>(self.socket.as_raw_fd(), &iov, rights, flags, None).is_ok()
    }

    /// What the victim says: `None` when it has hung up, nothing while it is silent.
    pub(crate) fn hear(&self) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
        let mut bytes = vec![0; 256];
        let mut space = nix::cmsg_space!([i32; 4]);
        let mut iov = [IoSliceMut::new(&mut bytes)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let heard = recvmsg::<UnixAddr>(self.socket.as_raw_fd(), &mut iov, Some(&mut space), flags);
        let (len, fds) = match heard {
            Ok(message) => (
                message.bytes,
                message.cmsgs().unwrap().flat_map(taken).collect(),
            ),
            Err(nix::errno::Errno::EAGAIN) => return Some((Vec::new(), Vec::new())),
            Err(_) => return None,
        };
        bytes.truncate(len);
        (len > 0).then_some((bytes, fds))
    }

    /// Drives the victim until it has hung up.
    #[track_caller]
    pub(crate) fn is_cut_off_by(&self, victim: &mut Side) {
        victim.until(|_| self.hear().is_none());
    }
}

pub(crate) fn packet_socket() -> OwnedFd {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).unwrap()
}

/// Where an endpoint of this user listens.
pub(crate) fn rendezvous(name: &str) -> UnixAddr {
    let path = format!("selvedge-shm/{}/{name}", nix::unistd::geteuid());
    UnixAddr::new_abstract(path.as_bytes()).unwrap()
}

#[expect(unsafe_code, reason = "the kernel has just given the descriptor to us")]
fn accepted(fd: i32) -> OwnedFd {
    // SAFETY: accepted just now, and owned by nothing else.
    unsafe { OwnedFd::from_raw_fd(fd) }
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

/// The beginning of a packet.
fn packet(kind: u32) -> Vec<u8> {
    let mut packet = b"selvedge".to_vec();
    packet.extend(VERSION.to_le_bytes());
    packet.extend(kind.to_le_bytes());
    packet
}

/// A packet of the proof of an authorization key.
pub(crate) fn said(kind: u32, word: &[u8; 32], name: &str) -> Vec<u8> {
    let mut packet = packet(kind);
    packet.extend(word);
    if kind == QUESTION {
        packet.extend((name.len() as u32).to_le_bytes());
        packet.extend(name.as_bytes());
    }
    packet.resize(256, 0);
    packet
}

/// A hello that is in order.
pub(crate) fn hello(name: &str, incarnation: u128, nonce: &u64) -> Vec<u8> {
    let mut packet = packet(HELLO);
    packet.extend((EpType::Rdm as u32).to_le_bytes());
    packet.extend(incarnation.to_le_bytes());
    packet.extend(0_u32.to_le_bytes());
    for size in [SIZES.cmd_count, SIZES.resp_count, SIZES.inject_size] {
        packet.extend((size as u32).to_le_bytes());
    }
    let addr = std::ptr::from_ref(nonce).expose_provenance() as u64;
    packet.extend(addr.to_le_bytes());
    packet.extend(nonce.to_le_bytes());
    packet.extend(0_u32.to_le_bytes());
    packet.extend((name.len() as u32).to_le_bytes());
    packet.extend(name.as_bytes());
    packet.resize(256, 0);
    packet
}

pub(crate) fn region() -> Region {
    let attr = Attr {
        sizes: SIZES,
        peer: "victim",
    };
    Region::create(&attr).unwrap()
}

/// A hostile peer that was let in.
struct Intruder {
    hostile: Hostile,
    region: Region,
    /// The victim's memory for us.
    theirs: PeerRegion,
    tx: Sender,
    resp: RespSender,
    bell: Option<Bell>,
    bounce: Option<BounceSender>,
    walk: Walk,
    next_id: u64,
}

impl Intruder {
    fn enter(victim: &mut Side, name: &str, incarnation: u128, nonce: &u64) -> Self {
        Self::enter_saying(victim, &hello(name, incarnation, nonce), |_| {})
    }

    /// Lets its peers at memory as the rows of a chunk of keys say.
    fn enter_with_keys(victim: &mut Side, name: &str, nonce: &u64, chunk: &Chunk) -> Self {
        let mut hello = hello(name, 5, nonce);
        hello[68..72].copy_from_slice(&1_u32.to_le_bytes());
        Self::enter_saying(victim, &hello, |hostile| {
            let mut packet = packet(KEYS);
            packet.resize(256, 0);
            hostile.say(&packet, &[chunk.memory().fd()]);
        })
    }

    fn enter_saying(victim: &mut Side, hello: &[u8], more: impl FnOnce(&Hostile)) -> Self {
        let hostile = Hostile::connect(victim);
        let (region, (_, bell)) = (region(), Doorbell::create().unwrap());
        hostile.say(hello, &[region.fd(), bell.fd()]);
        more(&hostile);
        let mut answer = Vec::new();
        victim.until(|_| match hostile.hear() {
            Some((bytes, fds)) => {
                answer = fds;
                !bytes.is_empty()
            }
            None => panic!("not let in"),
        });
        let bell = answer.pop().and_then(|fd| Bell::attach(fd, 0).ok());
        let theirs = answer
            .pop()
            .map(|fd| PeerRegion::attach(fd, SIZES).unwrap());
        Self {
            theirs: theirs.unwrap(),
            tx: region.cmd_sender(),
            resp: region.resp_sender(),
            bell,
            bounce: None,
            walk: Walk::new(SIZES.inject_size),
            next_id: 0,
            region,
            hostile,
        }
    }

    fn segment(&mut self, random: &mut Random) {
        let Some(bounce) = &mut self.bounce else {
            let shape = Shape {
                count: 16,
                size: 4096,
            };
            let bounce = BounceSender::create(shape).unwrap();
            let mut packet = packet(BOUNCE);
            packet.extend(16_u32.to_le_bytes());
            packet.extend(4096_u32.to_le_bytes());
            packet.resize(256, 0);
            self.hostile.say(&packet, &[bounce.memory().fd()]);
            self.bounce = Some(bounce);
            return;
        };
        bounce.fill(
            random.below(200) as u32,
            random.below(5000) as usize,
            |_, _, _| {},
        );
        // Announced again although the victim may still have it.
        let _ = bounce.give_back(random.below(16) as u32);
    }
}
