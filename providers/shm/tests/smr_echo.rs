//! The primitives without the provider: an echo between two processes with their own protocol.
//!
//! The processes exchange their regions and doorbells over a socket pair. The client sends payloads
//! through the inject pool. The server echoes each the same way and confirms it with a response.
//! Both wait on shared memory alone.

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

/// Small, so that queues and pool wrap around many times.
const SIZES: Sizes = Sizes {
    cmd_count: 8,
    resp_count: 8,
    inject_size: 1024,
};
const MESSAGES: u32 = 2000;
const TIMEOUT: Duration = Duration::from_secs(30);
/// Environment variable with the server's socket.
const SERVER: &str = "SELVEDGE_TEST_ECHO_SERVER";
/// The confirmation of an echo.
const ECHOED: u32 = 77;

/// One of the two processes: its memory for the peer, and the peer's memory for it.
struct EchoProcess {
    region: Region,
    tx: Sender,
    pool: InjectPool,
    /// By slot: the pool's position.
    marks: [u64; SIZES.cmd_count],
    resp_tx: RespSender,
    local_credit: Credit,
    doorbell: Doorbell,
    map: Map,
    rx: Receiver,
    cursor: PoolPosition,
    payloads: Bytes,
    resp_rx: RespReceiver,
    remote_credit: Credit,
    bell: Bell,
    deadline: Instant,
}

impl EchoProcess {
    /// Exchanges regions and doorbells with the peer over the socket.
    fn connect(socket: &OwnedFd, own: &str, peer: &str) -> Self {
        let region = Region::create(&Attr { sizes: SIZES, peer }).unwrap();
        let (doorbell, memory) = Doorbell::create().unwrap();
        send_memory(socket, &region, &memory);
        let (peer_region, peer_bell) = receive_memory(socket);
        let mut map = Map::new(1);
        map.add(peer, 0).unwrap();
        map.map_to_region(0, |_| Ok((peer_region, SIZES))).unwrap();
        map.map_to_endpoint(&region, 0).unwrap();
        let from: &PeerRegion = map.region(0).unwrap();
        assert_eq!(from.peer_addr().name, own);
        Self {
            tx: region.cmd_sender(),
            pool: region.inject_pool(),
            marks: [0; SIZES.cmd_count],
            resp_tx: region.resp_sender(),
            local_credit: region.credit(),
            doorbell,
            rx: from.cmd_receiver(),
            cursor: PoolPosition::new(SIZES.inject_size),
            payloads: from.inject_bytes(),
            resp_rx: from.resp_receiver(),
            remote_credit: from.credit(),
            bell: Bell::attach(peer_bell, 0).unwrap(),
            deadline: Instant::now() + TIMEOUT,
            region,
            map,
        }
    }

    fn peer(&self) -> &PeerRegion {
        self.map.region(0).unwrap()
    }

    /// Copies a payload into the pool and commits a command with its offset.
    fn send(&mut self, payload: &[u8]) {
        let offset = loop {
            if self.tx.room() > 0
                && let Some(offset) = self.pool.claim(payload.len())
            {
                break offset;
            }
            self.refresh();
        };
        self.pool.bytes().copy_in(offset, payload);
        self.marks[self.tx.position() as usize % SIZES.cmd_count] = self.pool.position();
        let mut slot = self.tx.claim().unwrap();
        slot.put(1, offset as u64);
        slot.commit(payload.len() as u32);
        self.peer().announce(&self.bell);
    }

    /// Frees the slots and payloads that the peer has consumed.
    fn refresh(&mut self) {
        let consumed = self.remote_credit.read();
        self.tx.refresh(consumed).unwrap();
        if let Some(last) = consumed.checked_sub(1) {
            self.pool
                .free_to(self.marks[last as usize % SIZES.cmd_count]);
        }
        self.pause();
    }

    /// Waits for the doorbell bit, then takes the next payload. Polls without the bit now and then,
    /// because it is only a hint.
    fn receive(&mut self) -> Vec<u8> {
        for turn in 0_u64.. {
            let mut rung = turn.is_multiple_of(64);
            self.doorbell.drain(1, |_| rung = true);
            if rung && let Some(payload) = self.try_receive() {
                return payload;
            }
            self.pause();
        }
        unreachable!("the deadline comes first")
    }

    fn try_receive(&mut self) -> Option<Vec<u8>> {
        let slot = self.rx.peek()?;
        let (len, offset) = (slot.head() as usize, slot.word(1) as usize);
        assert_eq!(
            self.cursor.advance(len),
            Some(offset),
            "producer and consumer compute one offset"
        );
        let mut payload = [MaybeUninit::uninit(); SIZES.inject_size];
        let payload = self.payloads.copy_out(offset, &mut payload[..len]).to_vec();
        self.rx.release();
        self.local_credit.publish(self.rx.position());
        Some(payload)
    }

    fn receive_response(&mut self) -> Resp {
        loop {
            if let Some(resp) = self.resp_rx.pop() {
                return resp;
            }
            self.pause();
        }
    }

    fn pause(&self) {
        assert!(Instant::now() < self.deadline, "the peer made no progress");
        std::thread::yield_now();
    }
}

fn send_memory(socket: &OwnedFd, region: &Region, bell: &Memory) {
    let fds = [region.fd().as_raw_fd(), bell.fd().as_raw_fd()];
    let (iov, rights) = ([IoSlice::new(b"x")], [ControlMessage::ScmRights(&fds)]);
    let none = MsgFlags::empty();
    sendmsg::<UnixAddr>(socket.as_raw_fd(), &iov, &rights, none, None).unwrap();
}

fn receive_memory(socket: &OwnedFd) -> (OwnedFd, OwnedFd) {
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
    let mut process = EchoProcess::connect(socket, "server", "client");
    process.region.set_polled(false);
    for msg_id in 0..MESSAGES {
        let payload = process.receive();
        process.send(&payload);
        process.resp_tx.push(Resp {
            msg_id,
            status: ECHOED,
        });
    }
    // The client reads the last response before the server ends and its region closes.
    assert_eq!(process.receive(), b"bye");
}

fn start_server() -> (Child, OwnedFd) {
    let flags = SockFlag::SOCK_CLOEXEC;
    let (local, remote) = socketpair(AddressFamily::Unix, SockType::Stream, None, flags).unwrap();
    let remote = nix::unistd::dup(&remote).unwrap();
    let server = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_child_is_the_server", "--ignored"])
        .env(SERVER, remote.as_raw_fd().to_string())
        .spawn()
        .unwrap();
    (server, local)
}

#[test]
fn another_process_echoes_through_the_primitives_alone() {
    let (mut server, socket) = start_server();
    let mut process = EchoProcess::connect(&socket, "client", "server");
    process.region.set_polled(false);
    for msg_id in 0..MESSAGES {
        process.send(&payload(msg_id));
        assert_eq!(process.receive(), payload(msg_id));
        let status = ECHOED;
        assert_eq!(process.receive_response(), Resp { msg_id, status });
    }
    assert_eq!(process.map.addr(0).unwrap().to_string(), "server 0");
    assert!(!process.peer().is_closed());
    process.send(b"bye");
    assert!(server.wait().unwrap().success());
    assert!(process.peer().is_closed());
}

#[test]
#[ignore = "a process that the other tests start"]
fn a_child_is_the_server() {
    let socket = std::env::var(SERVER).unwrap();
    serve(&owned(socket.parse().unwrap()));
}
