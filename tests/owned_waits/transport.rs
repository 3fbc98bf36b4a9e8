//! `Transport`: a domain of one provider, and endpoints in it that threads wait for.

use std::sync::Arc;
use std::time::Duration;

use selvedge::info::EpType;
use selvedge::owned::{AsyncEndpoint, Endpoint, Pool};
use selvedge::{AddressVector, Caps, Domain, FiAddr, Hints, Info, av, cq, wait};

/// The providers of which each has a descriptor.
pub(crate) const PROVIDERS: [&str; 4] = ["shm", "tcp", "udp", "lnx"];

pub(crate) struct Transport {
    pub(crate) info: Info,
    pub(crate) domain: Arc<dyn Domain>,
    pub(crate) av: Arc<dyn AddressVector>,
}

impl Transport {
    pub(crate) fn open(provider: &str) -> Self {
        let params = [("FI_TCP_IFACE", "lo"), ("FI_UDP_IFACE", "lo")];
        let registry = selvedge_providers::builtin().with_params(params.into_iter().collect());
        let ep_type = match provider {
            "udp" => EpType::Dgram,
            _ => EpType::Rdm,
        };
        let hints = Hints::new()
            .provider(provider)
            .ep_type(ep_type)
            .caps(Caps::MSG);
        let info = registry.infos(&hints).unwrap().remove(0);
        let domain = info.open().unwrap();
        let av = domain.av(&av::Attr::default()).unwrap();
        Self { info, domain, av }
    }

    /// Opens a polled endpoint. Returns it and its address.
    pub(crate) fn polled(&self, queue: impl Into<cq::Attr>) -> (Endpoint, FiAddr) {
        let av = Arc::clone(&self.av);
        let ep = Endpoint::open_waiting(&*self.domain, &self.info, av, queue).unwrap();
        let addr = self.av.insert_one(&ep.address().unwrap()).unwrap();
        (ep, addr)
    }

    /// Opens an endpoint whose futures an executor drives by its descriptor. Returns it and its
    /// address.
    pub(crate) fn awaited(&self) -> (Arc<AsyncEndpoint>, FiAddr) {
        let av = Arc::clone(&self.av);
        let mut queue = cq::Attr::from(wait::Object::Fd);
        queue.spin_time = Some(Duration::ZERO);
        let ep = AsyncEndpoint::open_waiting(&*self.domain, &self.info, av, queue).unwrap();
        let addr = self.av.insert_one(&ep.address().unwrap()).unwrap();
        (Arc::new(ep), addr)
    }

    /// Allocates `count` buffers of 64 bytes.
    pub(crate) fn pool(&self, count: usize) -> Pool {
        Pool::new(&*self.domain, 64, count).unwrap()
    }
}
