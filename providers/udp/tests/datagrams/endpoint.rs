//! An endpoint with its queue and the memory of its operations.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use selvedge::cq::{self, Entry, ErrEntry};
use selvedge::info::EpType;
use selvedge::{
    Address, AddressVector, Bindings, Caps, CompletionQueue, Context, Domain, Endpoint, Errno,
    EventQueue, FiAddr, Hints, Info, Iov, IovMut, OpFlags, Registry, Result, av, eq, msg, wait,
};

pub(crate) struct Side {
    pub(crate) ep: Arc<dyn Endpoint>,
    pub(crate) cq: Arc<dyn CompletionQueue>,
    pub(crate) av: Arc<dyn AddressVector>,
    pub(crate) eq: Arc<dyn EventQueue>,
    pub(crate) info: Info,
    _domain: Arc<dyn Domain>,
    /// Declared after the endpoint, so that it is dropped later.
    memory: RefCell<Vec<Box<[u8]>>>,
}

/// Repeats an attempt until it returns a value, for at most 30 seconds.
pub(crate) fn until<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "no value within 30 seconds"
        );
        std::thread::yield_now();
    }
}

impl Side {
    pub(crate) fn new() -> Self {
        Self::open_with(Caps::MSG, "127.0.0.1:0", wait::Object::None)
    }

    pub(crate) fn open_with(caps: Caps, addr: &str, wait_obj: wait::Object) -> Self {
        let addr: Address = addr.parse().unwrap();
        let hints = Hints::new()
            .caps(caps)
            .ep_type(EpType::Dgram)
            .src_addr(addr);
        let registry = Registry::new().with(&selvedge_udp::PROVIDER);
        let info = registry.infos(&hints).unwrap().remove(0);
        let fabric = info.fabric().unwrap();
        let domain = fabric.domain(&info).unwrap();
        let mut attr = cq::Attr::default();
        attr.wait_obj = wait_obj;
        let cq = domain.cq(&attr).unwrap();
        let av = domain.av(&av::Attr::default()).unwrap();
        let eq = fabric.eq(&eq::Attr::default()).unwrap();
        let mut bind = Bindings::new(Arc::clone(&cq), Arc::clone(&av));
        bind.eq = Some(Arc::clone(&eq));
        Self {
            ep: domain.endpoint(&info, bind).unwrap(),
            cq,
            av,
            eq,
            info,
            _domain: domain,
            memory: RefCell::default(),
        }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        match self.ep.address().unwrap() {
            Address::Ip(addr) => addr,
            other => panic!("{other} is not an IP address"),
        }
    }

    pub(crate) fn insert(&self, addr: SocketAddr) -> FiAddr {
        self.av.insert_one(&Address::Ip(addr)).unwrap()
    }

    fn keep(&self, bytes: &[u8]) -> *mut u8 {
        let mut bytes: Box<[u8]> = bytes.into();
        let base = bytes.as_mut_ptr();
        self.memory.borrow_mut().push(bytes);
        base
    }

    pub(crate) fn try_send(
        &self,
        dest: FiAddr,
        bytes: &[u8],
        context: u64,
        flags: OpFlags,
    ) -> Result {
        let base = self.keep(bytes);
        let message = msg::SendMsg {
            iov: &[Iov::from_raw(base.cast(), bytes.len())],
            desc: &[],
            dest,
            context: Context(context),
            data: 0,
        };
        // SAFETY: the side keeps the bytes.
        unsafe { self.ep.sendmsg(&message, flags) }
    }

    pub(crate) fn send(&self, dest: FiAddr, bytes: &[u8], context: u64) {
        self.try_send(dest, bytes, context, OpFlags::DEFAULT)
            .unwrap();
    }

    /// Posts a receive of `len` bytes in two segments, and returns its buffer.
    pub(crate) fn recv(&self, len: usize, context: u64) -> RecvBuffer {
        let base = self.keep(&vec![0xaa; len]);
        let first = len / 3;
        let message = msg::RecvMsg {
            iov: &[
                IovMut::from_raw(base.cast(), first),
                IovMut::from_raw(base.wrapping_add(first).cast(), len - first),
            ],
            desc: &[],
            src: FiAddr::UNSPEC,
            context: Context(context),
        };
        // SAFETY: the side keeps the bytes.
        unsafe { self.ep.recvmsg(&message, OpFlags::DEFAULT) }.unwrap();
        RecvBuffer { base, len }
    }

    /// Waits for the next completion, and returns it with its source.
    pub(crate) fn next(&self) -> (Entry, FiAddr) {
        let (mut entry, mut src) = ([Entry::default()], [FiAddr::UNSPEC]);
        until(|| match self.cq.read_from(&mut entry, &mut src) {
            Ok(0) => None,
            Ok(_) => Some(()),
            Err(errno) => panic!("{errno}: {:?}", self.cq.read_err()),
        });
        (entry[0], src[0])
    }

    pub(crate) fn next_error(&self) -> ErrEntry {
        until(|| match self.cq.read(&mut [Entry::default()]) {
            Ok(0) => None,
            Ok(_) => panic!("an operation succeeded that has to fail"),
            Err(errno) => {
                assert_eq!(errno, Errno::Avail);
                Some(self.cq.read_err().unwrap())
            }
        })
    }

    /// Makes progress, and checks that no operation completes.
    pub(crate) fn assert_no_completion(&self) {
        for _ in 0..50 {
            assert_eq!(self.cq.read(&mut [Entry::default()]), Ok(0));
        }
    }
}

/// The buffer of a posted receive.
pub(crate) struct RecvBuffer {
    base: *mut u8,
    len: usize,
}

impl RecvBuffer {
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the side keeps the bytes, and the test reads them after the receive is complete.
        unsafe { std::slice::from_raw_parts(self.base, self.len) }
    }
}
