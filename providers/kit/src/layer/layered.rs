//! An object with a layer around it, and `Layers`, which replaces layered objects in bindings by
//! the objects below.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use selvedge::trigger::{Action, CompletionTarget, Work};
use selvedge::{
    AddressVector, Bindings, CompletionQueue, Counter, Counters, Endpoint, EventQueue,
    LateBindings, SharedReceives,
};

/// A layer around one object. `()` is a layer that changes nothing.
pub trait ObjectLayer: Send + Sync + 'static {
    /// The layers of the same kind around the objects that the object is bound to.
    type Layers: Layers;

    /// Closes the layer when the handle of the object is dropped. The object below still exists.
    fn close(&self) {}
}

impl ObjectLayer for () {
    type Layers = ();
}

/// An object with a layer around it.
pub struct Layered<T: ?Sized, L: ObjectLayer> {
    // Dropped before the layer, which may own memory that it has lent to the object.
    pub(super) below: Arc<T>,
    pub(super) layer: L,
}

impl<T: ?Sized, L: ObjectLayer> Layered<T, L> {
    /// Puts a layer around an object.
    pub fn new(below: Arc<T>, layer: L) -> Arc<Self> {
        Arc::new(Self { below, layer })
    }

    /// The layer.
    pub fn layer(&self) -> &L {
        &self.layer
    }
}

impl<T: ?Sized + Object, L: ObjectLayer> Layered<T, L> {
    /// Downcasts an object to one with this layer, if it has this layer.
    pub fn downcast(object: &T) -> Option<&Self> {
        object.as_any().downcast_ref()
    }

    /// The object below the layer; `object` itself if it does not have this layer.
    pub fn below(object: &Arc<T>) -> Arc<T> {
        let below = Self::downcast(object).map_or(object, |layered| &layered.below);
        Arc::clone(below)
    }
}

impl<T: ?Sized, L: ObjectLayer> Drop for Layered<T, L> {
    fn drop(&mut self) {
        self.layer.close();
    }
}

impl<T: ?Sized + fmt::Debug, L: ObjectLayer> fmt::Debug for Layered<T, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.below.fmt(f)
    }
}

/// An object of the contract, as a trait object.
pub trait Object: 'static {
    /// The object as `Any`, for a downcast.
    fn as_any(&self) -> &dyn Any;
}

/// `Layers` names the layer of each kind of object that can be bound to another object. Its methods
/// replace layered objects by the objects below; an object without that layer stays as it is. `()`
/// is for layers that wrap none of these objects.
pub trait Layers: Sized + 'static {
    /// The layer of completion queues.
    type Cq: ObjectLayer;
    /// The layer of counters.
    type Cntr: ObjectLayer;
    /// The layer of address vectors.
    type Av: ObjectLayer;
    /// The layer of event queues.
    type Eq: ObjectLayer;
    /// The layer of shared receives.
    type Srx: ObjectLayer;
    /// The layer of endpoints.
    type Endpoint: ObjectLayer;

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
