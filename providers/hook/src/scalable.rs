//! Scalable endpoints with hooks. Their contexts are endpoints like others.

use std::fmt;
use std::sync::Arc;

use selvedge::{Address, Bindings, Endpoint, Error, Info, Result, ScalableEndpoint};

use crate::call::Args;
use crate::endpoint::HookedEndpoint;
use crate::provider::At;

pub(crate) struct HookedScalable {
    inner: Arc<dyn ScalableEndpoint>,
    at: At,
}

impl HookedScalable {
    pub(crate) fn new(inner: Arc<dyn ScalableEndpoint>, at: At) -> Self {
        Self { inner, at }
    }
}

impl ScalableEndpoint for HookedScalable {
    fn address(&self) -> Result<Address> {
        self.inner.address()
    }

    fn context(
        &self,
        index: usize,
        info: &Info,
        bind: Bindings,
    ) -> Result<Arc<dyn Endpoint>, Error> {
        let at = self.at.another();
        let what = |args: &mut Args| {
            args.num("index", index as u64);
        };
        let open = |bind| at.open("context", &what, || self.inner.context(index, info, bind));
        Ok(HookedEndpoint::open(&at, info, bind, open)?)
    }
}

impl Drop for HookedScalable {
    fn drop(&mut self) {
        self.at.close("scalable_ep_close");
    }
}

impl fmt::Debug for HookedScalable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
