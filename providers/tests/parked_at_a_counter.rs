//! Two threads share an endpoint: one is parked at a counter, and no single message ends its wait. The
//! other one polls, posts or reads a queue, and makes no further call. The parked thread progresses
//! what is left.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]
#![expect(unsafe_code, reason = "receives into memory that is never freed")]

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use selvedge::cq::Entry;
use selvedge::info::EpType;
use selvedge::param::Params;
use selvedge::{
    AddressVector, Bindings, Caps, CompletionQueue, Context, Counter, Desc, Domain, Endpoint,
    Errno, FiAddr, Hints, IovMut, MsgExt, TagMatch, TaggedExt, av, cntr, cq, wait,
};

/// Far above what anything here takes.
const LIMIT: Duration = Duration::from_secs(10);
/// Longer than a thread polls before it parks.
const UNTIL_PARKED: Duration = Duration::from_millis(20);

/// Of tagged messages, of which an endpoint of tcp here keeps one.
const LEN: usize = 600;

struct Side {
    // Closed before its queues.
    ep: Arc<dyn Endpoint>,
    tx_cq: Arc<dyn CompletionQueue>,
    rx_cq: Arc<dyn CompletionQueue>,
    received: Arc<dyn Counter>,
    av: Arc<dyn AddressVector>,
    _domain: Arc<dyn Domain>,
}

impl Side {
    /// A side whose queue of receives has room for so many completions.
    fn open(provider: &str, rx_size: usize) -> Self {
        Self::open_at("", provider, rx_size)
    }

    /// Likewise, on the host of this name for lnx.
    fn open_at(host: &str, provider: &str, rx_size: usize) -> Self {
        let params = [
            ("FI_LNX_HOST", host),
            ("FI_TCP_UNEXPECTED_SIZE", "1000"),
            ("FI_TCP_IFACE", "lo"),
            ("FI_UDP_IFACE", "lo"),
            ("FI_LNX_UNEXPECTED_SIZE", "1"),
        ];
        let registry = selvedge_providers::builtin();
        let registry = registry.with_params(params.into_iter().collect::<Params>());
        let ep_type = match provider {
            "udp" => EpType::Dgram,
            _ => EpType::Rdm,
        };
        let hints = Hints::new().provider(provider).ep_type(ep_type);
        let caps = match provider {
            "udp" => Caps::MSG,
            _ => Caps::MSG | Caps::TAGGED,
        };
        let info = registry.infos(&hints.caps(caps)).unwrap().remove(0);
        let domain = info.open().unwrap();
        let mut attr = cq::Attr::default();
        attr.wait_obj = wait::Object::Unspec;
        let tx_cq = domain.cq(&attr).unwrap();
        attr.size = rx_size;
        let rx_cq = domain.cq(&attr).unwrap();
        let mut attr = cntr::Attr::default();
        attr.wait_obj = wait::Object::Unspec;
        let received = domain.cntr(&attr).unwrap();
        let av = domain.av(&av::Attr::default()).unwrap();
        let mut bindings = Bindings::new(Arc::clone(&rx_cq), Arc::clone(&av));
        bindings.tx_cq = Arc::clone(&tx_cq);
        bindings.cntrs.recv = Some(Arc::clone(&received));
        let ep = domain.endpoint(&info, bindings).unwrap();
        Self {
            ep,
            tx_cq,
            rx_cq,
            received,
            av,
            _domain: domain,
        }
    }

    fn insert(&self, other: &Self) -> FiAddr {
        let addr = other.ep.address().unwrap();
        self.av.insert_one(&addr).unwrap()
    }

    fn post_receive(&self) {
        let room = IovMut::new(Box::leak(vec![0; 64].into_boxed_slice()));
        // SAFETY: the memory is never freed, and nothing else uses it.
        unsafe { self.ep.recv(room, Desc::NONE, FiAddr::UNSPEC, Context(0)) }.unwrap();
    }

    fn inject(&self, to: FiAddr) {
        let start = Instant::now();
        while self.ep.inject(b"parked", to, None) == Err(Errno::Again) {
            assert!(start.elapsed() < LIMIT, "no room for a message");
            self.poll();
        }
    }

    fn post_tagged_receive(&self, tag: u64) {
        let room = IovMut::new(Box::leak(vec![0; LEN].into_boxed_slice()));
        let tag = TagMatch::exact(tag);
        // SAFETY: the memory is never freed, and nothing else uses it.
        unsafe { (self.ep).trecv(room, Desc::NONE, FiAddr::UNSPEC, tag, Context(0)) }.unwrap();
    }

    fn inject_tagged(&self, to: FiAddr, tag: u64) {
        let start = Instant::now();
        while self.ep.tinject(&[1; LEN], to, tag, None) == Err(Errno::Again) {
            assert!(start.elapsed() < LIMIT, "no room for a message");
            self.poll();
        }
    }

    /// Waits for so many messages. Whether they came before the end of the time, at which the wait
    /// polls once more.
    fn count(&self, messages: u64) -> bool {
        let start = Instant::now();
        let counted = self.received.wait(messages, Some(LIMIT));
        counted == Ok(()) && start.elapsed() < LIMIT
    }

    /// Drives the endpoint, as every read of a queue does.
    fn poll(&self) {
        self.tx_cq.read(&mut []).unwrap();
    }

    /// Takes a completion of a receive, if there is one, without driving the endpoint.
    fn take_received(&self) -> bool {
        let (mut out, mut src) = ([Entry::default()], [FiAddr::UNSPEC]);
        self.rx_cq.read_ready(&mut out, &mut src).unwrap() > 0
    }
}

/// Messages of a round.
const MESSAGES: u64 = 3;
/// In some of them the parked thread takes the messages itself.
const ROUNDS: u64 = 30;

/// Has a thread poll until the queue of receives is full, make room, and go away.
fn fill_the_queue_beside_a_parked_thread(provider: &str) {
    let (shared, peer) = (Side::open(provider, 1), Side::open(provider, 0));
    let (to_shared, _) = (peer.insert(&shared), shared.insert(&peer));
    let mut expected = 0;
    for round in 0..ROUNDS {
        (0..MESSAGES).for_each(|_| shared.post_receive());
        expected += MESSAGES;
        thread::scope(|scope| {
            let parked = scope.spawn(|| shared.count(expected));
            let filled = scope.spawn(|| {
                let start = Instant::now();
                while !shared.take_received() {
                    assert!(start.elapsed() < LIMIT, "no message has come");
                    shared.poll();
                }
            });
            thread::sleep(UNTIL_PARKED);
            for _ in 0..MESSAGES {
                peer.inject(to_shared);
                peer.poll();
            }
            while !filled.is_finished() {
                peer.poll();
            }
            filled.join().unwrap();
            // From here on the parked thread alone drives the endpoint.
            while !parked.is_finished() {
                peer.poll();
                shared.take_received();
            }
            assert!(parked.join().unwrap(), "{provider}, round {round}");
        });
        while shared.take_received() {}
    }
}

#[test]
fn a_parked_thread_receives_when_another_one_has_made_room_in_the_queue_over_shm() {
    fill_the_queue_beside_a_parked_thread("shm");
}

#[test]
fn a_parked_thread_receives_when_another_one_has_made_room_in_the_queue_over_tcp() {
    fill_the_queue_beside_a_parked_thread("tcp");
}

#[test]
fn a_parked_thread_receives_when_another_one_has_made_room_in_the_queue_over_udp() {
    fill_the_queue_beside_a_parked_thread("udp");
}

#[test]
fn a_parked_thread_receives_when_another_one_has_made_room_in_the_queue_over_lnx() {
    fill_the_queue_beside_a_parked_thread("lnx");
}

/// More messages than an endpoint of lnx takes before it has to keep them.
const MANY: u64 = 100;

#[test]
fn a_parked_thread_listens_again_when_another_one_has_received_what_was_kept() {
    let shared = Side::open_at("one", "lnx", 0);
    let peer = Side::open_at("other", "lnx", 0);
    let to_shared = peer.insert(&shared);
    shared.insert(&peer);
    thread::scope(|scope| {
        for _ in 0..MANY {
            peer.inject(to_shared);
            peer.poll();
            shared.poll();
        }
        (0..1000).for_each(|_| {
            peer.poll();
            shared.poll();
        });
        let parked = scope.spawn(|| shared.count(MANY));
        thread::sleep(UNTIL_PARKED);
        (0..MANY).for_each(|_| shared.post_receive());
        // From here on the parked thread alone drives the endpoint.
        while !parked.is_finished() {
            peer.poll();
        }
        assert!(parked.join().unwrap(), "messages stay with the link");
    });
}

#[test]
fn a_parked_thread_reads_on_when_another_one_has_received_what_was_kept() {
    let (shared, peer) = (Side::open("tcp", 0), Side::open("tcp", 0));
    let to_shared = peer.insert(&shared);
    shared.insert(&peer);
    shared.post_tagged_receive(3);
    (1..=3).for_each(|tag| peer.inject_tagged(to_shared, tag));
    for _ in 0..10_000 {
        peer.poll();
        shared.poll();
    }
    assert!(!shared.take_received(), "the second message did not stall");
    thread::scope(|scope| {
        let parked = scope.spawn(|| shared.count(2));
        thread::sleep(UNTIL_PARKED);
        shared.post_tagged_receive(1);
        // From here on the parked thread alone drives the endpoint.
        while !parked.is_finished() {
            peer.poll();
        }
        assert!(parked.join().unwrap(), "the third message stays");
    });
}

#[test]
fn a_send_completes_while_the_queue_of_receives_is_full() {
    for provider in ["shm", "tcp", "lnx"] {
        let (shared, peer) = (Side::open(provider, 1), Side::open(provider, 0));
        let (to_peer, to_shared) = (shared.insert(&peer), peer.insert(&shared));
        shared.post_receive();
        peer.inject(to_shared);
        let start = Instant::now();
        while !shared.rx_cq.is_ready() {
            assert!(start.elapsed() < LIMIT, "{provider}: no message has come");
            peer.poll();
        }
        let bytes = selvedge::Iov::new(b"a message");
        // SAFETY: the memory is never freed nor written.
        unsafe { shared.ep.send(bytes, Desc::NONE, to_peer, Context(0)) }.unwrap();
        peer.post_receive();
        let start = Instant::now();
        while shared.tx_cq.read(&mut [Entry::default()]) == Ok(0) {
            assert!(
                start.elapsed() < LIMIT,
                "{provider}: the send does not complete"
            );
            peer.poll();
        }
    }
}
