//! A provider inside one process, whose moods a test can choose.
//!
//! Messages stay with their sender until a receive accepts them, and move when somebody reads any
//! completion queue. [`Knobs`] make queues full, hold messages back, and let operations fail.

mod objects;
mod wire;

use std::sync::{Arc, Mutex, MutexGuard};

use selvedge::owned::{AsyncEndpoint, Endpoint, Pool};
use selvedge::{AddressVector, Domain as _, FiAddr, Info, av};

pub(crate) use self::objects::Domain;
pub(crate) use self::wire::Knobs;
use self::wire::Wire;

/// Everything that is connected, with the handles that tests use.
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

    pub(crate) fn wire(&self) -> MutexGuard<'_, Wire> {
        wire::lock(&self.wire)
    }

    /// Changes the moods.
    pub(crate) fn set(&self, change: impl FnOnce(&mut Knobs)) {
        change(&mut self.wire().knobs);
    }

    pub(crate) fn pool(&self, count: usize) -> Pool {
        Pool::new(&*self.domain, 64, count).unwrap()
    }

    /// An endpoint that is polled, and its address.
    pub(crate) fn polled(&self) -> (Endpoint, FiAddr) {
        let ep = Endpoint::open(&*self.domain, &info(), Arc::clone(&self.av)).unwrap();
        let addr = self.av.insert_one(&ep.address().unwrap()).unwrap();
        (ep, addr)
    }

    /// An endpoint whose operations are awaited, and its address.
    pub(crate) fn awaited(&self) -> (AsyncEndpoint, FiAddr) {
        let ep = AsyncEndpoint::open(&*self.domain, &info(), Arc::clone(&self.av)).unwrap();
        let addr = self.av.insert_one(&ep.address().unwrap()).unwrap();
        (ep, addr)
    }
}

/// Attributes of an endpoint with room for eight operations each way.
pub(crate) fn info() -> Info {
    let mut info = Info::default();
    info.tx_attr.size = 8;
    info.rx_attr.size = 8;
    info
}
