//! [`Domain`] wraps a domain of the libfabric library and opens objects from it.

#![expect(
    unsafe_code,
    reason = "the promises of the domain trait and of its caller"
)]

mod av;
mod cntr;
mod cq;
mod descriptor;
mod mr;
mod state;

pub(crate) use av::Av;
pub(crate) use cntr::bound_cntr;
pub(crate) use cq::Cq;
pub(crate) use descriptor::Words;
pub(crate) use state::DomainState;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use selvedge::{
    AddressVector, Bindings, CompletionQueue, Counter, EpOption, EpOptionName, Error, Info, IovMut,
    MemoryRegion, MrMode, Result, atomic,
};
use selvedge_kit::av::check_plain;

use self::cntr::Cntr;
use self::mr::Region;
use crate::endpoint::{Endpoint, query_option};
use crate::fabric::FabricState;

/// A domain of the libfabric library.
pub(crate) struct Domain {
    inner: Arc<DomainState>,
    /// The endpoints, for providers that bind a region to an endpoint.
    endpoints: Mutex<Vec<Weak<Endpoint>>>,
}

impl Domain {
    pub(crate) fn open(fabric: &Arc<FabricState>, info: &Info) -> Result<Self, Error> {
        Ok(Self {
            inner: Arc::new(DomainState::open(fabric, info)?),
            endpoints: Mutex::default(),
        })
    }

    fn add_endpoint(&self, endpoint: &Arc<Endpoint>) {
        let mut endpoints = self.endpoints();
        endpoints.retain(|other| other.strong_count() > 0);
        endpoints.push(Arc::downgrade(endpoint));
    }

    /// The open endpoints.
    fn open_endpoints(&self) -> Vec<Arc<Endpoint>> {
        self.endpoints().iter().filter_map(Weak::upgrade).collect()
    }

    fn endpoints(&self) -> MutexGuard<'_, Vec<Weak<Endpoint>>> {
        self.endpoints
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: libfabric promises for its queues and regions what the trait requires: a completion
// carries the context of its operation, which is then complete, and a region is closed when
// `fi_close` returns. The user who named the library by `FI_OFI_LIBRARY` vouches that it keeps this
// promise.
unsafe impl selvedge::Domain for Domain {
    fn cq(&self, attr: &selvedge::cq::Attr) -> Result<Arc<dyn CompletionQueue>, Error> {
        Ok(Arc::new(Cq::open(&self.inner, attr)?))
    }

    fn cntr(&self, attr: &selvedge::cntr::Attr) -> Result<Arc<dyn Counter>, Error> {
        Ok(Arc::new(Cntr::open(&self.inner, attr)?))
    }

    fn av(&self, attr: &selvedge::av::Attr) -> Result<Arc<dyn AddressVector>, Error> {
        check_plain(attr, self)?;
        Ok(Arc::new(Av::open(&self.inner, attr)?))
    }

    fn endpoint(&self, info: &Info, bind: Bindings) -> Result<Arc<dyn selvedge::Endpoint>, Error> {
        let endpoint = Endpoint::open(&self.inner, info, bind)?;
        if self.inner.mr_mode.contains(MrMode::ENDPOINT) {
            self.add_endpoint(&endpoint);
        }
        Ok(endpoint)
    }

    fn option(&self, info: &Info, name: EpOptionName) -> Result<EpOption> {
        query_option(&self.inner, info, name)
    }

    fn mr_mode(&self) -> MrMode {
        self.inner.mr_mode
    }

    unsafe fn reg(
        &self,
        region: &[IovMut],
        attr: &selvedge::mr::Attr,
    ) -> Result<Arc<dyn MemoryRegion>, Error> {
        // SAFETY: passed on from the caller.
        Ok(Arc::new(unsafe {
            Region::open(&self.inner, self.open_endpoints(), region, attr)
        }?))
    }

    fn query_atomic(
        &self,
        family: atomic::Family,
        datatype: atomic::Datatype,
        op: atomic::Op,
    ) -> Result<atomic::Attr> {
        self.inner.query_atomic(family, datatype, op)
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.inner.id.title())
    }
}
