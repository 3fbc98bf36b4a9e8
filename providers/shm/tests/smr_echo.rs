//! The primitives without the provider: an echo between two processes with a protocol of its own.
//!
//! The processes hand each other their regions and doorbells over a socket pair. The client sends
//! payloads through the inject pool and asks for each to be sent back; the server echoes it the
//! same way and confirms with an answer. Neither waits for anything but shared memory.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr,
    recvmsg, sendmsg, socketpair,
};
use selvedge_shm::smr::bytes::Bytes;
use selvedge_shm::smr::cmd_queue::{Credit, Receiver, Sender};
use selvedge_shm::smr::doorbell::{Bell, Doorbell};
use selvedge_shm::smr::inject_pool::{InjectPool, PoolPosition};
use selvedge_shm::smr::resp_queue::{Resp, RespReceiver, RespSender};
use selvedge_shm::smr::{Attr, Map, Memory, PeerRegion, Region, Sizes};

/// Small, so that everything wraps around many times.
const SIZES: Sizes = Sizes {
    cmd_count: 8,
    resp_count: 8,
    inject_size: 1024,
};
const MESSAGES: u32 = 2000;
const PATIENCE: Duration = Duration::from_secs(30);
/// The server's end of the socket pair, in its environment.
const SERVER: &str = "SELVEDGE_TEST_ECHO_SERVER";
/// The confirmation of an echo.
const ECHOED: u32 = 77;

/// One end of the conversation: our memory for the peer, and the peer's for us.
struct Side {
    region: Region,
    tx: Sender,
    pool: InjectPool,
    /// By slot: how far the pool was used.
    marks: [u64; SIZES.cmd_count],
    answers_out: RespSender,
    given: Credit,
    doorbell: Doorbell,
    map: Map,
    rx: Receiver,
    cursor: PoolPosition,
    payloads: Bytes,
    answers_in: RespReceiver,
    taken: Credit,
    bell: Bell,
    deadline: Instant,
}

impl Side {
    /// Meets the peer over the socket.
    fn meet(socket: &OwnedFd, own: &str, peer: &str) -> Self {
        let region = Region::create(&Attr { sizes: SIZES, peer }).unwrap();
        let (doorbell, memory) = Doorbell::create().unwrap();
        hand_over(socket, &region, &memory);
        let (their_region, their_bell) = take_over(socket);
        let mut map = Map::new(1);
        map.add(peer, 0).unwrap();
        map.map_to_region(0, |_| Ok((their_region, SIZES))).unwrap();
        map.map_to_endpoint(&region, 0).unwrap();
        let from: &PeerRegion = map.region(0).unwrap();
        assert_eq!(from.peer_addr().name, own);
        Self {
            tx: region.cmd_sender(),
            pool: region.inject_pool(),
            marks: [0; SIZES.cmd_count],
            answers_out: region.resp_sender(),
            given: region.credit(),
            doorbell,
            rx: from.cmd_receiver(),
            cursor: PoolPosition::new(SIZES.inject_size),
            payloads: from.inject_bytes(),
            answers_in: from.resp_receiver(),
            taken: from.credit(),
            bell: Bell::attach(their_bell, 0).unwrap(),
            deadline: Instant::now() + PATIENCE,
            region,
            map,
        }
    }

    fn peer(&self) -> &PeerRegion {
        self.map.region(0).unwrap()
    }

    /// Copies a payload into the pool and tells the peer where it is.
    fn send(&mut self, payload: &[u8]) {
        let place = loop {
            if self.tx.room() > 0
                && let Some(place) = self.pool.claim(payload.len())
            {
                break place;
            }
            self.learn();
        };
        self.pool.bytes().copy_in(place, payload);
        self.marks[self.tx.position() as usize % SIZES.cmd_count] = self.pool.position();
        let mut slot = self.tx.claim().unwrap();
        slot.put(1, place as u64);
        slot.commit(payload.len() as u32);
        self.peer().announce(&self.bell);
    }

    /// Learns what the peer has consumed.
    fn learn(&mut self) {
        let consumed = self.taken.read();
        self.tx.refresh(consumed).unwrap();
        if let Some(last) = consumed.checked_sub(1) {
            self.pool
                .free_to(self.marks[last as usize % SIZES.cmd_count]);
        }
        self.pause();
    }

    /// Waits for the bell, then takes the next payload. Looks without it now and then, as the bell
    /// is only a hint.
    fn receive(&mut self) -> Vec<u8> {
        for turn in 0_u64.. {
            let mut rung = turn.is_multiple_of(64);
            self.doorbell.drain(1, |_| rung = true);
            if rung && let Some(payload) = self.take() {
                return payload;
            }
            self.pause();
        }
        unreachable!("the deadline comes first")
    }

    fn take(&mut self) -> Option<Vec<u8>> {
        let slot = self.rx.peek()?;
        let (len, place) = (slot.head() as usize, slot.word(1) as usize);
        assert_eq!(
            self.cursor.advance(len),
            Some(place),
            "both ends walk one path"
        );
        let mut payload = [MaybeUninit::uninit(); SIZES.inject_size];
        let payload = self.payloads.copy_out(place, &mut payload[..len]).to_vec();
        self.rx.release();
        self.given.publish(self.rx.position());
        Some(payload)
    }

    fn answer(&mut self) -> Resp {
        loop {
            if let Some(resp) = self.answers_in.pop() {
                return resp;
            }
            self.pause();
        }
    }

    fn pause(&self) {
        assert!(Instant::now() < self.deadline, "the peer does nothing");
        std::thread::yield_now();
    }
}

fn hand_over(socket: &OwnedFd, region: &Region, bell: &Memory) {
    let fds = [region.fd().as_raw_fd(), bell.fd().as_raw_fd()];
    let (iov, rights) = ([IoSlice::new(b"x")], [ControlMessage::ScmRights(&fds)]);
    let none = MsgFlags::empty();
    sendmsg::<UnixAddr>(socket.as_raw_fd(), &iov, &rights, none, None).unwrap();
}

fn take_over(socket: &OwnedFd) -> (OwnedFd, OwnedFd) {
    let (mut byte, mut space) = ([0], nix::cmsg_space!([RawFd; 2]));
    let mut iov = [IoSliceMut::new(&mut byte)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let fd = socket.as_raw_fd();
    let message = recvmsg::<UnixAddr>(fd, &mut iov, Some(&mut space), flags).unwrap();
    match message.cmsgs().unwrap().next() {
        Some(ControlMessageOwned::ScmRights(fds)) => (owned(fds[0]), owned(fds[1])),
        other => panic!("{other:?}"),
    }
}

#[expect(unsafe_code, reason = "descriptors that come as numbers")]
fn owned(fd: RawFd) -> OwnedFd {
    // SAFETY: called with descriptors that were just received or inherited, and once with each.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn payload(number: u32) -> Vec<u8> {
    let len = 1 + number as usize * 37 % 300;
    (0..len).map(|i| (number as usize + i) as u8).collect()
}

fn serve(socket: &OwnedFd) {
    let mut side = Side::meet(socket, "server", "client");
    side.region.set_polled(false);
    for msg_id in 0..MESSAGES {
        let payload = side.receive();
        side.send(&payload);
        side.answers_out.push(Resp {
            msg_id,
            status: ECHOED,
        });
    }
    // The last answer is read before the server ends: its region closes then.
    assert_eq!(side.receive(), b"bye");
}

fn start_server() -> (Child, OwnedFd) {
    let flags = SockFlag::SOCK_CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::Stream, None, flags).unwrap();
    let theirs = nix::unistd::dup(&theirs).unwrap();
    let server = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_child_is_the_server", "--ignored"])
        .env(SERVER, theirs.as_raw_fd().to_string())
        .spawn()
        .unwrap();
    (server, ours)
}

#[test]
fn another_process_echoes_through_the_primitives_alone() {
    let (mut server, socket) = start_server();
    let mut side = Side::meet(&socket, "client", "server");
    side.region.set_polled(false);
    for msg_id in 0..MESSAGES {
        side.send(&payload(msg_id));
        assert_eq!(side.receive(), payload(msg_id));
        let status = ECHOED;
        assert_eq!(side.answer(), Resp { msg_id, status });
    }
    assert_eq!(side.map.addr(0).unwrap().to_string(), "server 0");
    assert!(!side.peer().is_closed());
    side.send(b"bye");
    assert!(server.wait().unwrap().success());
    assert!(side.peer().is_closed());
}

#[test]
#[ignore = "a process that the other tests start"]
fn a_child_is_the_server() {
    let socket = std::env::var(SERVER).unwrap();
    serve(&owned(socket.parse().unwrap()));
}
