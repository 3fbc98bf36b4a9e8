//! The queues and counters that an endpoint is bound to, as this package's own.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use selvedge::{CompletionQueue, Counter, Counters, Errno, Error};

use crate::cntr::Cntr;
use crate::cq::{CqRing, Progress};

/// The counters of an endpoint, resolved.
#[derive(Debug)]
pub(super) struct Cntrs {
    pub(super) send: Option<Arc<Cntr>>,
    pub(super) recv: Option<Arc<Cntr>>,
    pub(super) read: Option<Arc<Cntr>>,
    pub(super) write: Option<Arc<Cntr>>,
    pub(super) remote_read: Option<Arc<Cntr>>,
    pub(super) remote_write: Option<Arc<Cntr>>,
}

/// The queues and counters that drive an endpoint, apart from it: detaching waits for progress,
/// which takes the endpoint's own lock.
#[derive(Debug)]
pub struct Drivers {
    pub(super) cqs: [Arc<CqRing>; 2],
    pub(super) cntrs: Vec<Arc<Cntr>>,
}

impl Drivers {
    /// Has the queues and counters drive `progress`.
    ///
    /// # Errors
    /// The system's, when memory is too short to wait for it; it is attached nowhere then.
    pub fn attach(&self, progress: &Arc<dyn Progress>) -> Result<(), Error> {
        let attached = self
            .cqs
            .iter()
            .try_for_each(|cq| cq.attach(progress))
            .and_then(|()| self.cntrs.iter().try_for_each(|cntr| cntr.attach(progress)));
        attached.inspect_err(|_| self.detach(progress))
    }

    /// Ends what [`Self::attach`] began; no call of `progress` from there is running afterwards.
    pub fn detach(&self, progress: &Arc<dyn Progress>) {
        for cq in &self.cqs {
            cq.detach(progress);
        }
        for cntr in &self.cntrs {
            cntr.detach(progress);
        }
    }
}

impl Cntrs {
    /// # Errors
    /// [`Errno::Inval`] for a counter of another provider.
    pub(super) fn resolve(bound: &Counters) -> Result<Self, Error> {
        Ok(Self {
            send: own_cntr(bound.send.as_ref(), "send")?,
            recv: own_cntr(bound.recv.as_ref(), "recv")?,
            read: own_cntr(bound.read.as_ref(), "read")?,
            write: own_cntr(bound.write.as_ref(), "write")?,
            remote_read: own_cntr(bound.remote_read.as_ref(), "remote_read")?,
            remote_write: own_cntr(bound.remote_write.as_ref(), "remote_write")?,
        })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Cntr>> {
        let all = [
            &self.send,
            &self.recv,
            &self.read,
            &self.write,
            &self.remote_read,
            &self.remote_write,
        ];
        all.into_iter().flatten()
    }
}

pub(super) fn own_cq(cq: &Arc<dyn CompletionQueue>, name: &str) -> Result<Arc<CqRing>, Error> {
    let any: Arc<dyn Any + Send + Sync> = Arc::<dyn CompletionQueue>::clone(cq);
    any.downcast().map_err(|_| foreign(name, cq))
}

fn own_cntr(bound: Option<&Arc<dyn Counter>>, name: &str) -> Result<Option<Arc<Cntr>>, Error> {
    let Some(cntr) = bound else {
        return Ok(None);
    };
    let any: Arc<dyn Any + Send + Sync> = Arc::<dyn Counter>::clone(cntr);
    let own = any.downcast();
    own.map(Some).map_err(|_| foreign(name, cntr))
}

fn foreign(name: &str, cq: &dyn fmt::Debug) -> Error {
    let what = format!("endpoint: {name} {cq:?} was opened from another provider's domain");
    Error::new(Errno::Inval, what)
}
