//! What events may be about, by the library's handles. One table for all fabrics: the endpoint for a
//! request, and its domain, may be of another fabric object than the queue that tells of it.

#![expect(unsafe_code, reason = "a handle of another library")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use selvedge_abi::Fid;

use crate::endpoint::Endpoint;
use crate::library::Theirs;
use crate::pep::Pep;

struct Opened {
    endpoints: BTreeMap<usize, Weak<Endpoint>>,
    peps: BTreeMap<usize, Weak<Pep>>,
    /// Requests for connections that nobody has accepted or rejected, with what they came with.
    requests: BTreeMap<u64, Request>,
}

/// A request for a connection.
pub(crate) struct Request {
    pub(crate) handle: *mut Fid,
    /// Keeps what the library may look at while the request is open.
    _info: Theirs,
}

// SAFETY: the handle is only handed on to the library.
unsafe impl Send for Request {}

static OPENED: Mutex<Opened> = Mutex::new(Opened {
    endpoints: BTreeMap::new(),
    peps: BTreeMap::new(),
    requests: BTreeMap::new(),
});

fn opened() -> MutexGuard<'static, Opened> {
    OPENED.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn know_endpoint(name: usize, endpoint: &Arc<Endpoint>) {
    opened().endpoints.insert(name, Arc::downgrade(endpoint));
}

pub(crate) fn forget_endpoint(name: usize) {
    opened().endpoints.remove(&name);
}

pub(crate) fn endpoint(fid: *mut Fid) -> Option<Arc<dyn selvedge::Endpoint>> {
    let endpoint = opened().endpoints.get(&fid.addr())?.upgrade()?;
    Some(endpoint)
}

pub(crate) fn know_pep(name: usize, pep: &Arc<Pep>) {
    opened().peps.insert(name, Arc::downgrade(pep));
}

pub(crate) fn forget_pep(name: usize) {
    opened().peps.remove(&name);
}

pub(crate) fn pep(fid: *mut Fid) -> Option<Arc<Pep>> {
    opened().peps.get(&fid.addr())?.upgrade()
}

/// Keeps a request until it is answered.
pub(crate) fn keep_request(name: u64, handle: *mut Fid, info: Theirs) {
    let request = Request {
        handle,
        _info: info,
    };
    opened().requests.insert(name, request);
}

/// A request that is about to be answered.
pub(crate) fn take_request(name: u64) -> Option<Request> {
    opened().requests.remove(&name)
}
