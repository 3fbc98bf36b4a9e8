//! Queues and counters that an endpoint is bound to after it was opened (fi_ep_bind(3) after
//! fi_enable(3)).

use std::sync::Arc;

use selvedge::{CompletionQueue, Errno, Error, LateBindings};

use super::bound::{Bound, bound_cq};
use super::{Cntrs, Drivers, Ep, RX_CQ, TX_CQ};
use crate::cq::{CqRing, Progress};
use crate::domain::identity::DomainId;
use crate::fork_guard::ForkGuarded;

/// The kit's own queues and counters of [`LateBindings`].
#[derive(Debug)]
struct Late {
    /// The queue of sends, and whether it reports every operation.
    tx_cq: Option<(Arc<CqRing>, bool)>,
    /// The queue of receives, as `tx_cq`.
    rx_cq: Option<(Arc<CqRing>, bool)>,
    cntrs: Cntrs,
}

/// Whether an endpoint can be bound to a counter of its peers' accesses after it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteCounters {
    /// Yes, because the endpoint sees every access of its peers.
    Late,
    /// No, because peers learn when they connect whether their accesses are counted.
    BeforeOpen,
}

impl Late {
    fn resolve(
        late: &LateBindings,
        domain: &DomainId,
        remote: RemoteCounters,
    ) -> Result<Self, Error> {
        let counts_peers = late.cntrs.remote_read.is_some() || late.cntrs.remote_write.is_some();
        if counts_peers && remote == RemoteCounters::BeforeOpen {
            let message = "a counter of FI_REMOTE_READ or FI_REMOTE_WRITE: peers learn when they \
                        connect whether their accesses are counted; bind the counter before the \
                        endpoint is enabled";
            return Err(Error::new(Errno::OpBadState, message));
        }
        let queue = |bound: &Option<(Arc<dyn CompletionQueue>, bool)>, name| {
            let Some((cq, is_selective)) = bound else {
                return Ok(None);
            };
            Ok::<_, Error>(Some((bound_cq(cq, domain, name)?, !is_selective)))
        };
        Ok(Self {
            tx_cq: queue(&late.tx_cq, TX_CQ)?,
            rx_cq: queue(&late.rx_cq, RX_CQ)?,
            cntrs: Cntrs::resolve(&late.cntrs, domain)?,
        })
    }

    fn bound(&self) -> Bound {
        let cqs = [&self.tx_cq, &self.rx_cq].into_iter().flatten();
        Bound {
            cqs: cqs.map(|(cq, _)| Arc::clone(cq)).collect(),
            cntrs: self.cntrs.iter().map(Arc::clone).collect(),
        }
    }
}

impl Ep {
    fn bind_late(&mut self, late: &Late) {
        if let Some((cq, reports_all)) = &late.tx_cq {
            (self.tx_cq, self.tx_all) = (Arc::clone(cq), *reports_all);
        }
        if let Some((cq, reports_all)) = &late.rx_cq {
            (self.rx_cq, self.rx_all) = (Arc::clone(cq), *reports_all);
        }
        self.cntrs.add(&late.cntrs);
        let (tx_cq, rx_cq) = (&self.tx_cq, &self.rx_cq);
        self.deferred_ops.bind(tx_cq, rx_cq, self.cntrs.clone());
    }

    /// Checks that the endpoint has no counter yet for the operations of `late`'s counters.
    fn check_late(&self, late: &Late) -> Result<(), Error> {
        if self.cntrs.have_any_of(&late.cntrs) {
            let message = "a counter: the endpoint has one for these operations already";
            Err(Error::new(Errno::Inval, message))
        } else {
            Ok(())
        }
    }
}

impl Drivers {
    /// Implements [`selvedge::Endpoint::bind_late`] for an endpoint with this `state`.
    ///
    /// # Errors
    /// As [`selvedge::Endpoint::bind_late`]; the system's error if there is no memory to wait for
    /// the bound objects.
    pub fn bind_late<T: AsMut<Ep>>(
        &self,
        late: &LateBindings,
        remote: RemoteCounters,
        progress: &Arc<dyn Progress>,
        state: &ForkGuarded<T>,
    ) -> Result<(), Error> {
        let late = Late::resolve(late, self.deferred_ops.domain(), remote)?;
        let locked = || {
            let failed = |errno| Error::new(errno, "binding an open endpoint");
            state.lock().map_err(failed)
        };
        locked()?.as_mut().check_late(&late)?;
        // `attach_late` waits for progress, which takes the lock, so this thread must not hold it.
        self.attach_late(late.bound(), progress)?;
        let mut state = locked()?;
        let ep = state.as_mut();
        ep.bind_late(&late);
        // A thread that is parked at an old queue must also make progress for the new ones.
        ep.wake();
        Ok(())
    }
}
