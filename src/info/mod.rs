//! [`Info`]: the description of a fabric, a domain and an endpoint, which discovery returns.

mod attr;
mod candidate;
mod hints;
mod origin;

pub use attr::{
    COMP_ORDER_DATA, COMP_ORDER_STRICT, DomainAttr, EpAttr, EpType, FabricAttr, MemTagFormat, Nic,
    Progress, Protocol, ResourceMgmt, RxAttr, Threading, TrafficClass, TxAttr, Version,
};
pub use candidate::{Candidate, Mismatch};
pub use hints::Hints;

use std::sync::Arc;

use crate::param::Params;
use crate::{AddrFormat, Address, Caps, Domain, Errno, Error, Fabric, Mode, Provider, Query};
use origin::Origin;

/// The description of a fabric, a domain and an endpoint, with their limits (`struct fi_info`).
///
/// An `Info` is plain data. In [`Hints`], a zero, an empty set, `None` or `Unspec` means "any".
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Info {
    /// Capabilities.
    pub caps: Caps,
    /// Requirements on the application.
    pub mode: Mode,
    /// The format of addresses.
    pub addr_format: AddrFormat,
    /// The local address.
    pub src_addr: Option<Address>,
    /// The peer's address.
    pub dest_addr: Option<Address>,
    /// The handle of a connection request or a passive endpoint; 0 for none.
    pub handle: u64,
    /// Transmit attributes.
    pub tx_attr: TxAttr,
    /// Receive attributes.
    pub rx_attr: RxAttr,
    /// Endpoint attributes.
    pub ep_attr: EpAttr,
    /// Domain attributes.
    pub domain_attr: DomainAttr,
    /// Fabric attributes.
    pub fabric_attr: FabricAttr,
    /// The network interface, if there is one.
    pub nic: Option<Nic>,
    origin: Origin,
}

impl Info {
    /// Opens the domain and its fabric (fi_fabric(3), fi_domain(3)).
    ///
    /// # Errors
    /// [`Errno::NoDev`] for an `Info` that discovery has not returned; the errors of the provider.
    pub fn open(&self) -> Result<Arc<dyn Domain>, Error> {
        self.fabric()?.domain(self)
    }

    /// Opens the fabric alone (fi_fabric(3)), for event queues, and for several domains of one
    /// fabric.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn fabric(&self) -> Result<Arc<dyn Fabric>, Error> {
        let provider = self.origin.provider.as_ref().ok_or_else(|| {
            let text = "cannot open an Info that no registry has returned: use Registry::getinfo or \
                        Registry::adopt";
            Error::new(Errno::NoDev, text)
        })?;
        provider.fabric(self)
    }

    /// Returns the parameters that discovery has read, for the provider. An `Info` that discovery
    /// has not returned has no parameters.
    pub fn params(&self) -> &Params {
        &self.origin.params
    }

    /// Returns the application's promise about its threads, or [`Threading::Safe`] without a
    /// promise.
    ///
    /// Only [`Hints::promise_threading`] makes a promise. A provider may omit locks because of this
    /// promise, but not because of `domain_attr.threading`, which safe code can write.
    pub fn threading_promise(&self) -> Threading {
        self.origin.threading
    }

    pub(crate) fn set_origin(&mut self, provider: &Arc<dyn Provider>, query: &Query<'_>) {
        self.origin = Origin {
            provider: Some(Arc::clone(provider)),
            params: query.params.clone(),
            threading: query.hints.info().threading_promise(),
        };
    }
}
