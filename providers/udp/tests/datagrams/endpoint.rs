//! `DatagramEndpoint`: an endpoint with an event queue, whose posts copy their bytes to memory of
//! its domain.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

use selvedge::cq::{self, Entry, ErrEntry};
use selvedge::info::EpType;
use selvedge::{Address, Caps, EventQueue, FiAddr, Hints, OpFlags, Result, eq, wait};
use selvedge_testkit::domain::{Memory, Recv, Send};
use selvedge_testkit::local::{LocalEndpoint, info, until};

pub(crate) struct DatagramEndpoint {
    local: LocalEndpoint,
    pub(crate) eq: Arc<dyn EventQueue>,
}

impl Deref for DatagramEndpoint {
    type Target = LocalEndpoint;

    fn deref(&self) -> &LocalEndpoint {
        &self.local
    }
}

impl DatagramEndpoint {
    pub(crate) fn new() -> Self {
        Self::open_with(Caps::MSG, "127.0.0.1:0", wait::Object::None)
    }

    pub(crate) fn open_with(caps: Caps, addr: &str, wait_obj: wait::Object) -> Self {
        let hints = Hints::new()
            .caps(caps)
            .ep_type(EpType::Dgram)
            .src_addr(addr.parse().unwrap());
        let info = info(&selvedge_udp::PROVIDER, &[], &hints);
        let eq = info.fabric().unwrap().eq(&eq::Attr::default()).unwrap();
        let local = LocalEndpoint::open_with(&info, |domain, config| {
            let mut attr = cq::Attr::default();
            attr.wait_obj = wait_obj;
            config.rx = Some(domain.queue_with(&attr).unwrap());
            config.eq = Some(Arc::clone(&eq));
        });
        Self { local, eq }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        match self.address() {
            Address::Ip(addr) => addr,
            other => panic!("{other} is not an IP address"),
        }
    }

    pub(crate) fn insert(&self, addr: SocketAddr) -> FiAddr {
        self.local.insert(&Address::Ip(addr))
    }

    pub(crate) fn try_send(
        &self,
        dest: FiAddr,
        bytes: &[u8],
        context: u64,
        flags: OpFlags,
    ) -> Result {
        self.send_copy(bytes, &Send::new(dest, context).flags(flags))
    }

    #[track_caller]
    pub(crate) fn send(&self, dest: FiAddr, bytes: &[u8], context: u64) {
        self.try_send(dest, bytes, context, OpFlags::DEFAULT)
            .unwrap();
    }

    /// Posts a receive of `len` bytes in two segments, and returns its buffer.
    #[track_caller]
    pub(crate) fn recv(&self, len: usize, context: u64) -> Memory {
        let block = self.copy(&vec![0xaa; len]);
        let first = len / 3;
        let segments = [block.segment(0, first), block.segment(first, len - first)];
        self.local.recv(&segments, &Recv::new(context)).unwrap();
        block.memory
    }

    /// Waits for the next completion, and returns it with its source.
    #[track_caller]
    pub(crate) fn next(&self) -> (Entry, FiAddr) {
        let (outcome, src) = until(|| self.poll_from());
        (outcome.unwrap(), src)
    }

    #[track_caller]
    pub(crate) fn next_error(&self) -> ErrEntry {
        self.wait(&[]).unwrap_err()
    }

    /// Makes progress, and checks that no operation completes.
    #[track_caller]
    pub(crate) fn assert_no_completion(&self) {
        for _ in 0..50 {
            assert!(self.poll().is_none(), "an unexpected completion");
        }
    }
}
