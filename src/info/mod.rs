//! What discovery hands out: [`Info`], the description of one way to communicate.

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

/// One way to communicate, complete with limits (`struct fi_info`).
///
/// Plain data. As a hint (inside [`Hints`]) a zero, an empty set, `None` or `Unspec` means "any".
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Info {
    /// What can be done.
    pub caps: Caps,
    /// What the application has to do.
    pub mode: Mode,
    /// The format of addresses.
    pub addr_format: AddrFormat,
    /// The local address.
    pub src_addr: Option<Address>,
    /// The peer's address.
    pub dest_addr: Option<Address>,
    /// A connection request or a passive endpoint that this description belongs to; 0 for none.
    pub handle: u64,
    /// Sending.
    pub tx_attr: TxAttr,
    /// Receiving.
    pub rx_attr: RxAttr,
    /// The endpoint.
    pub ep_attr: EpAttr,
    /// The domain.
    pub domain_attr: DomainAttr,
    /// The fabric.
    pub fabric_attr: FabricAttr,
    /// The network interface, where there is one.
    pub nic: Option<Nic>,
    origin: Origin,
}

impl Info {
    /// Opens the domain, and the fabric that it belongs to (fi_fabric(3), fi_domain(3)).
    ///
    /// # Errors
    /// [`Errno::NoDev`] for an `Info` that was made by hand, or out of one that was; the
    /// provider's own errors.
    pub fn open(&self) -> Result<Arc<dyn Domain>, Error> {
        self.fabric()?.domain(self)
    }

    /// Opens the fabric alone (fi_fabric(3)): for event queues, and domains that have them in
    /// common.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn fabric(&self) -> Result<Arc<dyn Fabric>, Error> {
        let provider = self.origin.provider.as_ref().ok_or_else(|| {
            let what = "an Info that no registry has handed out cannot be opened";
            Error::new(Errno::NoDev, what)
        })?;
        provider.fabric(self)
    }

    /// The environment that discovery read, for the provider to read its parameters from; one
    /// without variables in an `Info` that was made by hand.
    pub fn params(&self) -> &Params {
        &self.origin.params
    }

    /// What the application has promised about its threads; [`Threading::Safe`] without a promise.
    ///
    /// Only [`Hints::promise_threading`] makes a promise: a provider may leave out locks on the
    /// strength of it, never on that of `domain_attr.threading`, which safe code can write.
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
