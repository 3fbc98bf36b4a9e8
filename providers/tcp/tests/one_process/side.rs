//! `Side`: an endpoint with its domain, queue and address vector, for single-threaded tests.

#![expect(unsafe_code, reason = "tests of the raw API")]

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use selvedge::cq::{Entry, ErrEntry};
use selvedge::info::{EpType, Threading};
use selvedge::{
    Address, AddressVector, Bindings, Caps, CompletionQueue, Context, Desc, Domain, Endpoint,
    Errno, FiAddr, Hints, Info, Iov, IovMut, MsgExt, OpFlags, Registry, Result, TagMatch,
    TaggedExt, av, cq, tagged,
};

/// The time limit of a wait.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The result of an operation.
pub(crate) type Done = Result<Entry, ErrEntry>;

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
    registry.infos(&hints).unwrap().remove(0)
}

/// Returns an `Info` of connected endpoints in domains without locks.
///
/// # Safety
/// No two threads use objects of one domain at the same time.
pub(crate) unsafe fn unlocked_info() -> Info {
    let registry = Registry::new().with(&selvedge_tcp::PROVIDER);
    let hints = Hints::new()
        .caps(Caps::MSG)
        .ep_type(EpType::Msg)
        .src_addr("127.0.0.1:0".parse().unwrap());
    // SAFETY: passed on from the caller.
    let hints = unsafe { hints.promise_threading(Threading::Domain) };
    registry.infos(&hints).unwrap().remove(0)
}

pub(crate) struct Side {
    // The endpoint is declared first, so that it is closed before the buffers are freed.
    pub(crate) ep: Arc<dyn Endpoint>,
    pub(crate) cq: Arc<dyn CompletionQueue>,
    pub(crate) av: Arc<dyn AddressVector>,
    pub(crate) domain: Arc<dyn Domain>,
    memory: RefCell<Vec<Box<[u8]>>>,
}

impl Side {
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    pub(crate) fn with(params: &[(&str, &str)]) -> Self {
        Self::open(&info(EpType::Rdm, params))
    }

    pub(crate) fn open(info: &Info) -> Self {
        let domain = info.open().unwrap();
        let cq = domain.cq(&cq::Attr::default()).unwrap();
        let av = domain.av(&av::Attr::default()).unwrap();
        let bindings = Bindings::new(Arc::clone(&cq), Arc::clone(&av));
        let ep = domain.endpoint(info, bindings).unwrap();
        Self::from_parts(ep, cq, av, domain)
    }

    pub(crate) fn from_parts(
        ep: Arc<dyn Endpoint>,
        cq: Arc<dyn CompletionQueue>,
        av: Arc<dyn AddressVector>,
        domain: Arc<dyn Domain>,
    ) -> Self {
        Self {
            ep,
            cq,
            av,
            domain,
            memory: RefCell::default(),
        }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        match self.ep.address().unwrap() {
            Address::Ip(ip) => ip,
            other => panic!("{other}"),
        }
    }

    pub(crate) fn insert_peer(&self, other: &Self) -> FiAddr {
        self.av.insert_one(&other.ep.address().unwrap()).unwrap()
    }

    pub(crate) fn insert(&self, addr: SocketAddr) -> FiAddr {
        self.av.insert_one(&Address::Ip(addr)).unwrap()
    }

    /// Copies bytes to memory that lives as long as the endpoint.
    pub(crate) fn keep(&self, bytes: &[u8]) -> *mut u8 {
        let mut memory: Box<[u8]> = bytes.into();
        let first = memory.as_mut_ptr();
        self.memory.borrow_mut().push(memory);
        first
    }

    pub(crate) fn tsend(&self, dest: FiAddr, tag: u64, bytes: &[u8], context: u64) -> Result {
        let iov = Iov::from_raw(self.keep(bytes).cast(), bytes.len());
        // SAFETY: `memory` outlives the endpoint.
        unsafe { self.ep.tsend(iov, Desc::NONE, dest, tag, Context(context)) }
    }

    /// Posts a tagged message that completes when a receive has matched it.
    pub(crate) fn tsend_delivered(
        &self,
        dest: FiAddr,
        tag: u64,
        bytes: &[u8],
        context: u64,
    ) -> Result {
        let msg = tagged::SendMsg {
            iov: &[Iov::from_raw(self.keep(bytes).cast(), bytes.len())],
            desc: &[],
            dest,
            tag,
            context: Context(context),
            data: 0,
        };
        // SAFETY: `memory` outlives the endpoint.
        unsafe { self.ep.tsendmsg(&msg, OpFlags::DELIVERY_COMPLETE) }
    }

    pub(crate) fn send(&self, dest: FiAddr, bytes: &[u8], context: u64) -> Result {
        let iov = Iov::from_raw(self.keep(bytes).cast(), bytes.len());
        // SAFETY: `memory` outlives the endpoint.
        unsafe { self.ep.send(iov, Desc::NONE, dest, Context(context)) }
    }

    /// Posts a tagged receive, and returns its buffer.
    pub(crate) fn trecv(&self, src: FiAddr, tag: u64, len: usize, context: u64) -> RecvBuffer {
        let first = self.keep(&vec![0; len]);
        let iov = IovMut::from_raw(first.cast(), len);
        let tag = TagMatch::exact(tag);
        // SAFETY: `memory` outlives the endpoint, and `RecvBuffer` is read after the completion.
        unsafe { self.ep.trecv(iov, Desc::NONE, src, tag, Context(context)) }.unwrap();
        RecvBuffer { first, len }
    }

    pub(crate) fn recv(&self, len: usize, context: u64) -> RecvBuffer {
        let first = self.keep(&vec![0; len]);
        let iov = IovMut::from_raw(first.cast(), len);
        let any = FiAddr::UNSPEC;
        // SAFETY: as above.
        unsafe { self.ep.recv(iov, Desc::NONE, any, Context(context)) }.unwrap();
        RecvBuffer { first, len }
    }

    pub(crate) fn poll(&self) -> Option<Done> {
        let mut entry = [Entry::default()];
        match self.cq.read(&mut entry) {
            Ok(0) => None,
            Ok(_) => Some(Ok(entry[0])),
            Err(Errno::Avail) => Some(Err(self.cq.read_err().unwrap())),
            Err(errno) => panic!("{errno}"),
        }
    }

    pub(crate) fn drive(&self) {
        let (Ok(_) | Err(Errno::Avail)) = self.cq.read(&mut []) else {
            panic!("progress fails");
        };
    }

    /// Waits for a completion, while all sides make progress.
    #[track_caller]
    pub(crate) fn wait(&self, others: &[&Self]) -> Done {
        until(|| {
            others.iter().for_each(|other| other.drive());
            self.poll()
        })
    }

    /// Waits for a completion, which must have this context.
    #[track_caller]
    pub(crate) fn wait_for(&self, context: u64, others: &[&Self]) -> Entry {
        let entry = self.wait(others).unwrap();
        assert_eq!(entry.context, Context(context));
        entry
    }
}

/// The buffer of a receive. The bytes may be read only after the completion.
pub(crate) struct RecvBuffer {
    first: *const u8,
    len: usize,
}

impl RecvBuffer {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        // SAFETY: the `Side` that owns the memory still exists, and no operation uses the memory
        // any more.
        unsafe { std::slice::from_raw_parts(self.first, self.len) }.to_vec()
    }
}

/// Repeats an attempt until it returns a value.
#[track_caller]
pub(crate) fn until<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(start.elapsed() < TIMEOUT, "no attempt succeeds in time");
        std::thread::yield_now();
    }
}

pub(crate) fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|index| (index * 31 + seed * 7 + index / 251) as u8)
        .collect()
}

/// Sends a message from `a` to `b` and checks it.
#[track_caller]
pub(crate) fn exchange(a: &Side, b: &Side) {
    let (to_b, bytes) = (a.insert_peer(b), pattern(1, 300));
    let buffer = b.trecv(FiAddr::UNSPEC, 77, bytes.len(), 2);
    until(|| match a.tsend(to_b, 77, &bytes, 1) {
        Ok(()) => Some(()),
        Err(Errno::Again) => {
            a.drive();
            b.drive();
            None
        }
        Err(errno) => panic!("{errno}"),
    });
    b.wait_for(2, &[a]);
    a.wait_for(1, &[b]);
    assert_eq!(buffer.bytes(), bytes);
}
