//! Which object with a layer around it an event names: queues of a provider tell of its own objects,
//! and programs compare those with what they have opened.
//!
//! The endpoints of the whole process are here. A fabric may be opened more than once: the queue of
//! one tells of the endpoints of another.

use std::any::TypeId;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use selvedge::eq::{ErrEntry, Event};
use selvedge::{Endpoint, PassiveEndpoint};

use super::{EndpointLayer, Layered, Layers, PassiveLayer};

static ENDPOINTS: Named<dyn Endpoint> = Named(Mutex::new(Vec::new()));
static PASSIVE: Named<dyn PassiveEndpoint> = Named(Mutex::new(Vec::new()));

struct Named<T: ?Sized>(Mutex<Vec<Entry<T>>>);

struct Entry<T: ?Sized> {
    /// The kind of its layer.
    layers: TypeId,
    /// The address of the object below, which is there as long as the one around it.
    below: usize,
    around: Weak<T>,
}

fn address<T: ?Sized>(object: &Arc<T>) -> usize {
    Arc::as_ptr(object).addr()
}

impl<T: ?Sized> Named<T> {
    fn add<L: Layers>(&self, below: &Arc<T>, around: Weak<T>) {
        let mut all = self.lock();
        all.retain(|it| it.around.strong_count() > 0);
        all.push(Entry {
            layers: TypeId::of::<L>(),
            below: address(below),
            around,
        });
    }

    /// The object around this one, or itself.
    fn around<L: Layers>(&self, below: Arc<T>) -> Arc<T> {
        let is_it = |it: &&Entry<T>| (it.layers, it.below) == (TypeId::of::<L>(), address(&below));
        let all = self.lock();
        let around = all.iter().filter(is_it).find_map(|it| it.around.upgrade());
        around.unwrap_or(below)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L: EndpointLayer> Layered<dyn Endpoint, L> {
    /// Has events of queues with a layer of the same kind name this endpoint in the place of the one
    /// below. It is for endpoints that are bound to an event queue: of others the safe layer
    /// ([`selvedge::owned`]) wants the only handle, and this keeps a weak one.
    pub fn name_in_events(self: &Arc<Self>) {
        let around: Arc<dyn Endpoint> = Arc::clone(self) as _;
        ENDPOINTS.add::<L::Layers>(&self.below, Arc::downgrade(&around));
    }
}

impl<L: PassiveLayer> Layered<dyn PassiveEndpoint, L> {
    /// Has events of queues with a layer of the same kind name this endpoint in the place of the one
    /// below.
    pub fn name_in_events(self: &Arc<Self>) {
        let around: Arc<dyn PassiveEndpoint> = Arc::clone(self) as _;
        PASSIVE.add::<L::Layers>(&self.below, Arc::downgrade(&around));
    }
}

/// The event, with the objects of the layer.
pub(super) fn event<L: Layers>(event: Event) -> Event {
    match event {
        Event::Connected { ep, data } => Event::Connected {
            ep: ENDPOINTS.around::<L>(ep),
            data,
        },
        Event::Shutdown { ep } => Event::Shutdown {
            ep: ENDPOINTS.around::<L>(ep),
        },
        Event::ConnReq { pep, info, data } => Event::ConnReq {
            pep: PASSIVE.around::<L>(pep),
            info,
            data,
        },
        other => other,
    }
}

/// The error, with the endpoint of the layer.
pub(super) fn error<L: Layers>(mut error: ErrEntry) -> ErrEntry {
    error.ep = error.ep.map(|ep| ENDPOINTS.around::<L>(ep));
    error
}
