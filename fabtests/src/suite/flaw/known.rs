//! Which endpoint with a defect is around one that an event names: programs compare them with their
//! own.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use selvedge::Endpoint;
use selvedge::eq::{ErrEntry, Event};

use super::endpoint::FlawedEndpoint;

/// The endpoints of this process. A fabric may be opened more than once: the queue of one tells of
/// the endpoints of another.
pub(super) static KNOWN: Known = Known(Mutex::new(Vec::new()));

#[derive(Debug)]
pub(super) struct Known(Mutex<Vec<Weak<FlawedEndpoint>>>);

impl Known {
    pub(super) fn add(&self, endpoint: &Arc<FlawedEndpoint>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(endpoint));
    }

    fn around(&self, inner: Arc<dyn Endpoint>) -> Arc<dyn Endpoint> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = all.iter().filter_map(Weak::upgrade);
        match all.find(|own| own.is_around(&inner)) {
            Some(own) => own,
            None => inner,
        }
    }

    pub(super) fn event(&self, event: Event) -> Event {
        match event {
            Event::Connected { ep, data } => Event::Connected {
                ep: self.around(ep),
                data,
            },
            Event::Shutdown { ep } => Event::Shutdown {
                ep: self.around(ep),
            },
            other => other,
        }
    }

    pub(super) fn error(&self, mut error: ErrEntry) -> ErrEntry {
        error.ep = error.ep.map(|ep| self.around(ep));
        error
    }
}
