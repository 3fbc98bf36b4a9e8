//! A registry of the endpoints with a layer, by which events name these instead of the endpoints
//! below. A provider's queues report the provider's endpoints, but programs compare the reported
//! endpoints with those that they have opened.
//!
//! The registry has the endpoints of the whole process. A fabric may be opened more than once, and
//! the queue of one handle reports the endpoints of another.

use std::any::TypeId;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use selvedge::eq::{ErrEntry, Event};
use selvedge::{Endpoint, PassiveEndpoint};

use super::layered::{Layered, Layers, ObjectLayer};

static ENDPOINTS: LayeredObjects<dyn Endpoint> = LayeredObjects(Mutex::new(Vec::new()));
static PASSIVE: LayeredObjects<dyn PassiveEndpoint> = LayeredObjects(Mutex::new(Vec::new()));

struct LayeredObjects<T: ?Sized>(Mutex<Vec<Entry<T>>>);

struct Entry<T: ?Sized> {
    /// The kind of the object's layer.
    layers: TypeId,
    /// The address of the object below, which lives as long as the object with the layer.
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

    /// The object with the layer, or `below` itself if there is none.
    fn layered_or_below<L: Layers>(&self, below: Arc<T>) -> Arc<T> {
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

impl<L: ObjectLayer> Layered<dyn Endpoint, L>
where
    Self: Endpoint,
{
    /// Makes events of queues with a layer of the same kind name this endpoint instead of the one
    /// below. Only endpoints that are bound to an event queue may call this: the safe layer
    /// ([`selvedge::owned`]) needs the only handle of its endpoints, and this call keeps a weak
    /// one.
    pub fn name_in_events(self: &Arc<Self>) {
        let layered: Arc<dyn Endpoint> = Arc::clone(self) as _;
        ENDPOINTS.add::<L::Layers>(&self.below, Arc::downgrade(&layered));
    }
}

impl<L: ObjectLayer> Layered<dyn PassiveEndpoint, L>
where
    Self: PassiveEndpoint,
{
    /// Makes events of queues with a layer of the same kind name this endpoint instead of the one
    /// below.
    pub fn name_in_events(self: &Arc<Self>) {
        let layered: Arc<dyn PassiveEndpoint> = Arc::clone(self) as _;
        PASSIVE.add::<L::Layers>(&self.below, Arc::downgrade(&layered));
    }
}

/// Replaces the endpoints that an event names by those with the layer.
pub(super) fn replace_in_event<L: Layers>(event: Event) -> Event {
    match event {
        Event::Connected { ep, data } => Event::Connected {
            ep: ENDPOINTS.layered_or_below::<L>(ep),
            data,
        },
        Event::Shutdown { ep } => Event::Shutdown {
            ep: ENDPOINTS.layered_or_below::<L>(ep),
        },
        Event::ConnReq { pep, info, data } => Event::ConnReq {
            pep: PASSIVE.layered_or_below::<L>(pep),
            info,
            data,
        },
        other => other,
    }
}

/// Replaces the endpoint that an error names by the one with the layer.
pub(super) fn replace_in_error<L: Layers>(mut error: ErrEntry) -> ErrEntry {
    error.ep = error.ep.map(|ep| ENDPOINTS.layered_or_below::<L>(ep));
    error
}
