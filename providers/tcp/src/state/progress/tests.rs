//! The cost of a message does not depend on the number of peers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use selvedge::info::EpType;
use selvedge::owned::{Completions, Endpoint, Pool};
use selvedge::{Address, AddressVector, Caps, Context, FiAddr, Hints, Registry, av};
use selvedge_kit::srx::Kind;

use crate::socket::calls;
use crate::wire::ByteOrder;
use crate::wire::frame::{AckPolicy, Header};
use crate::wire::hello::{Hello, Kind as Greeting, RdmData};

/// The time limit of a test.
const TIMEOUT: Duration = Duration::from_secs(60);
const TAG: u64 = 7;
const ROUNDS: usize = 2000;

/// An endpoint, and peers that are plain sockets.
struct RawPeers {
    ep: Endpoint,
    pool: Pool,
    done: Completions,
    peers: Vec<(TcpStream, FiAddr)>,
}

impl RawPeers {
    fn new(count: usize) -> Self {
        let hints = Hints::new()
            .caps(Caps::TAGGED | Caps::SOURCE)
            .ep_type(EpType::Rdm)
            .src_addr("127.0.0.1:0".parse().unwrap());
        let registry = Registry::new().with(&crate::PROVIDER);
        let info = registry.infos(&hints).unwrap().remove(0);
        let domain = info.open().unwrap();
        let av = domain.av(&av::Attr::default()).unwrap();
        let mut raw_peers = Self {
            ep: Endpoint::open(&*domain, &info, std::sync::Arc::clone(&av)).unwrap(),
            pool: Pool::new(&*domain, 64, 4).unwrap(),
            done: Completions::with_capacity(4),
            peers: Vec::new(),
        };
        for number in 0..count {
            let peer = raw_peers.peer(10_000 + number as u16, &*av);
            raw_peers.peers.push(peer);
        }
        raw_peers
    }

    /// Connects a peer that claims to listen at `port`.
    fn peer(&mut self, port: u16, av: &dyn AddressVector) -> (TcpStream, FiAddr) {
        let Address::Ip(at) = self.ep.address().unwrap() else {
            panic!("an address of another kind");
        };
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_nonblocking(true).unwrap();
        let hello = Hello::new(Greeting::Request, None, &RdmData::request(port).encode());
        stream.write_all(&hello.encode()).unwrap();
        self.read_from(&mut stream, 40);
        let addr = Address::Ip(([127, 0, 0, 1], port).into());
        (stream, av.insert_one(&addr).unwrap())
    }

    /// Makes progress until a peer has received `expected` bytes.
    fn read_from(&mut self, stream: &mut TcpStream, expected: usize) {
        let mut bytes = [0; 128];
        let (start, mut have) = (Instant::now(), 0);
        while have < expected {
            assert!(start.elapsed() < TIMEOUT, "{have} of {expected} bytes");
            have += stream.read(&mut bytes[have..expected]).unwrap_or(0);
            self.ep.poll(&mut self.done).unwrap();
        }
    }

    /// Exchanges a message with a peer in each direction.
    fn exchange(&mut self, at: usize) {
        let buf = self.pool.take().unwrap();
        self.ep.trecv(buf, FiAddr::UNSPEC, TAG, Context(1)).unwrap();
        let (stream, addr) = &self.peers[at];
        let (mut stream, addr) = (stream.try_clone().unwrap(), *addr);
        let mut frame = Vec::new();
        let header = Header::Message {
            kind: Kind::Tagged,
            tag: TAG,
            data: None,
            ack: AckPolicy::Never,
            len: 8,
        };
        header.encode(ByteOrder::Native, 0, &mut frame);
        frame.extend([1; 8]);
        stream.write_all(&frame).unwrap();
        let start = Instant::now();
        while self.ep.poll(&mut self.done).unwrap() == 0 {
            assert!(start.elapsed() < TIMEOUT, "nothing comes of peer {at}");
        }
        let received = self.done.drain().next().unwrap();
        assert_eq!(received.result.as_ref().unwrap().src, addr);
        drop(received);
        self.ep.tinject(&[2; 8], addr, TAG, None).unwrap();
        self.read_from(&mut stream, frame.len());
    }
}

/// The system calls of an endpoint that exchanges messages with `count` peers in turn.
fn calls_with(count: usize) -> usize {
    let mut raw_peers = RawPeers::new(count);
    (0..count).for_each(|at| raw_peers.exchange(at));
    let before = calls();
    (0..ROUNDS).for_each(|round| raw_peers.exchange(round % count));
    calls() - before
}

#[test]
fn a_message_costs_the_same_among_a_thousand_peers() {
    let (few, many) = (calls_with(10), calls_with(1000));
    // The number of polls before a message arrives varies a little with the machine.
    assert!(
        many <= few + few / 5,
        "{ROUNDS} exchanges: {few} system calls with ten peers, {many} with a thousand"
    );
}
