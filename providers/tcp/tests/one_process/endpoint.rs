//! `CopyingEndpoint`: an endpoint whose posts copy their bytes to memory of its domain.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

use selvedge::cq::Entry;
use selvedge::info::{EpType, Threading};
use selvedge::{Address, Caps, Context, FiAddr, Hints, Info, OpFlags, Registry, Result, TagMatch};
use selvedge_testkit::domain::{DomainContext, EndpointConfig, Memory, Recv, Send};
use selvedge_testkit::local::{LocalEndpoint, first_info};

/// Returns an `Info` of the provider on the loopback interface, with these parameters.
pub(crate) fn info(ep_type: EpType, params: &[(&str, &str)]) -> Info {
    info_at("127.0.0.1:0", ep_type, params)
}

pub(crate) fn info_at(src_addr: &str, ep_type: EpType, params: &[(&str, &str)]) -> Info {
    let requested = params.iter().map(|&(name, value)| (name, value.to_owned()));
    let registry = Registry::new()
        .with(&selvedge_tcp::PROVIDER)
        .with_params(crate::variables().into_iter().chain(requested).collect());
    let mut caps = Caps::MSG | Caps::RMA | Caps::ATOMIC;
    if ep_type == EpType::Rdm {
        caps |= Caps::TAGGED | Caps::SOURCE | Caps::DIRECTED_RECV;
    }
    let hints = Hints::new()
        .caps(caps)
        .ep_type(ep_type)
        .src_addr(src_addr.parse().unwrap());
    first_info(&registry, &hints)
}

/// Returns an `Info` of connected endpoints in domains without locks.
///
/// # Safety
/// No two threads use objects of one domain at the same time.
#[expect(unsafe_code, reason = "the promise about threads")]
pub(crate) unsafe fn unlocked_info() -> Info {
    let registry = Registry::new().with(&selvedge_tcp::PROVIDER);
    let hints = Hints::new()
        .caps(Caps::MSG)
        .ep_type(EpType::Msg)
        .src_addr("127.0.0.1:0".parse().unwrap());
    // SAFETY: passed on from the caller.
    let hints = unsafe { hints.promise_threading(Threading::Domain) };
    first_info(&registry, &hints)
}

pub(crate) struct CopyingEndpoint(LocalEndpoint);

impl Deref for CopyingEndpoint {
    type Target = LocalEndpoint;

    fn deref(&self) -> &LocalEndpoint {
        &self.0
    }
}

impl CopyingEndpoint {
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    pub(crate) fn with(params: &[(&str, &str)]) -> Self {
        Self::open(&info(EpType::Rdm, params))
    }

    pub(crate) fn open(info: &Info) -> Self {
        Self(LocalEndpoint::open(info))
    }

    pub(crate) fn open_with(
        info: &Info,
        configure: impl FnOnce(&DomainContext, &mut EndpointConfig),
    ) -> Self {
        Self(LocalEndpoint::open_with(info, configure))
    }

    pub(crate) fn open_in(
        domain: &Arc<DomainContext>,
        configure: impl FnOnce(&DomainContext, &mut EndpointConfig),
    ) -> Self {
        Self(LocalEndpoint::try_open(domain, configure).unwrap())
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        match self.address() {
            Address::Ip(ip) => ip,
            other => panic!("{other}"),
        }
    }

    pub(crate) fn insert(&self, addr: SocketAddr) -> FiAddr {
        self.0.insert(&Address::Ip(addr))
    }

    pub(crate) fn tsend(&self, dest: FiAddr, tag: u64, bytes: &[u8], context: u64) -> Result {
        self.send_copy(bytes, &Send::new(dest, context).tag(tag))
    }

    /// Posts a tagged message that completes when a receive has matched it.
    pub(crate) fn tsend_delivered(
        &self,
        dest: FiAddr,
        tag: u64,
        bytes: &[u8],
        context: u64,
    ) -> Result {
        let send = Send::new(dest, context).tag(tag);
        self.send_copy(bytes, &send.flags(OpFlags::DELIVERY_COMPLETE))
    }

    pub(crate) fn send(&self, dest: FiAddr, bytes: &[u8], context: u64) -> Result {
        self.send_copy(bytes, &Send::new(dest, context))
    }

    /// Posts a tagged receive, and returns its buffer.
    #[track_caller]
    pub(crate) fn trecv(&self, src: FiAddr, tag: u64, len: usize, context: u64) -> Memory {
        let recv = Recv::new(context).from(src).tag(TagMatch::exact(tag));
        self.recv_new(len, &recv)
    }

    #[track_caller]
    pub(crate) fn recv(&self, len: usize, context: u64) -> Memory {
        self.recv_new(len, &Recv::new(context))
    }

    /// Waits for a completion, which must have this context.
    #[track_caller]
    pub(crate) fn wait_for(&self, context: u64, others: &[&LocalEndpoint]) -> Entry {
        let entry = self.wait(others).unwrap();
        assert_eq!(entry.context, Context(context));
        entry
    }
}

pub(crate) fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|index| (index * 31 + seed * 7 + index / 251) as u8)
        .collect()
}

/// Sends a message from `a` to `b` and checks it.
#[track_caller]
pub(crate) fn exchange(a: &CopyingEndpoint, b: &CopyingEndpoint) {
    let (to_b, bytes) = (a.insert_endpoint(b), pattern(1, 300));
    let buffer = b.trecv(FiAddr::UNSPEC, 77, bytes.len(), 2);
    a.post_retrying(&[b], || a.tsend(to_b, 77, &bytes, 1));
    b.wait_for(2, &[a]);
    a.wait_for(1, &[b]);
    assert_eq!(buffer.bytes(), bytes);
}
