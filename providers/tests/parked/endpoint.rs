//! `ParkingEndpoint`: an endpoint with a queue for each direction and a counter of its receives,
//! which threads can park at.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use selvedge::cq::Entry;
use selvedge::info::EpType;
use selvedge::param::Params;
use selvedge::{Caps, Counter, Errno, FiAddr, Hints, Result, TagMatch, cntr, cq, wait};
use selvedge_testkit::domain::{Recv, Send};
use selvedge_testkit::local::{LocalEndpoint, first_info, until};

use crate::LIMIT;

/// The length of a small receive in bytes.
const SMALL: usize = 64;

pub(crate) struct ParkingEndpoint {
    local: LocalEndpoint,
    pub(crate) received: Arc<dyn Counter>,
}

impl Deref for ParkingEndpoint {
    type Target = LocalEndpoint;

    fn deref(&self) -> &LocalEndpoint {
        &self.local
    }
}

impl ParkingEndpoint {
    pub(crate) fn open(provider: &str) -> Self {
        Self::with(provider, 0, &[])
    }

    /// Opens an endpoint with these parameters. Its receive queue has room for `rx_size`
    /// completions; 0 means the provider's default.
    pub(crate) fn with(provider: &str, rx_size: usize, variables: &[(&str, &str)]) -> Self {
        let loopback = [("FI_TCP_IFACE", "lo"), ("FI_UDP_IFACE", "lo")];
        let params: Params = loopback.iter().chain(variables).copied().collect();
        let registry = selvedge_providers::builtin().with_params(params);
        let (ep_type, caps) = match provider {
            "udp" => (EpType::Dgram, Caps::MSG),
            "shm" => (EpType::Rdm, Caps::MSG | Caps::TAGGED | Caps::TRIGGER),
            _ => (EpType::Rdm, Caps::MSG | Caps::TAGGED),
        };
        let hints = Hints::new().provider(provider).ep_type(ep_type);
        let mut received = None;
        let info = first_info(&registry, &hints.caps(caps));
        let local = LocalEndpoint::open_with(&info, |domain, config| {
            let mut attr = cq::Attr::default();
            attr.wait_obj = wait::Object::Unspec;
            config.tx = Some(domain.queue_with(&attr).unwrap());
            attr.size = rx_size;
            config.rx = Some(domain.queue_with(&attr).unwrap());
            let mut attr = cntr::Attr::default();
            attr.wait_obj = wait::Object::Unspec;
            let cntr = domain.domain().cntr(&attr).unwrap();
            config.counters.recv = Some(Arc::clone(&cntr));
            received = Some(cntr);
        });
        Self {
            local,
            received: received.unwrap(),
        }
    }

    pub(crate) fn post_receive(&self) {
        self.post_receive_of(SMALL);
    }

    pub(crate) fn post_receive_of(&self, len: usize) {
        self.recv_new(len, &Recv::new(0));
    }

    pub(crate) fn post_tagged_receive(&self, tag: u64, len: usize) {
        self.recv_new(len, &Recv::new(0).tag(TagMatch::exact(tag)));
    }

    pub(crate) fn send(&self, bytes: &[u8], dest: FiAddr) {
        self.send_copy(bytes, &Send::new(dest, 0)).unwrap();
    }

    pub(crate) fn inject(&self, dest: FiAddr) {
        self.retry_until_room(|| self.ep.inject(b"parked", dest, None));
    }

    pub(crate) fn inject_tagged(&self, bytes: &[u8], dest: FiAddr, tag: u64) {
        self.retry_until_room(|| self.ep.tinject(bytes, dest, tag, None));
    }

    /// Repeats a post while the endpoint has no room for it. Does not read the queue of receives,
    /// at which another thread may be parked.
    fn retry_until_room(&self, post: impl Fn() -> Result) {
        let posted = until(|| match post() {
            Err(Errno::Again) => {
                self.poll();
                None
            }
            posted => Some(posted),
        });
        posted.unwrap();
    }

    /// Drives the endpoint by a read of the queue of sends, as every read of a queue does.
    pub(crate) fn poll(&self) {
        self.tx.cq().read(&mut []).unwrap();
    }

    /// Polls this endpoint, and `other` if given, until `messages` messages were received.
    pub(crate) fn receive(&self, mut messages: usize, other: Option<&Self>) {
        let start = Instant::now();
        while messages > 0 {
            let is_late = start.elapsed() >= LIMIT;
            assert!(!is_late, "{messages} messages have not arrived");
            messages -= self.cq().read(&mut [Entry::default()]).unwrap();
            other.into_iter().for_each(Self::poll);
        }
    }

    /// Reads a completion of a receive, if there is one, without driving the endpoint.
    pub(crate) fn take_received(&self) -> bool {
        let (mut out, mut src) = ([Entry::default()], [FiAddr::UNSPEC]);
        self.cq().read_ready(&mut out, &mut src).unwrap() > 0
    }

    /// Parks until a message is received. Returns false if the wait timed out: the last poll of
    /// such a wait may find the message without a wake-up.
    pub(crate) fn is_woken_by_a_message(&self) -> bool {
        let start = Instant::now();
        let received = self.cq().wait(&mut [Entry::default()], Some(LIMIT));
        received == Ok(1) && start.elapsed() < LIMIT
    }

    /// Parks until the counter has counted `count` messages. Returns false if the wait timed out.
    pub(crate) fn is_woken_by_messages(&self, count: u64) -> bool {
        let start = Instant::now();
        let counted = self.received.wait(count, Some(LIMIT));
        counted == Ok(()) && start.elapsed() < LIMIT
    }
}
