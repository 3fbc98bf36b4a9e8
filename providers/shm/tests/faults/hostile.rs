//! Peers that speak nonsense: garbled greetings, wrong descriptors, silence, and random commands,
//! credits, answers and segments. They harm nobody but themselves.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType,
    UnixAddr, accept4, bind, connect, listen, recvmsg, sendmsg, socket,
};
use selvedge::info::EpType;
use selvedge::{Errno, FiAddr, IovMut, MemoryRegion, MrAccess, mr};
use selvedge_shm::smr::bounce::{BounceSender, Shape};
use selvedge_shm::smr::cmd_queue::Sender;
use selvedge_shm::smr::doorbell::{Bell, Doorbell};
use selvedge_shm::smr::inject_pool::Walk;
use selvedge_shm::smr::layout::VERSION;
use selvedge_shm::smr::resp_queue::{Resp, RespSender};
use selvedge_shm::smr::{Attr, Memory, PeerRegion, Region, Sizes, Writers};

use crate::contact::unique;
use crate::death::Random;
use crate::process::alone;
use crate::side::{ANY, Kind, Side, content};
use crate::tally::{Tally, private};

const SIZES: Sizes = Sizes {
    cmd_count: 256,
    resp_count: 512,
    inject_size: 65536,
};

/// Kinds of packets.
const HELLO: u32 = 1;
const BOUNCE: u32 = 2;

/// A good pair, and the endpoint of it that is attacked.
struct Scene {
    victim: Side,
    other: Side,
    to_victim: FiAddr,
    number: u64,
}

impl Scene {
    fn new() -> Self {
        let (victim, other) = (Side::new(), Side::new());
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
    fn goes_on(&mut self) {
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
    fn connect(victim: &Side) -> Self {
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

    /// Sends a packet; the victim may have hung up already.
    pub(crate) fn say(&self, packet: &[u8], fds: &[BorrowedFd<'_>]) {
        let fds: Vec<_> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&fds)];
        let rights = if fds.is_empty() { &[][..] } else { &rights };
        let iov = [IoSlice::new(packet)];
        let flags = MsgFlags::MSG_NOSIGNAL;
        let _ = sendmsg::<UnixAddr>(self.socket.as_raw_fd(), &iov, rights, flags, None);
    }

    /// What the victim says: `None` when it has hung up, nothing while it is silent.
    fn hear(&self) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
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
    fn is_cut_off_by(&self, victim: &mut Side) {
        victim.until(|_| self.hear().is_none());
    }
}

fn packet_socket() -> OwnedFd {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).unwrap()
}

/// Where an endpoint of this user listens.
fn rendezvous(name: &str) -> UnixAddr {
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

#[test]
fn garbled_greetings_are_refused_and_cost_nothing() {
    alone(|| {
        let mut random = Random::seeded();
        let mut scene = Scene::new();
        let (region, (_, bell)) = (region(), Doorbell::create().unwrap());
        let fds = [region.fd(), bell.fd()];
        let good = hello(&unique("garbled"), 1, &7);
        let before = Tally::now();
        for len in 0..good.len() {
            let hostile = Hostile::connect(&scene.victim);
            hostile.say(&good[..len.min(76)], &fds);
            hostile.is_cut_off_by(&mut scene.victim);
        }
        for _ in 0..2000 {
            let hostile = Hostile::connect(&scene.victim);
            let mut bad = good.clone();
            for _ in 0..=random.below(4) {
                let place = random.below(100) as usize;
                bad[place] = random.word() as u8;
            }
            // Now and then it is all nonsense, too long, or in order.
            match random.below(10) {
                0 => bad.iter_mut().for_each(|byte| *byte = random.word() as u8),
                1 => bad.resize(5000, 0xff),
                _ => {}
            }
            hostile.say(&bad, &fds);
            (0..100).for_each(|_| scene.victim.drive());
            drop(hostile);
            (0..100).for_each(|_| scene.victim.drive());
        }
        scene.goes_on();
        scene.victim.until(|_| Tally::now() == before);
    });
}

#[test]
fn descriptors_that_are_not_what_they_should_be_are_refused() {
    alone(|| {
        let mut scene = Scene::new();
        let (region, (_, bell)) = (region(), Doorbell::create().unwrap());
        let (pipe, _writer) = nix::unistd::pipe().unwrap();
        let directory = File::open("/").unwrap();
        let device = File::open("/dev/zero").unwrap();
        let unsealed = nix::sys::memfd::memfd_create("x", nix::sys::memfd::MFdFlags::empty());
        let unsealed = File::from(unsealed.unwrap());
        unsealed.set_len(94208).unwrap();
        let small = Memory::create(4096, Writers::Owner).unwrap();
        let empty = Memory::create(94208, Writers::Owner).unwrap();
        let flags = SockFlag::SOCK_CLOEXEC;
        let listener = socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
        let wrong = [
            pipe.as_fd(),
            directory.as_fd(),
            device.as_fd(),
            unsealed.as_fd(),
            small.fd(),
            empty.fd(),
            listener.as_fd(),
        ];
        let good = hello(&unique("wrong-fd"), 1, &7);
        let before = Tally::now();
        for wrong in wrong {
            for fds in [
                vec![wrong, bell.fd()],
                vec![wrong],
                vec![],
                vec![wrong; 100],
            ] {
                let hostile = Hostile::connect(&scene.victim);
                hostile.say(&good, &fds);
                hostile.is_cut_off_by(&mut scene.victim);
            }
        }
        for wrong in [
            pipe.as_fd(),
            directory.as_fd(),
            unsealed.as_fd(),
            region.fd(),
        ] {
            let hostile = Hostile::connect(&scene.victim);
            hostile.say(&good, &[region.fd(), wrong]);
            hostile.is_cut_off_by(&mut scene.victim);
        }
        scene.goes_on();
        assert_eq!(Tally::now(), before);
    });
}

#[test]
fn strangers_with_ever_new_names_and_bad_regions_leave_no_memory() {
    alone(|| {
        let mut scene = Scene::new();
        let bell = Doorbell::create().unwrap().1;
        let bad = File::open("/dev/null").unwrap();
        let mut baseline = 0;
        for round in 0..6000 {
            let hostile = Hostile::connect(&scene.victim);
            let hello = hello(&format!("stranger{round}"), 1, &7);
            hostile.say(&hello, &[bad.as_fd(), bell.fd()]);
            hostile.is_cut_off_by(&mut scene.victim);
            if round == 1000 {
                baseline = private();
            }
        }
        let grown = private().saturating_sub(baseline);
        assert!(grown < 1 << 20, "memory has grown by {grown} bytes");
        scene.goes_on();
    });
}

#[test]
fn silent_connections_do_not_keep_others_out() {
    alone(|| {
        let mut scene = Scene::new();
        let before = Tally::now();
        let mut silent = Vec::new();
        for round in 0..10 {
            silent.extend((0..50).map(|_| Hostile::connect(&scene.victim)));
            scene.goes_on();
            let mut late = Side::new();
            let to_victim = late.insert(scene.victim.name());
            scene
                .victim
                .recv(Kind::Tagged, FiAddr::UNSPEC, 8, 1000 + round)
                .unwrap();
            late.send(Kind::Delivered, to_victim, 8, 1000 + round)
                .unwrap();
            late.next_with(&mut [&mut scene.victim]).ok();
            scene.victim.next().ok();
        }
        // Some are kept, and not one for each.
        scene
            .victim
            .until(|_| Tally::now().fds <= before.fds + silent.len() + 64);
        // Their patience ends.
        scene
            .victim
            .until(|_| Tally::now().fds == before.fds + silent.len());
        assert!(silent.iter().all(|hostile| hostile.hear().is_none()));
    });
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
        let hostile = Hostile::connect(victim);
        let (region, (_, bell)) = (region(), Doorbell::create().unwrap());
        hostile.say(&hello(name, incarnation, nonce), &[region.fd(), bell.fd()]);
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

    /// Does one thing that a peer could do, more or less in order.
    fn act(&mut self, random: &mut Random, memory: &[u8]) {
        match random.below(1000) {
            0..600 => self.command(random, memory),
            600..850 => self.one_sided(random, memory),
            850..860 => self.resp.push(Resp {
                msg_id: random.below(8) as u32 | (random.below(3) as u32) << 16,
                status: random.below(6) as u32,
            }),
            860..862 => self.region.credit().publish(random.below(4)),
            862..960 => self.segment(random),
            960..980 => self.bell.iter().for_each(Bell::ring),
            980..982 => self.hostile.say(&noise(random), &[]),
            _ => self.region.set_attentive(random.below(2) == 0),
        }
    }

    fn command(&mut self, random: &mut Random, memory: &[u8]) {
        // As if everything had been consumed.
        let _ = self.tx.refresh(self.tx.position());
        let op_src = [0, 0, 0, 1, 1, 2][random.below(6) as usize];
        let flags = [0, 1, 2, 3][random.below(4) as usize];
        let mut head = random.below(2) as u32 | op_src << 8 | flags << 16;
        head |= (random.below(41) as u32) << 24;
        let is_wrong = random.below(300) == 0;
        if is_wrong {
            head ^= 1 << random.below(32);
        }
        let Some(mut slot) = self.tx.claim() else {
            return;
        };
        for word in 1..8 {
            slot.put(word, random.word() >> random.below(64));
        }
        if op_src == 1 {
            let len = random.below(5000);
            let offset = self.walk.pass(len as usize).unwrap() as u64;
            slot.put(3, len);
            slot.put(4, if is_wrong { random.word() } else { offset });
        }
        if op_src == 2 {
            let (len, id) = (random.below(1 << 17), self.next_id);
            self.next_id += random.below(20).min(1);
            slot.put(3, len);
            slot.put(4, id | 1 << 32);
            slot.put(
                5,
                memory.as_ptr().expose_provenance() as u64 + random.below(2),
            );
            slot.put(6, random.below(10));
        }
        slot.commit(head);
    }

    /// A read, a write, a result or a notice, most of them with the victim's key.
    fn one_sided(&mut self, random: &mut Random, memory: &[u8]) {
        let _ = self.tx.refresh(self.tx.position());
        let Some(mut slot) = self.tx.claim() else {
            return;
        };
        // Once there is no room for the answer to a read, nothing more is taken.
        let op = match random.below(1000) {
            0..4 => 3,
            4..8 => 7,
            8..200 => 8,
            _ => 2,
        };
        let is_wrong = random.below(300) == 0;
        let op_src = if op == 2 { random.below(3) as u32 } else { 0 };
        let key = [KEY, KEY, KEY, 9, random.word()][random.below(5) as usize];
        let addr = [0, 1, 4000, 4096, random.word()][random.below(5) as usize];
        let len = [8, 100, 3000, random.below(1 << 13)][random.below(4) as usize];
        slot.put(1, if op == 8 { random.below(2) } else { key });
        slot.put(2, addr);
        (3..8).for_each(|word| slot.put(word, random.word() >> random.below(64)));
        match (op, op_src) {
            (2, 1) => {
                slot.put(4, len);
                slot.put(5, self.walk.pass(len as usize).unwrap() as u64);
            }
            (2, 2) => {
                let at = self.walk.pass(24).unwrap();
                let from = memory.as_ptr().expose_provenance() as u64;
                let piece = [from, len, 0].map(u64::to_le_bytes);
                let pool = self.region.inject_pool();
                pool.bytes().copy_in(at, piece.as_flattened());
                slot.put(4, len);
                slot.put(5, at as u64);
                slot.put(6, self.next_id | 1 << 32);
                slot.put(7, random.below(10));
                self.next_id += random.below(20).min(1);
            }
            (3 | 8, _) => slot.put(3, len),
            _ => {}
        }
        let flags = if op == 2 { random.below(4) as u32 } else { 0 };
        let inline = if op_src == 0 && op == 2 {
            random.below(33) as u32
        } else {
            0
        };
        let mut head = op | op_src << 8 | flags << 16 | inline << 24;
        if is_wrong {
            head ^= 1 << random.below(32);
        }
        slot.commit(head);
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

#[test]
fn nobody_takes_the_name_of_a_peer_that_lives() {
    alone(|| {
        let mut scene = Scene::new();
        let name = scene.other.name();
        let name = name.strip_prefix("fi_shm://").unwrap();
        let (region, (_, bell)) = (region(), Doorbell::create().unwrap());
        for incarnation in 0..20 {
            let hostile = Hostile::connect(&scene.victim);
            hostile.say(&hello(name, incarnation, &7), &[region.fd(), bell.fd()]);
            hostile.is_cut_off_by(&mut scene.victim);
            scene.goes_on();
        }
    });
}

#[test]
fn a_peer_has_two_sockets_and_one_bounce_region_at_most() {
    alone(|| {
        let (mut scene, nonce) = (Scene::new(), Box::new(9_u64));
        let name = unique("greedy");
        let mut intruder = Intruder::enter(&mut scene.victim, &name, 5, &nonce);
        let (region, (_, bell)) = (region(), Doorbell::create().unwrap());
        let fds = [region.fd(), bell.fd()];
        let more: Vec<_> = (0..3).map(|_| Hostile::connect(&scene.victim)).collect();
        for hostile in &more {
            hostile.say(&hello(&name, 5, &nonce), &fds);
        }
        more[1].is_cut_off_by(&mut scene.victim);
        more[2].is_cut_off_by(&mut scene.victim);
        let is_open = |hostile: &Hostile| hostile.hear().is_some();
        assert!(is_open(&more[0]) && is_open(&intruder.hostile));
        let mut random = Random::seeded();
        intruder.segment(&mut random);
        (0..1000).for_each(|_| scene.victim.drive());
        assert!(is_open(&intruder.hostile));
        intruder.bounce = None;
        intruder.segment(&mut random);
        intruder.hostile.is_cut_off_by(&mut scene.victim);
        scene.goes_on();
    });
}

#[test]
fn a_peer_that_greets_again_and_again_is_cut_off() {
    alone(|| {
        let (mut scene, nonce) = (Scene::new(), Box::new(9_u64));
        let name = unique("polite");
        let intruder = Intruder::enter(&mut scene.victim, &name, 5, &nonce);
        let (region, (_, bell)) = (region(), Doorbell::create().unwrap());
        intruder
            .hostile
            .say(&hello(&name, 5, &nonce), &[region.fd(), bell.fd()]);
        intruder.hostile.is_cut_off_by(&mut scene.victim);
        scene.goes_on();
    });
}

#[test]
fn peers_are_cut_off_while_others_are_polled() {
    alone(|| {
        let nonce = Box::new(9_u64);
        let (mut victim, mut other) = (Side::new(), Side::new());
        let mut intruder = Intruder::enter(&mut victim, &unique("first"), 5, &nonce);
        let to_victim = other.insert(victim.name());
        other.send(Kind::Delivered, to_victim, 8, 1).unwrap();
        victim.recv(Kind::Delivered, FiAddr::UNSPEC, 8, 1).unwrap();
        other.next_with(&mut [&mut victim]).ok();
        victim.next().ok();
        intruder.tx.claim().unwrap().commit(u32::MAX);
        intruder.hostile.is_cut_off_by(&mut victim);
        let mut scene = Scene {
            victim,
            other,
            to_victim,
            number: 1,
        };
        scene.goes_on();
    });
}

#[test]
fn what_was_offered_to_a_peer_that_is_cut_off_is_void() {
    alone(|| {
        let (mut scene, nonce) = (Scene::new(), Box::new(9_u64));
        let name = unique("slow");
        let mut intruder = Intruder::enter(&mut scene.victim, &name, 5, &nonce);
        let them = scene.victim.insert(&name);
        scene.victim.send(Kind::Tagged, them, 1 << 20, 1).unwrap();
        intruder.tx.claim().unwrap().commit(u32::MAX);
        assert_eq!(scene.victim.next().errno(), Errno::ConnReset);
        // It may be at reading what it was offered, and must know that it is no message.
        assert!(intruder.theirs.is_closed());
        scene.goes_on();
    });
}

#[test]
fn segments_of_a_message_that_nobody_receives_do_not_pile_up_without_end() {
    alone(|| {
        let (mut scene, nonce) = (Scene::new(), Box::new(9_u64));
        let mut intruder = Intruder::enter(&mut scene.victim, &unique("heap"), 5, &nonce);
        let mut slot = intruder.tx.claim().unwrap();
        slot.put(3, u64::from(u32::MAX));
        slot.put(4, 1 << 32);
        slot.put(6, u64::from(u32::MAX));
        slot.commit(1 | 2 << 8);
        let mut random = Random::seeded();
        intruder.segment(&mut random);
        // The ring of announcements must not be overtaken before it is mapped.
        (0..1000).for_each(|_| scene.victim.drive());
        scene.victim.until(|_| {
            let bounce = intruder.bounce.as_mut().unwrap();
            bounce.fill(0, 64, |_, _, _| {});
            let _ = (0..16).filter(|&segment| bounce.give_back(segment)).count();
            intruder.hostile.hear().is_none()
        });
        scene.goes_on();
    });
}

/// Offers an untagged message in bounce segments, `eager` of which come unasked.
fn offer(tx: &mut Sender, len: u64, msg_id: u64, eager: u64) {
    let mut slot = tx.claim().unwrap();
    slot.put(3, len);
    slot.put(4, msg_id | 1 << 32);
    slot.put(6, eager);
    slot.commit(2 << 8);
}

#[test]
fn segments_that_are_longer_than_their_message_leave_the_rest_of_the_buffer_alone() {
    alone(|| {
        let (mut scene, nonce) = (Scene::new(), Box::new(9_u64));
        let mut intruder = Intruder::enter(&mut scene.victim, &unique("long"), 5, &nonce);
        let number = 77;
        let any = FiAddr::UNSPEC;
        scene.victim.recv(Kind::Msg, any, 3000, number).unwrap();
        offer(&mut intruder.tx, 100, 1, 1);
        intruder.segment(&mut Random::seeded());
        let bounce = intruder.bounce.as_mut().unwrap();
        bounce.fill(1, 4096, |_, _, _| {});
        let event = scene.victim.next().ok();
        assert_eq!((event.context, event.bytes.len()), (number, 100));
        scene.goes_on();
    });
}

#[test]
fn a_receive_fails_when_its_message_is_offered_again_under_way() {
    alone(|| {
        let (mut scene, nonce) = (Scene::new(), Box::new(9_u64));
        let mut intruder = Intruder::enter(&mut scene.victim, &unique("twice"), 5, &nonce);
        let any = FiAddr::UNSPEC;
        scene.victim.recv(Kind::Msg, any, 100_000, 77).unwrap();
        offer(&mut intruder.tx, 100_000, 1, 0);
        offer(&mut intruder.tx, 100_000, 1, 0);
        let event = scene.victim.next();
        assert_eq!((event.context, event.errno()), (77, Errno::ConnReset));
        scene.goes_on();
    });
}

#[test]
fn segments_of_messages_that_were_never_offered_do_not_pile_up_without_end() {
    alone(|| {
        let (mut scene, nonce) = (Scene::new(), Box::new(9_u64));
        let mut intruder = Intruder::enter(&mut scene.victim, &unique("early"), 5, &nonce);
        offer(&mut intruder.tx, 100, 1, 1);
        intruder.segment(&mut Random::seeded());
        // The ring of announcements must not be overtaken before it is mapped.
        (0..1000).for_each(|_| scene.victim.drive());
        scene.victim.until(|_| {
            let bounce = intruder.bounce.as_mut().unwrap();
            bounce.fill(99, 64, |_, _, _| {});
            let _ = (0..16).filter(|&segment| bounce.give_back(segment)).count();
            intruder.hostile.hear().is_none()
        });
        scene.goes_on();
    });
}

#[test]
fn empty_messages_that_nobody_receives_do_not_pile_up_without_end() {
    alone(|| {
        let params = [("FI_SHM_UNEXPECTED_SIZE", "64k")];
        let (mut victim, nonce) = (Side::with(None, &params), Box::new(9_u64));
        let mut intruder = Intruder::enter(&mut victim, &unique("flood"), 5, &nonce);
        let before = private();
        for _ in 0..200_000 {
            let _ = intruder.tx.refresh(intruder.tx.position());
            if let Some(mut slot) = intruder.tx.claim() {
                slot.put(1, 77);
                slot.commit(1);
            }
            victim.drive();
        }
        assert!(
            private() < before + (4 << 20),
            "{before} grew to {}",
            private()
        );
    });
}

/// A packet with a good beginning.
fn noise(random: &mut Random) -> Vec<u8> {
    let mut noise = packet(random.below(6) as u32);
    noise.extend((0..60).map(|_| random.word() as u8));
    noise
}

/// Lives of hostile peers in the short form.
const LIVES: u128 = 200;

#[test]
fn random_commands_harm_nobody_else_and_leave_nothing() {
    alone(|| {
        let mut random = Random::seeded();
        let mut scene = Scene::new();
        let nonce = Box::new(0x5eed_u64);
        let memory = vec![7; 1 << 17];
        let window = window(&scene.victim);
        let name = unique("intruder");
        let mut baseline = None;
        let mut cut_off = 0;
        for life in 0..LIVES {
            let mut intruder = Intruder::enter(&mut scene.victim, &name, life, &nonce);
            let them = scene.victim.insert(&name);
            for round in 0..random.below(2000) {
                intruder.act(&mut random, &memory);
                if round % 8 == 0 {
                    let _ = scene.victim.recv(Kind::Tagged, them, 3000, ANY - 1 - round);
                    let _ = scene.victim.send(Kind::Tagged, them, 3000, ANY - 1 - round);
                }
                scene.victim.drive();
            }
            cut_off += u32::from(intruder.hostile.hear().is_none());
            scene.goes_on();
            drop(intruder);
            take_everything(&mut scene.victim, them);
            if life == 50 {
                baseline = Some((Tally::now(), private()));
            }
        }
        println!("{cut_off} of {LIVES} were cut off");
        assert!(window.is_whole(), "bytes beside the region were written");
        assert!(window.was_written(), "nothing was tried");
        let (tally, memory) = baseline.unwrap();
        assert_eq!(Tally::now(), tally);
        assert!(
            private() < memory + (4 << 20),
            "{memory} grew to {}",
            private()
        );
        assert!(cut_off > 0);
    });
}

/// The key of what the victim lets its peers at.
const KEY: u64 = 3;

/// Registered memory of 4096 bytes with others on both sides.
struct Window {
    pages: &'static [AtomicU64],
    _region: Arc<dyn MemoryRegion>,
}

#[expect(unsafe_code, reason = "registers memory that is never freed")]
fn window(victim: &Side) -> Window {
    let pages: &'static [AtomicU64] = (0..3 * 512)
        .map(|_| 0xabcd.into())
        .collect::<Vec<_>>()
        .leak();
    let first = pages[512].as_ptr();
    let mut attr = mr::Attr::default();
    attr.access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
    attr.requested_key = KEY;
    let memory = IovMut::from_raw(first.cast(), 4096);
    // SAFETY: never freed, and looked at through atomics alone.
    let region = unsafe { victim.domain().reg(&[memory], &attr) };
    Window {
        pages,
        _region: region.unwrap(),
    }
}

impl Window {
    fn is_whole(&self) -> bool {
        let mut beside = self.pages[..512].iter().chain(&self.pages[1024..]);
        beside.all(|word| word.load(Ordering::Relaxed) == 0xabcd)
    }

    /// A word at the beginning, in the middle and at the end was changed.
    fn was_written(&self) -> bool {
        let mut words = [512, 512 + 64, 1024 - 12]
            .map(|word| &self.pages[word])
            .into_iter();
        words.all(|word| word.load(Ordering::Relaxed) != 0xabcd)
    }
}

/// Takes what a peer that is gone has left, and forgets what failed.
fn take_everything(victim: &mut Side, them: FiAddr) {
    victim.until(|victim| victim.send(Kind::Inject, them, 1, 0) == Err(Errno::NotConn));
    for kind in [Kind::Msg, Kind::Tagged] {
        victim.until(|victim| match victim.recv(kind, them, 3000, ANY) {
            Ok(()) => {
                let _ = victim.next();
                false
            }
            Err(errno) => errno == Errno::NotConn,
        });
    }
    victim.clear();
    assert!(victim.is_idle());
}
