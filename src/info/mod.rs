//! [`Info`]: the description of a fabric, a domain and an endpoint, which discovery returns.

mod attr;
mod candidate;
mod hints;
mod origin;

pub use attr::{
    COMP_ORDER_DATA, COMP_ORDER_STRICT, DomainAttr, EpAttr, EpType, FabricAttr, MemTagFormat, Nic,
    PciAddress, Progress, Protocol, ResourceMgmt, RxAttr, Threading, TrafficClass, TxAttr, Version,
};
pub use candidate::{Candidate, Mismatch};
pub use hints::Hints;

use std::any::Any;
use std::sync::Arc;

use crate::param::Params;
use crate::{AddrFormat, Address, Caps, Mode};
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

    /// Returns the provider that discovery has set.
    pub(crate) fn provider(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.origin.provider.as_deref()
    }

    /// Sets the provider, the parameters, and the threading promise of the request.
    pub(crate) fn set_origin(
        &mut self,
        provider: Arc<dyn Any + Send + Sync>,
        params: &Params,
        request: &Self,
    ) {
        self.origin = Origin {
            provider: Some(provider),
            params: params.clone(),
            threading: request.threading_promise(),
        };
    }
}
