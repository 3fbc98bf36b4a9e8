//! Registry of handles: maps an object of the object model to its handle of C. Events name objects,
//! and C reads handles.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use selvedge_abi::Fid;

/// The addresses of handles by the addresses of their objects.
static HANDLES: Mutex<Option<HashMap<usize, usize>>> = Mutex::new(None);

fn with_handles<R>(run: impl FnOnce(&mut HashMap<usize, usize>) -> R) -> R {
    let mut handles = HANDLES.lock().unwrap_or_else(PoisonError::into_inner);
    run(handles.get_or_insert_default())
}

fn address_of<T: ?Sized>(object: &Arc<T>) -> usize {
    Arc::as_ptr(object).addr()
}

/// Registers the handle of an object.
pub(crate) fn add<T: ?Sized>(object: &Arc<T>, fid: *mut Fid) {
    with_handles(|handles| handles.insert(address_of(object), fid.expose_provenance()));
}

/// Removes an object from the registry.
pub(crate) fn remove<T: ?Sized>(object: &Arc<T>) {
    with_handles(|handles| handles.remove(&address_of(object)));
}

/// The handle of an object, or NULL.
pub(crate) fn find<T: ?Sized>(object: &Arc<T>) -> *mut Fid {
    let fid = with_handles(|handles| handles.get(&address_of(object)).copied());
    std::ptr::with_exposed_provenance_mut(fid.unwrap_or(0))
}
