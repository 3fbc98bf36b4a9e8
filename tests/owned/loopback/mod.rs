//! A loopback provider within one process, with settings for faults and limits.
//!
//! A message stays in the outbox of its sender until a receive matches it. It is delivered when any
//! completion queue is read. With [`Settings`], a test limits queues, delays messages, and makes
//! operations fail.

mod objects;
mod wire;

use std::sync::{Arc, Mutex, MutexGuard};

use selvedge::owned::{AsyncEndpoint, Endpoint, Pool};
use selvedge::{AddressVector, Domain as _, FiAddr, Info, av};

pub(crate) use self::objects::Domain;
pub(crate) use self::wire::Settings;
use self::wire::Wire;

/// A network of loopback endpoints: the provider's state, and a domain and address vector for
/// tests.
#[derive(Clone)]
pub(crate) struct Net {
    wire: Arc<Mutex<Wire>>,
    pub(crate) domain: Arc<Domain>,
    pub(crate) av: Arc<dyn AddressVector>,
}

impl Net {
    pub(crate) fn new() -> Self {
        let wire = Arc::new(Mutex::new(Wire::default()));
        let domain = Arc::new(Domain::new(Arc::clone(&wire)));
        let av = domain.av(&av::Attr::default()).unwrap();
        Self { wire, domain, av }
    }

    /// Locks the state of the provider.
    pub(crate) fn wire(&self) -> MutexGuard<'_, Wire> {
        wire::lock(&self.wire)
    }

    /// Changes the settings of the provider.
    pub(crate) fn set(&self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.wire().settings);
    }

    /// Allocates `count` buffers of 64 bytes.
    pub(crate) fn pool(&self, count: usize) -> Pool {
        Pool::new(&*self.domain, 64, count).unwrap()
    }

    /// Opens a polled endpoint. Returns it and its address.
    pub(crate) fn polled(&self) -> (Endpoint, FiAddr) {
        let ep = Endpoint::open(&*self.domain, &info(), Arc::clone(&self.av)).unwrap();
        let addr = self.av.insert_one(&ep.address().unwrap()).unwrap();
        (ep, addr)
    }

    /// Opens an endpoint with awaited operations. Returns it and its address.
    pub(crate) fn awaited(&self) -> (AsyncEndpoint, FiAddr) {
        let ep = AsyncEndpoint::open(&*self.domain, &info(), Arc::clone(&self.av)).unwrap();
        let addr = self.av.insert_one(&ep.address().unwrap()).unwrap();
        (ep, addr)
    }
}

/// Returns attributes of an endpoint with room for eight sends and eight receives.
pub(crate) fn info() -> Info {
    let mut info = Info::default();
    info.tx_attr.size = 8;
    info.rx_attr.size = 8;
    info
}
