//! The cost of a message does not depend on the number of peers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use selvedge::info::EpType;
use selvedge::owned::{Completions, Endpoint, Pool};
use selvedge::{Address, AddressVector, Caps, Context, FiAddr, Hints, Registry, av};
use selvedge_kit::srx::Kind;

use crate::socket::call_count;
use crate::wire::ByteOrder;
use crate::wire::frame::{AckPolicy, Header};
use crate::wire::hello::{Hello, Kind as HelloKind, RdmData};

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
            let peer = raw_peers.connect_peer(10_000 + number as u16, &*av);
            raw_peers.peers.push(peer);
        }
        raw_peers
    }

    /// Connects a peer that claims to listen at `port`.
    fn connect_peer(&mut self, port: u16, av: &dyn AddressVector) -> (TcpStream, FiAddr) {
        let Address::Ip(listener_addr) = self.ep.address().unwrap() else {
            panic!("the address is not an IP address");
        };
        let mut stream = TcpStream::connect(listener_addr).unwrap();
        stream.set_nonblocking(true).unwrap();
        let hello = Hello::new(HelloKind::Request, None, &RdmData::request(port).encode());
        stream.write_all(&hello.encode()).unwrap();
        self.read_from(&mut stream, 40);
        let addr = Address::Ip(([127, 0, 0, 1], port).into());
        (stream, av.insert_one(&addr).unwrap())
    }

    /// Makes progress until a peer has received `expected` bytes.
    fn read_from(&mut self, stream: &mut TcpStream, expected: usize) {
        let mut bytes = [0; 128];
        let (start, mut received) = (Instant::now(), 0);
        while received < expected {
            assert!(start.elapsed() < TIMEOUT, "{received} of {expected} bytes");
            received += stream.read(&mut bytes[received..expected]).unwrap_or(0);
            self.ep.poll(&mut self.done).unwrap();
        }
    }

    /// Exchanges a message with a peer in each direction.
    fn exchange(&mut self, index: usize) {
        let buf = self.pool.take().unwrap();
        self.ep.trecv(buf, FiAddr::UNSPEC, TAG, Context(1)).unwrap();
        let (stream, addr) = &self.peers[index];
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
            assert!(
                start.elapsed() < TIMEOUT,
                "no message of peer {index} arrives"
            );
        }
        let received = self.done.drain().next().unwrap();
        assert_eq!(received.result.as_ref().unwrap().src, addr);
        drop(received);
        self.ep.tinject(&[2; 8], addr, TAG, None).unwrap();
        self.read_from(&mut stream, frame.len());
    }
}

/// Returns the number of system calls of an endpoint that exchanges messages with `count` peers in
/// turn.
fn count_calls_with(count: usize) -> usize {
    let mut raw_peers = RawPeers::new(count);
    (0..count).for_each(|peer| raw_peers.exchange(peer));
    let before = call_count();
    (0..ROUNDS).for_each(|round| raw_peers.exchange(round % count));
    call_count() - before
}

#[test]
fn a_message_costs_the_same_among_a_thousand_peers() {
    let (few, many) = (count_calls_with(10), count_calls_with(1000));
    // The number of polls before a message arrives varies a little with the machine.
    assert!(
        many <= few + few / 5,
        "{ROUNDS} exchanges: {few} system calls with ten peers, {many} with a thousand"
    );
}
