//! Two threads share an endpoint: one is parked at the queue of receives, the other polls a queue of
//! its own, posts, and makes no further call. The parked thread progresses what was posted.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]
#![expect(unsafe_code, reason = "receives into memory that is never freed")]

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use selvedge::cq::Entry;
use selvedge::info::EpType;
use selvedge::param::Params;
use selvedge::{
    AddressVector, Bindings, Caps, CompletionQueue, Context, Desc, Domain, Endpoint, Errno, FiAddr,
    Hints, Iov, IovMut, MsgExt, av, cq, wait,
};

/// Far above what anything here takes.
const LIMIT: Duration = Duration::from_secs(20);
/// Longer than a thread polls before it parks.
const UNTIL_PARKED: Duration = Duration::from_millis(20);
const ROUNDS: u64 = 3;
/// Messages that are posted beside the parked thread. Those behind the first may be gathered.
const MESSAGES: usize = 3;

struct Side {
    // Closed before its queues.
    ep: Arc<dyn Endpoint>,
    tx_cq: Arc<dyn CompletionQueue>,
    rx_cq: Arc<dyn CompletionQueue>,
    av: Arc<dyn AddressVector>,
    _domain: Arc<dyn Domain>,
}

impl Side {
    fn open(provider: &str) -> Self {
        let params = [("FI_TCP_IFACE", "lo"), ("FI_UDP_IFACE", "lo")];
        let registry = selvedge_providers::builtin();
        let registry = registry.with_params(params.into_iter().collect::<Params>());
        let ep_type = match provider {
            "udp" => EpType::Dgram,
            _ => EpType::Rdm,
        };
        let hints = Hints::new().provider(provider).ep_type(ep_type);
        let info = registry.infos(&hints.caps(Caps::MSG)).unwrap().remove(0);
        let domain = info.open().unwrap();
        let mut attr = cq::Attr::default();
        attr.wait_obj = wait::Object::Unspec;
        let [tx_cq, rx_cq] = [(); 2].map(|()| domain.cq(&attr).unwrap());
        let av = domain.av(&av::Attr::default()).unwrap();
        let mut bindings = Bindings::new(Arc::clone(&rx_cq), Arc::clone(&av));
        bindings.tx_cq = Arc::clone(&tx_cq);
        let ep = domain.endpoint(&info, bindings).unwrap();
        Self {
            ep,
            tx_cq,
            rx_cq,
            av,
            _domain: domain,
        }
    }

    fn insert(&self, other: &Self) -> FiAddr {
        let addr = other.ep.address().unwrap();
        self.av.insert_one(&addr).unwrap()
    }

    fn post_receive(&self) {
        self.post_receive_of(64);
    }

    fn post_receive_of(&self, len: usize) {
        let room = IovMut::new(Box::leak(vec![0; len].into_boxed_slice()));
        // SAFETY: the memory is never freed, and nothing else uses it.
        unsafe { self.ep.recv(room, Desc::NONE, FiAddr::UNSPEC, Context(0)) }.unwrap();
    }

    fn send_large(&self, to: FiAddr) {
        let bytes = Iov::new(Box::leak(vec![7; LARGE].into_boxed_slice()));
        // SAFETY: the memory is never freed nor written.
        unsafe { self.ep.send(bytes, Desc::NONE, to, Context(0)) }.unwrap();
    }

    fn inject(&self, to: FiAddr) {
        let start = Instant::now();
        while self.ep.inject(b"parked", to, None) == Err(Errno::Again) {
            assert!(start.elapsed() < LIMIT, "no room for a message");
            self.poll();
        }
    }

    /// Drives the endpoint, as every read of a queue does.
    fn poll(&self) {
        self.tx_cq.read(&mut []).unwrap();
    }

    /// Parks until a message has come. A wait polls when its time is over, too, and is not woken then.
    fn is_woken_by_a_message(&self) -> bool {
        let start = Instant::now();
        let received = self.rx_cq.wait(&mut [Entry::default()], Some(LIMIT));
        received == Ok(1) && start.elapsed() < LIMIT
    }

    /// Polls until a message has come.
    fn receive(&self) {
        let start = Instant::now();
        while self.rx_cq.read(&mut [Entry::default()]) == Ok(0) {
            assert!(start.elapsed() < LIMIT, "a message did not leave");
        }
    }
}

/// Connects the two before a thread parks.
fn connect(shared: &Side, peer: &Side, to_shared: FiAddr) {
    shared.post_receive();
    peer.inject(to_shared);
    let start = Instant::now();
    while shared.rx_cq.read(&mut [Entry::default()]) == Ok(0) {
        assert!(start.elapsed() < LIMIT, "the two do not meet");
        peer.poll();
    }
}

/// Has a thread post beside a parked one and go away, in every round.
fn post_beside_a_parked_thread(provider: &str) {
    let (shared, peer) = (Side::open(provider), Side::open(provider));
    let (to_peer, to_shared) = (shared.insert(&peer), peer.insert(&shared));
    connect(&shared, &peer, to_shared);
    for round in 0..ROUNDS {
        (0..MESSAGES).for_each(|_| peer.post_receive());
        thread::scope(|scope| {
            let parked = scope.spawn(|| shared.is_woken_by_a_message());
            thread::sleep(UNTIL_PARKED);
            shared.poll();
            shared.post_receive();
            (0..MESSAGES).for_each(|_| shared.inject(to_peer));
            // From here on the parked thread alone drives the endpoint.
            (0..MESSAGES).for_each(|_| peer.receive());
            peer.inject(to_shared);
            peer.poll();
            let is_woken = parked.join().unwrap();
            assert!(
                is_woken,
                "{provider}, round {round}: the message woke no thread"
            );
        });
    }
}

#[test]
fn a_parked_thread_progresses_what_another_thread_has_posted_over_shm() {
    post_beside_a_parked_thread("shm");
}

#[test]
fn a_parked_thread_progresses_what_another_thread_has_posted_over_tcp() {
    post_beside_a_parked_thread("tcp");
}

#[test]
fn a_parked_thread_progresses_what_another_thread_has_posted_over_udp() {
    post_beside_a_parked_thread("udp");
}

#[test]
fn a_parked_thread_progresses_what_another_thread_has_posted_over_lnx() {
    post_beside_a_parked_thread("lnx");
}

/// More than a link keeps without asking its receiver.
const LARGE: usize = 4 << 20;

#[test]
fn a_parked_thread_tries_again_what_a_link_of_lnx_had_no_room_for() {
    let (shared, peer) = (Side::open("lnx"), Side::open("lnx"));
    let (to_peer, to_shared) = (shared.insert(&peer), peer.insert(&shared));
    connect(&shared, &peer, to_shared);
    peer.send_large(to_shared);
    // The offer is here before its receive is.
    for _ in 0..100 {
        peer.poll();
        shared.poll();
    }
    thread::scope(|scope| {
        let parked = scope.spawn(|| shared.is_woken_by_a_message());
        while shared.ep.inject(b"parked", to_peer, None).is_ok() {}
        thread::sleep(UNTIL_PARKED);
        shared.post_receive_of(LARGE);
        // From here on the parked thread alone drives the endpoint.
        while !parked.is_finished() {
            peer.poll();
        }
        assert!(parked.join().unwrap(), "the offer was not taken");
    });
}
