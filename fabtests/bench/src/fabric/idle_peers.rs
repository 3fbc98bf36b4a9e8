//! Idle peers: connected endpoints that send no messages. The measured endpoint's progress includes
//! them.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use selvedge::{Address, AddressVector, Bindings, CompletionQueue, Endpoint, Errno, Info, av, cq};

use super::messages::message_api::channel_tag;
use super::posting::send_empty;

/// Tag of the message that connects an idle peer; no benchmark uses it.
pub(super) const CONNECT_TAG: u64 = channel_tag(1 << 33);

/// Endpoints of this process that are connected with the other process's
/// [`BenchEndpoint`](super::BenchEndpoint).
#[derive(Debug)]
pub(super) struct IdlePeers {
    eps: Vec<Arc<dyn Endpoint>>,
    cq: Arc<dyn CompletionQueue>,
    av: Arc<dyn AddressVector>,
}

impl IdlePeers {
    /// Opens `count` endpoints in a new domain.
    ///
    /// # Errors
    /// The provider's error.
    pub(super) fn open(info: &Info, count: usize) -> anyhow::Result<Self> {
        let domain = info.open()?;
        let cq = domain.cq(&cq::Attr::with_size(count))?;
        let av = domain.av(&av::Attr::default())?;
        let open = |number| {
            let bindings = Bindings::new(Arc::clone(&cq), Arc::clone(&av));
            let ep = domain.endpoint(info, bindings);
            ep.with_context(|| format!("cannot open idle peer {number} of {count}"))
        };
        let eps = (1..=count).map(open).collect::<Result<_, _>>()?;
        Ok(Self { eps, cq, av })
    }

    /// Sends one message from each endpoint to `peer`. Calls `meanwhile` repeatedly until all sends
    /// have completed.
    ///
    /// # Errors
    /// The provider's error, or an error of `meanwhile`.
    pub(super) fn connect_to(
        &self,
        peer: &Address,
        mut meanwhile: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let peer = self.av.insert_one(peer)?;
        for ep in &self.eps {
            send_empty(&**ep, peer, CONNECT_TAG)
                .context("cannot send an idle peer's first message")?;
        }
        let mut sent = 0;
        while sent < self.eps.len() {
            sent += match self.cq.read(&mut [cq::Entry::default()]) {
                Err(Errno::Avail) => bail!(
                    "cannot send an idle peer's first message: {:?}",
                    self.cq.read_err()?
                ),
                read => read?,
            };
            meanwhile()?;
        }
        Ok(())
    }
}
