//! Open objects that events may name, by the library's handles. There is one table for all fabrics,
//! because the endpoint of a request, and its domain, may belong to another fabric object than the
//! event queue.

#![expect(unsafe_code, reason = "a handle of another library")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use selvedge::{Endpoint, Info, PassiveEndpoint};
use selvedge_abi::Fid;

use crate::library::LibraryInfo;

struct OpenObjects {
    endpoints: BTreeMap<usize, Weak<dyn Endpoint>>,
    /// Passive endpoints with their infos, from which those of connection requests are derived.
    peps: BTreeMap<usize, (Weak<dyn PassiveEndpoint>, Info)>,
    /// Connection requests that were not accepted or rejected, with their infos.
    requests: BTreeMap<u64, Request>,
}

/// A connection request.
pub(crate) struct Request {
    pub(crate) handle: *mut Fid,
    /// Keeps the info, which the library may read while the request is open.
    _info: LibraryInfo,
}

// SAFETY: the handle is only passed to the library.
unsafe impl Send for Request {}

static OBJECTS: Mutex<OpenObjects> = Mutex::new(OpenObjects {
    endpoints: BTreeMap::new(),
    peps: BTreeMap::new(),
    requests: BTreeMap::new(),
});

fn lock_objects() -> MutexGuard<'static, OpenObjects> {
    OBJECTS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn register_endpoint(name: usize, endpoint: Weak<dyn Endpoint>) {
    lock_objects().endpoints.insert(name, endpoint);
}

pub(crate) fn unregister_endpoint(name: usize) {
    lock_objects().endpoints.remove(&name);
}

pub(crate) fn find_endpoint(fid: *mut Fid) -> Option<Arc<dyn Endpoint>> {
    lock_objects().endpoints.get(&fid.addr())?.upgrade()
}

pub(crate) fn register_pep(name: usize, pep: Weak<dyn PassiveEndpoint>, info: Info) {
    lock_objects().peps.insert(name, (pep, info));
}

pub(crate) fn unregister_pep(name: usize) {
    lock_objects().peps.remove(&name);
}

pub(crate) fn find_pep(fid: *mut Fid) -> Option<(Arc<dyn PassiveEndpoint>, Info)> {
    let objects = lock_objects();
    let (pep, info) = objects.peps.get(&fid.addr())?;
    Some((pep.upgrade()?, info.clone()))
}

/// Stores a request until it is accepted or rejected.
pub(crate) fn store_request(name: u64, handle: *mut Fid, info: LibraryInfo) {
    let request = Request {
        handle,
        _info: info,
    };
    lock_objects().requests.insert(name, request);
}

/// Takes a request that is about to be accepted or rejected.
pub(crate) fn take_request(name: u64) -> Option<Request> {
    lock_objects().requests.remove(&name)
}
