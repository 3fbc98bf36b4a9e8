//! Endpoints under test that are contexts of scalable endpoints.

use std::sync::Arc;

use selvedge::{Bindings, FiAddr, Hints, av, cq};
use selvedge_testkit::endpoint::RawEndpoint;

use super::open::skip_missing;
use super::{Result, TestContext, TestEndpoint};

/// Number of bits of an address that select a receive context.
pub(crate) const RX_CTX_BITS: u32 = 6;

/// Hints for `count` contexts of both directions.
pub(crate) fn with_contexts(hints: Hints, count: usize) -> Hints {
    hints.edit(|info| {
        info.ep_attr.tx_ctx_cnt = count;
        info.ep_attr.rx_ctx_cnt = count;
    })
}

impl TestContext {
    /// Opens a scalable endpoint with `count` contexts. Returns the contexts, and the address of
    /// each process's scalable endpoint.
    ///
    /// # Errors
    /// As [`TestContext::open_endpoint`].
    pub(crate) fn contexts(&mut self, count: usize) -> Result<(Vec<TestEndpoint>, Vec<FiAddr>)> {
        self.contexts_with(count, |_, _| {})
    }

    /// As [`TestContext::contexts`]; `change` changes the bindings of each context.
    ///
    /// # Errors
    /// As [`TestContext::open_endpoint`].
    pub(super) fn contexts_with(
        &mut self,
        count: usize,
        change: impl Fn(usize, &mut Bindings),
    ) -> Result<(Vec<TestEndpoint>, Vec<FiAddr>)> {
        let info = self.info_for(&with_contexts(self.hints(), count))?;
        let domain = info.open()?;
        let sep = domain.scalable_endpoint(&info).map_err(skip_missing)?;
        let mut attr = av::Attr::default();
        attr.rx_ctx_bits = RX_CTX_BITS;
        let av = domain.av(&attr)?;
        let mut endpoints = Vec::new();
        for index in 0..count {
            let cq = domain.cq(&cq::Attr::default())?;
            let mut bind = Bindings::new(Arc::clone(&cq), Arc::clone(&av));
            change(index, &mut bind);
            let ep = sep.context(index, &info, bind)?;
            let api = Box::new(RawEndpoint::new(ep, cq, Some(Arc::clone(&av))));
            let endpoint = TestEndpoint::new(api, Arc::clone(&domain), info.clone(), self.me, None);
            self.endpoints.push(endpoint.clone());
            endpoints.push(endpoint);
        }
        let names: Vec<String> = self.exchange(&sep.address()?.to_string())?;
        let mut peers = Vec::new();
        for name in &names {
            peers.push(av.insert_one(&name.parse()?)?);
        }
        // No process sends before all have inserted the addresses: an unknown sender has no index.
        self.barrier()?;
        Ok((endpoints, peers))
    }
}
