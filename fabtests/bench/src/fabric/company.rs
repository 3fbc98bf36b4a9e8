//! Peers that are connected and say nothing: what an endpoint has to look after beside the one that
//! it talks to.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use selvedge::{Address, AddressVector, Bindings, CompletionQueue, Endpoint, Errno, Info, av, cq};

use super::burden::lane_tag;
use super::wire::send_nothing;

/// The tag of a greeting, which no benchmark uses.
pub(super) const GREETING: u64 = lane_tag(1 << 33);

/// Endpoints beside that of a station, which are acquainted with the station of the other process.
#[derive(Debug)]
pub(super) struct Company {
    eps: Vec<Arc<dyn Endpoint>>,
    cq: Arc<dyn CompletionQueue>,
    av: Arc<dyn AddressVector>,
}

impl Company {
    /// Opens so many endpoints in a domain of their own.
    ///
    /// # Errors
    /// What the provider says.
    pub(super) fn open(info: &Info, count: usize) -> anyhow::Result<Self> {
        let domain = info.open()?;
        let cq = domain.cq(&cq::Attr::with_size(count))?;
        let av = domain.av(&av::Attr::default())?;
        let open = |number| {
            let bindings = Bindings::new(Arc::clone(&cq), Arc::clone(&av));
            let ep = domain.endpoint(info, bindings);
            ep.with_context(|| format!("cannot open quiet peer {number} of {count}"))
        };
        let eps = (1..=count).map(open).collect::<Result<_, _>>()?;
        Ok(Self { eps, cq, av })
    }

    /// Has each send a greeting, and ends when all are on their way; `meanwhile` is called while they
    /// are not.
    ///
    /// # Errors
    /// What the provider or `meanwhile` says.
    pub(super) fn greet(
        &self,
        whom: &Address,
        mut meanwhile: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let whom = self.av.insert_one(whom)?;
        for ep in &self.eps {
            send_nothing(&**ep, whom, GREETING).context("a quiet peer cannot greet")?;
        }
        let mut sent = 0;
        while sent < self.eps.len() {
            sent += match self.cq.read(&mut [cq::Entry::default()]) {
                Err(Errno::Avail) => bail!("a quiet peer cannot greet: {:?}", self.cq.read_err()?),
                read => read?,
            };
            meanwhile()?;
        }
        Ok(())
    }
}
