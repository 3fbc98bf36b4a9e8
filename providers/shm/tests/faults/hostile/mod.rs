//! Hostile peers: garbled hellos, wrong descriptors, silent connections, forged responses, and
//! random commands, credits and segments. The endpoint cuts them off, and no other peer is
//! affected.
//!
//! This file has the items that the tests share. The tests are in the modules.

mod commands;
mod extents;
mod flips;
mod hellos;
mod lent;
mod responses;
mod segments;
mod tables;

use std::os::fd::{BorrowedFd, OwnedFd};

use selvedge::FiAddr;
use selvedge_shm::smr::bounce::{BounceSender, Shape};
use selvedge_shm::smr::cmd_queue::Sender;
use selvedge_shm::smr::doorbell::{Bell, Doorbell};
use selvedge_shm::smr::inject_pool::PoolPosition;
use selvedge_shm::smr::keys::Chunk;
use selvedge_shm::smr::layout::VERSION;
use selvedge_shm::smr::resp_queue::RespSender;
use selvedge_shm::smr::{Attr, PeerRegion, Region, Sizes};
use selvedge_testkit::shm_peer::{self, BLOCK, BOUNCE, Hello, KEYS, PeerSocket, RELEASE, Received};

use crate::endpoint::{Kind, NumberedEndpoint, content};
use crate::peer_failure::Random;

const SIZES: Sizes = Sizes {
    cmd_count: 256,
    resp_count: 512,
    inject_size: 65536,
};

/// Kinds of packets: the refusal, and the packets of the proof of a key.
pub(crate) const REFUSAL: u32 = 4;
pub(crate) const QUESTION: u32 = 9;
pub(crate) const NONCE: u32 = 10;
pub(crate) const PROOF: u32 = 11;

/// Two well-behaved endpoints, of which hostile peers attack `target`.
pub(crate) struct Scenario {
    pub(crate) target: NumberedEndpoint,
    other: NumberedEndpoint,
    to_target: FiAddr,
    number: u64,
}

impl Scenario {
    pub(crate) fn new() -> Self {
        Self::with_params(&[])
    }

    /// Opens a target with these parameters, and another endpoint.
    fn with_params(params: &[(&str, &str)]) -> Self {
        let (target, other) = (
            NumberedEndpoint::with_params(None, params),
            NumberedEndpoint::new(),
        );
        let to_target = other.insert(target.name());
        let mut scenario = Self {
            target,
            other,
            to_target,
            number: 0,
        };
        scenario.expect_traffic();
        scenario
    }

    /// Checks that messages of every size pass between the well-behaved endpoints.
    #[track_caller]
    pub(crate) fn expect_traffic(&mut self) {
        let source = self.target.insert(self.other.name());
        for len in [8, 3000, 100_000] {
            self.number += 1;
            let (kind, number) = (Kind::Delivered, self.number);
            self.target.recv(kind, source, len, number).unwrap();
            self.other.send(kind, self.to_target, len, number).unwrap();
            self.other.next_with(&mut [&mut self.target]).ok();
            let event = loop {
                let event = self.target.next();
                if event.context == number {
                    break event.ok();
                }
            };
            assert!(event.bytes == content(number, len));
        }
    }
}

/// A hostile peer's side of a connection to an endpoint.
pub(crate) struct HostileConnection {
    socket: PeerSocket,
}

impl HostileConnection {
    /// Wraps the socket of an existing connection.
    pub(crate) fn from_socket(socket: OwnedFd) -> Self {
        let socket = PeerSocket::new(socket);
        Self { socket }
    }

    pub(crate) fn connect(target: &NumberedEndpoint) -> Self {
        let socket = PeerSocket::connect(&target.name()).unwrap();
        Self { socket }
    }

    /// Listens under a name. [`Self::accept`] takes the connections.
    pub(crate) fn listen(name: &str) -> Self {
        let socket = PeerSocket::listen(name).unwrap();
        Self { socket }
    }

    pub(crate) fn accept(&self) -> Self {
        self.try_accept().unwrap()
    }

    /// As [`Self::accept`]; `None` if no peer has connected.
    pub(crate) fn try_accept(&self) -> Option<Self> {
        let socket = self.socket.accept().ok()?;
        Some(Self { socket })
    }

    /// Sends a packet. The target may have closed the connection already.
    pub(crate) fn send(&self, packet: &[u8], fds: &[BorrowedFd<'_>]) {
        self.socket.send(packet, fds);
    }

    /// Sends a packet. Returns whether the socket had room.
    fn try_send(&self, packet: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
        self.socket.try_send(packet, fds)
    }

    /// Receives a packet of the target: empty if there is none, `None` if the connection is closed.
    pub(crate) fn receive(&self) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
        match self.socket.receive() {
            Received::Nothing => Some((Vec::new(), Vec::new())),
            Received::Packet(bytes, fds) => Some((bytes, fds)),
            Received::End => None,
        }
    }

    /// Makes progress on the target until it has closed the connection.
    #[track_caller]
    pub(crate) fn expect_cut_off_by(&self, target: &mut NumberedEndpoint) {
        target.until(|_| self.receive().is_none());
    }
}

/// The header of a packet of this version.
fn packet(kind: u32) -> Vec<u8> {
    shm_peer::packet(VERSION, kind)
}

/// A packet of the proof of an authorization key.
pub(crate) fn proof_packet(kind: u32, word: &[u8; 32], name: &str) -> Vec<u8> {
    let mut packet = packet(kind);
    packet.extend(word);
    if kind == QUESTION {
        packet.extend((name.len() as u32).to_le_bytes());
        packet.extend(name.as_bytes());
    }
    packet.resize(256, 0);
    packet
}

/// A valid hello.
pub(crate) fn hello(name: &str, incarnation: u128, nonce: &u64) -> Vec<u8> {
    let hello = Hello {
        name,
        incarnation,
        nonce,
        sizes: shm_peer::Sizes::DEFAULT,
        chunks: 0,
    };
    hello.packet(VERSION)
}

pub(crate) fn region() -> Region {
    let attr = Attr {
        sizes: SIZES,
        peer: "target",
    };
    Region::create(&attr).unwrap()
}

/// A hostile peer that is connected.
struct HostilePeer {
    hostile: HostileConnection,
    region: Region,
    /// The target's region for this peer.
    target_region: PeerRegion,
    tx: Sender,
    resp: RespSender,
    bell: Option<Bell>,
    bounce: Option<BounceSender>,
    cursor: PoolPosition,
    next_id: u64,
}

impl HostilePeer {
    fn connect(target: &mut NumberedEndpoint, name: &str, incarnation: u128, nonce: &u64) -> Self {
        Self::connect_with(target, &hello(name, incarnation, nonce), |_| {})
    }

    /// Connects a peer that announces the key entries of a chunk.
    fn connect_with_keys(
        target: &mut NumberedEndpoint,
        name: &str,
        nonce: &u64,
        chunk: &Chunk,
    ) -> Self {
        let mut hello = hello(name, 5, nonce);
        hello[68..72].copy_from_slice(&1_u32.to_le_bytes());
        Self::connect_with(target, &hello, |hostile| {
            let mut packet = packet(KEYS);
            packet.resize(256, 0);
            hostile.send(&packet, &[chunk.memory().fd()]);
        })
    }

    fn connect_with(
        target: &mut NumberedEndpoint,
        hello: &[u8],
        send_more: impl FnOnce(&HostileConnection),
    ) -> Self {
        let hostile = HostileConnection::connect(target);
        let (region, (_, bell)) = (region(), Doorbell::create().unwrap());
        hostile.send(hello, &[region.fd(), bell.fd()]);
        send_more(&hostile);
        let mut response = Vec::new();
        target.until(|_| match hostile.receive() {
            Some((bytes, fds)) => {
                response = fds;
                !bytes.is_empty()
            }
            None => panic!("the target refuses the hello"),
        });
        let bell = response.pop().and_then(|fd| Bell::attach(fd, 0).ok());
        let target_region = response
            .pop()
            .map(|fd| PeerRegion::attach(fd, SIZES).unwrap());
        Self {
            target_region: target_region.unwrap(),
            tx: region.cmd_sender(),
            resp: region.resp_sender(),
            bell,
            bounce: None,
            cursor: PoolPosition::new(SIZES.inject_size),
            next_id: 0,
            region,
            hostile,
        }
    }

    /// Announces a bounce segment with a random number and length. The first call creates the
    /// bounce region instead.
    fn send_segment(&mut self, random: &mut Random) {
        let Some(bounce) = &mut self.bounce else {
            let shape = Shape {
                count: 16,
                size: 4096,
            };
            let bounce = BounceSender::create(None, shape).unwrap();
            let mut packet = packet(BOUNCE);
            packet.extend(16_u32.to_le_bytes());
            packet.extend(4096_u32.to_le_bytes());
            packet.resize(256, 0);
            self.hostile.send(&packet, &[bounce.memory().fd()]);
            self.bounce = Some(bounce);
            return;
        };
        bounce.fill(
            random.below(200) as u32,
            random.below(5000) as usize,
            |_, _, _| {},
        );
        // Announces the segment again although the target may still read it.
        let _ = bounce.free_segment(random.below(16) as u32);
    }
}
