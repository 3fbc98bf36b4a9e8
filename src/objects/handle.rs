//! `sole`: a check that a handle is the only handle of its object.

use std::fmt;
use std::sync::Arc;

use crate::{Errno, Error};

/// Checks that `object` is the only handle, so that dropping it drops the object.
///
/// # Errors
/// [`Errno::Busy`] when the object has another handle.
pub(crate) fn sole<T: fmt::Debug + ?Sized>(
    mut object: Arc<T>,
    kind: &str,
) -> Result<Arc<T>, Error> {
    if Arc::get_mut(&mut object).is_some() {
        return Ok(object);
    }
    let text = format!("the provider kept a handle of {kind} {object:?}");
    Err(Error::new(Errno::Busy, text))
}
