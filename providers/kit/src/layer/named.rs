//! The objects with a layer that events name: a provider's queues report its own objects, and
//! programs compare those with the objects that they have opened.
//!
//! The registry has the endpoints of the whole process. A fabric may be opened more than once, and
//! the queue of one handle reports the endpoints of another.

use std::any::TypeId;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use selvedge::eq::{ErrEntry, Event};
use selvedge::{Endpoint, PassiveEndpoint};

use super::{EndpointLayer, Layered, Layers, PassiveLayer};

static ENDPOINTS: LayeredObjects<dyn Endpoint> = LayeredObjects(Mutex::new(Vec::new()));
static PASSIVE: LayeredObjects<dyn PassiveEndpoint> = LayeredObjects(Mutex::new(Vec::new()));

struct LayeredObjects<T: ?Sized>(Mutex<Vec<Entry<T>>>);

struct Entry<T: ?Sized> {
    /// The kind of its layer.
    layers: TypeId,
    /// The address of the object below, which lives as long as the one with the layer.
    below: usize,
    layered: Weak<T>,
}

fn address<T: ?Sized>(object: &Arc<T>) -> usize {
    Arc::as_ptr(object).addr()
}

impl<T: ?Sized> LayeredObjects<T> {
    fn add<L: Layers>(&self, below: &Arc<T>, layered: Weak<T>) {
        let mut all = self.lock();
        all.retain(|it| it.layered.strong_count() > 0);
        all.push(Entry {
            layers: TypeId::of::<L>(),
            below: address(below),
            layered,
        });
    }

    /// The object with the layer, or `below` itself.
    fn layered<L: Layers>(&self, below: Arc<T>) -> Arc<T> {
        let matches =
            |it: &&Entry<T>| (it.layers, it.below) == (TypeId::of::<L>(), address(&below));
        let all = self.lock();
        let layered = all
            .iter()
            .filter(matches)
            .find_map(|it| it.layered.upgrade());
        layered.unwrap_or(below)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L: EndpointLayer> Layered<dyn Endpoint, L> {
    /// Makes events of queues with a layer of the same kind name this endpoint instead of the one
    /// below. It is for endpoints that are bound to an event queue: of other endpoints, the safe
    /// layer ([`selvedge::owned`]) needs the only handle, and this call keeps a weak one.
    pub fn name_in_events(self: &Arc<Self>) {
        let layered: Arc<dyn Endpoint> = Arc::clone(self) as _;
        ENDPOINTS.add::<L::Layers>(&self.below, Arc::downgrade(&layered));
    }
}

impl<L: PassiveLayer> Layered<dyn PassiveEndpoint, L> {
    /// Makes events of queues with a layer of the same kind name this endpoint instead of the one
    /// below.
    pub fn name_in_events(self: &Arc<Self>) {
        let layered: Arc<dyn PassiveEndpoint> = Arc::clone(self) as _;
        PASSIVE.add::<L::Layers>(&self.below, Arc::downgrade(&layered));
    }
}

/// The event, with the objects of the layer.
pub(super) fn event<L: Layers>(event: Event) -> Event {
    match event {
        Event::Connected { ep, data } => Event::Connected {
            ep: ENDPOINTS.layered::<L>(ep),
            data,
        },
        Event::Shutdown { ep } => Event::Shutdown {
            ep: ENDPOINTS.layered::<L>(ep),
        },
        Event::ConnReq { pep, info, data } => Event::ConnReq {
            pep: PASSIVE.layered::<L>(pep),
            info,
            data,
        },
        other => other,
    }
}

/// The error, with the endpoint of the layer.
pub(super) fn error<L: Layers>(mut error: ErrEntry) -> ErrEntry {
    error.ep = error.ep.map(|ep| ENDPOINTS.layered::<L>(ep));
    error
}
