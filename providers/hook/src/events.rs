//! Event queues and passive endpoints with hooks, and which object of ours is around one that an
//! event names.

use std::any::Any;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use selvedge::eq::{ErrEntry, Event};
use selvedge::{Address, Endpoint, Errno, Error, EventQueue, PassiveEndpoint, Result};

use crate::call::Args;
use crate::endpoint::HookedEndpoint;
use crate::provider::{At, unwrapped};

/// The objects that events name. A fabric may be opened more than once: the queue of one tells of
/// the endpoints of another.
pub(crate) static KNOWN: Known = Known {
    endpoints: Mutex::new(Vec::new()),
    passive: Mutex::new(Vec::new()),
};

#[derive(Debug)]
pub(crate) struct Known {
    endpoints: Mutex<Vec<Weak<HookedEndpoint>>>,
    passive: Mutex<Vec<Weak<HookedPassive>>>,
}

impl Known {
    pub(crate) fn add_endpoint(&self, endpoint: &Arc<HookedEndpoint>) {
        let mut known = lock(&self.endpoints);
        known.retain(|known| known.strong_count() > 0);
        known.push(Arc::downgrade(endpoint));
    }

    pub(crate) fn add_passive(&self, passive: &Arc<HookedPassive>) {
        let mut known = lock(&self.passive);
        known.retain(|known| known.strong_count() > 0);
        known.push(Arc::downgrade(passive));
    }

    fn endpoint(&self, inner: Arc<dyn Endpoint>) -> Arc<dyn Endpoint> {
        let known = lock(&self.endpoints);
        let mut known = known.iter().filter_map(Weak::upgrade);
        match known.find(|own| Arc::ptr_eq(own.below(), &inner)) {
            Some(own) => own,
            None => inner,
        }
    }

    fn event(&self, event: Event) -> Event {
        match event {
            Event::Connected { ep, data } => Event::Connected {
                ep: self.endpoint(ep),
                data,
            },
            Event::Shutdown { ep } => Event::Shutdown {
                ep: self.endpoint(ep),
            },
            Event::ConnReq { pep, info, data } => {
                let known = lock(&self.passive);
                let mut known = known.iter().filter_map(Weak::upgrade);
                let own = known.find(|own| Arc::ptr_eq(&own.inner, &pep));
                let pep = own.map_or(pep, |own| own as Arc<dyn PassiveEndpoint>);
                Event::ConnReq { pep, info, data }
            }
            other => other,
        }
    }
}

pub(crate) struct HookedEq {
    inner: Arc<dyn EventQueue>,
    at: At,
}

impl HookedEq {
    pub(crate) fn new(inner: Arc<dyn EventQueue>, at: At) -> Self {
        Self { inner, at }
    }

    pub(crate) fn inner(eq: Arc<dyn EventQueue>) -> Arc<dyn EventQueue> {
        unwrapped(eq, |eq| eq as &dyn Any, |own: &Self| Arc::clone(&own.inner))
    }

    fn taken(&self, name: &'static str, run: impl FnOnce() -> Result<Event>) -> Result<Event> {
        let gave = |event: &Event| Some(format!("\"event\":\"{}\"", kind(event)));
        let event = self.at.gives(name, &|_| {}, gave, Err(Errno::Again), run)?;
        Ok(KNOWN.event(event))
    }
}

fn kind(event: &Event) -> &'static str {
    match event {
        Event::Notify { .. } => "notify",
        Event::ConnReq { .. } => "connreq",
        Event::Connected { .. } => "connected",
        Event::Shutdown { .. } => "shutdown",
        Event::JoinComplete { .. } => "join_complete",
        _ => "other",
    }
}

impl EventQueue for HookedEq {
    fn read(&self) -> Result<Event> {
        self.taken("eq_read", || self.inner.read())
    }

    fn peek(&self) -> Result<Event> {
        self.taken("eq_peek", || self.inner.peek())
    }

    fn read_err(&self) -> Result<ErrEntry> {
        let gave = |error: &ErrEntry| Some(format!("\"err\":{}", error.errno.as_raw()));
        let run = || self.inner.read_err();
        let mut error = self
            .at
            .gives("eq_readerr", &|_| {}, gave, Err(Errno::Again), run)?;
        error.ep = error.ep.map(|ep| KNOWN.endpoint(ep));
        Ok(error)
    }

    fn write(&self, event: Event) -> Result {
        self.at
            .done("eq_write", &|_| {}, || self.inner.write(event))
    }

    fn wait(&self, timeout: Option<Duration>) -> Result<Event> {
        self.taken("eq_sread", || self.inner.wait(timeout))
    }

    fn try_wait(&self) -> Result {
        self.inner.try_wait()
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wait_fd()
    }
}

impl Drop for HookedEq {
    fn drop(&mut self) {
        self.at.close("eq_close");
    }
}

impl fmt::Debug for HookedEq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

pub(crate) struct HookedPassive {
    inner: Arc<dyn PassiveEndpoint>,
    at: At,
}

impl HookedPassive {
    pub(crate) fn new(inner: Arc<dyn PassiveEndpoint>, at: At) -> Self {
        Self { inner, at }
    }
}

impl PassiveEndpoint for HookedPassive {
    fn listen(&self) -> Result {
        self.at.done("listen", &|_| {}, || self.inner.listen())
    }

    fn address(&self) -> Result<Address> {
        self.inner.address()
    }

    fn set_address(&self, addr: &Address) -> Result<(), Error> {
        let args = |args: &mut Args| {
            args.text("addr", addr);
        };
        let run = || self.inner.set_address(addr);
        self.at.open("setname", &args, run)
    }

    fn handle(&self) -> Result<u64> {
        self.inner.handle()
    }

    fn reject(&self, handle: u64, data: &[u8]) -> Result {
        let args = |args: &mut Args| {
            args.num("len", data.len() as u64);
        };
        self.at
            .done("reject", &args, || self.inner.reject(handle, data))
    }
}

impl fmt::Debug for HookedPassive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
