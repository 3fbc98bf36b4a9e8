//! `Side`: an endpoint with a queue for each direction and a counter of its receives.

#![expect(unsafe_code, reason = "posts of memory that is never freed")]

use std::sync::Arc;
use std::time::Instant;

use selvedge::cq::Entry;
use selvedge::info::EpType;
use selvedge::param::Params;
use selvedge::{
    AddressVector, Bindings, Caps, CompletionQueue, Context, Counter, Desc, Domain, Endpoint,
    Errno, FiAddr, Hints, Iov, IovMut, MsgExt, TagMatch, TaggedExt, av, cntr, cq, wait,
};

use crate::LIMIT;

/// The length of a small receive in bytes.
const SMALL: usize = 64;

pub(crate) struct Side {
    // The endpoint is declared first, so that it is closed before its queues.
    pub(crate) ep: Arc<dyn Endpoint>,
    pub(crate) tx_cq: Arc<dyn CompletionQueue>,
    pub(crate) rx_cq: Arc<dyn CompletionQueue>,
    pub(crate) received: Arc<dyn Counter>,
    av: Arc<dyn AddressVector>,
    pub(crate) domain: Arc<dyn Domain>,
}

impl Side {
    pub(crate) fn open(provider: &str) -> Self {
        Self::with(provider, 0, &[])
    }

    /// Opens a side with these parameters. Its receive queue has room for `rx_size` completions; 0
    /// means the provider's default.
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
            domain,
        }
    }

    pub(crate) fn insert(&self, other: &Self) -> FiAddr {
        let addr = other.ep.address().unwrap();
        self.av.insert_one(&addr).unwrap()
    }

    pub(crate) fn post_receive(&self) {
        self.post_receive_of(SMALL);
    }

    pub(crate) fn post_receive_of(&self, len: usize) {
        // SAFETY: the memory is never freed, and no other code uses it.
        unsafe { (self.ep).recv(leak_memory(len), Desc::NONE, FiAddr::UNSPEC, Context(0)) }
            .unwrap();
    }

    pub(crate) fn post_tagged_receive(&self, tag: u64, len: usize) {
        let (buf, tag) = (leak_memory(len), TagMatch::exact(tag));
        // SAFETY: the memory is never freed, and no other code uses it.
        unsafe { (self.ep).trecv(buf, Desc::NONE, FiAddr::UNSPEC, tag, Context(0)) }.unwrap();
    }

    pub(crate) fn send(&self, bytes: &'static [u8], dest: FiAddr) {
        // SAFETY: the memory is never freed nor written.
        unsafe { (self.ep).send(Iov::new(bytes), Desc::NONE, dest, Context(0)) }.unwrap();
    }

    pub(crate) fn inject(&self, dest: FiAddr) {
        self.retry_until_room(|| self.ep.inject(b"parked", dest, None));
    }

    pub(crate) fn inject_tagged(&self, bytes: &[u8], dest: FiAddr, tag: u64) {
        self.retry_until_room(|| self.ep.tinject(bytes, dest, tag, None));
    }

    /// Repeats a post while the endpoint has no room for it.
    fn retry_until_room(&self, post: impl Fn() -> selvedge::Result) {
        let start = Instant::now();
        while post() == Err(Errno::Again) {
            assert!(
                start.elapsed() < LIMIT,
                "the endpoint has no room for a message"
            );
            self.poll();
        }
    }

    /// Drives the endpoint, as every read of a queue does.
    pub(crate) fn poll(&self) {
        self.tx_cq.read(&mut []).unwrap();
    }

    /// Polls this side, and `other` if given, until `messages` messages were received.
    pub(crate) fn receive(&self, mut messages: usize, other: Option<&Self>) {
        let start = Instant::now();
        while messages > 0 {
            let is_late = start.elapsed() >= LIMIT;
            assert!(!is_late, "{messages} messages have not arrived");
            messages -= self.rx_cq.read(&mut [Entry::default()]).unwrap();
            other.into_iter().for_each(Self::poll);
        }
    }

    /// Reads a completion of a receive, if there is one, without driving the endpoint.
    pub(crate) fn take_received(&self) -> bool {
        let (mut out, mut src) = ([Entry::default()], [FiAddr::UNSPEC]);
        self.rx_cq.read_ready(&mut out, &mut src).unwrap() > 0
    }

    /// Parks until a message is received. Returns false if the wait timed out: the last poll of
    /// such a wait may find the message without a wake-up.
    pub(crate) fn is_woken_by_a_message(&self) -> bool {
        let start = Instant::now();
        let received = self.rx_cq.wait(&mut [Entry::default()], Some(LIMIT));
        received == Ok(1) && start.elapsed() < LIMIT
    }

    /// Parks until the counter has counted `count` messages. Returns false if the wait timed out.
    pub(crate) fn is_woken_by_messages(&self, count: u64) -> bool {
        let start = Instant::now();
        let counted = self.received.wait(count, Some(LIMIT));
        counted == Ok(()) && start.elapsed() < LIMIT
    }
}

fn leak_memory(len: usize) -> IovMut {
    IovMut::new(Box::leak(vec![0; len].into_boxed_slice()))
}
