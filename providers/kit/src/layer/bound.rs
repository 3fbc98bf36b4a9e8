//! `Layers`: replaces the layered objects in bindings by the objects below.

use std::sync::Arc;

use selvedge::trigger::{Action, CompletionTarget, Work};
use selvedge::{
    AddressVector, Bindings, CompletionQueue, Counter, Counters, Endpoint, EventQueue,
    LateBindings, SharedReceives,
};

use super::{AvLayer, CntrLayer, CqLayer, EndpointLayer, EqLayer, Layered, SrxLayer};

/// `Layers` names the layer of each kind of object that can be bound to another object. Its methods
/// replace layered objects by the objects below; an object without that layer stays as it is. `()`
/// is for layers that wrap none of these objects.
pub trait Layers: Sized + 'static {
    /// The layer of completion queues.
    type Cq: CqLayer;
    /// The layer of counters.
    type Cntr: CntrLayer;
    /// The layer of address vectors.
    type Av: AvLayer;
    /// The layer of event queues.
    type Eq: EqLayer;
    /// The layer of shared receives.
    type Srx: SrxLayer;
    /// The layer of endpoints.
    type Endpoint: EndpointLayer;

    /// Returns the counter below `cntr`.
    fn counter(cntr: &Arc<dyn Counter>) -> Arc<dyn Counter> {
        Layered::<_, Self::Cntr>::below(cntr)
    }

    /// Returns the event queue below `eq`.
    fn event_queue(eq: &Arc<dyn EventQueue>) -> Arc<dyn EventQueue> {
        Layered::<_, Self::Eq>::below(eq)
    }

    /// Returns the bindings of an endpoint, with each object replaced by the object below.
    fn bindings(mut bind: Bindings) -> Bindings {
        let (av, srx) = (
            Layered::<dyn AddressVector, Self::Av>::below,
            Layered::<dyn SharedReceives, Self::Srx>::below,
        );
        bind.tx_cq = Layered::<_, Self::Cq>::below(&bind.tx_cq);
        bind.rx_cq = Layered::<_, Self::Cq>::below(&bind.rx_cq);
        bind.av = bind.av.as_ref().map(av);
        bind.eq = bind.eq.as_ref().map(Self::event_queue);
        bind.srx = bind.srx.as_ref().map(srx);
        bind.cntrs = counters::<Self>(&bind.cntrs);
        bind
    }

    /// Returns the late bindings of an endpoint, with each object replaced by the object below.
    fn late_bindings(late: &LateBindings) -> LateBindings {
        let cq = |(cq, is_selective): &(Arc<dyn CompletionQueue>, bool)| {
            (Layered::<_, Self::Cq>::below(cq), *is_selective)
        };
        LateBindings {
            tx_cq: late.tx_cq.as_ref().map(cq),
            rx_cq: late.rx_cq.as_ref().map(cq),
            cntrs: counters::<Self>(&late.cntrs),
        }
    }

    /// Calls `queue` with `work`, its counters and its endpoint replaced by the objects below.
    /// Returns the result of `queue`.
    fn work<R>(work: &Work<'_>, queue: impl FnOnce(&Work<'_>) -> R) -> R {
        let (cntr, threshold) = (&Self::counter(work.cntr), work.threshold);
        let queue = |action| {
            queue(&Work {
                cntr,
                threshold,
                action,
            })
        };
        match work.action {
            Action::Set(at, value) => queue(Action::Set(&Self::counter(at), value)),
            Action::Add(at, value) => queue(Action::Add(&Self::counter(at), value)),
            Action::Post {
                ep,
                op,
                flags,
                done,
            } => {
                let target = match done {
                    CompletionTarget::Counter(cntr) => cntr.map(Self::counter),
                    CompletionTarget::Endpoint => None,
                };
                queue(Action::Post {
                    ep: &Layered::<dyn Endpoint, Self::Endpoint>::below(ep),
                    op,
                    flags,
                    done: match done {
                        CompletionTarget::Counter(_) => CompletionTarget::Counter(target.as_ref()),
                        CompletionTarget::Endpoint => CompletionTarget::Endpoint,
                    },
                })
            }
        }
    }
}

impl Layers for () {
    type Cq = ();
    type Cntr = ();
    type Av = ();
    type Eq = ();
    type Srx = ();
    type Endpoint = ();
}

fn counters<L: Layers>(cntrs: &Counters) -> Counters {
    let mut below = cntrs.clone();
    for cntr in [
        &mut below.send,
        &mut below.recv,
        &mut below.read,
        &mut below.write,
        &mut below.remote_read,
        &mut below.remote_write,
    ] {
        *cntr = cntr.as_ref().map(L::counter);
    }
    below
}
