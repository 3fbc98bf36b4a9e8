//! A check of the handles that objects are held by.

use std::fmt;
use std::sync::Arc;

use crate::{Errno, Error};

/// Makes sure that dropping this handle drops the object: what dropping promises depends on it.
///
/// # Errors
/// [`Errno::Busy`] when there is another handle.
pub(crate) fn sole<T: fmt::Debug + ?Sized>(
    mut object: Arc<T>,
    kind: &str,
) -> Result<Arc<T>, Error> {
    if Arc::get_mut(&mut object).is_some() {
        return Ok(object);
    }
    let what = format!("the provider kept a handle of {kind} {object:?}");
    Err(Error::new(Errno::Busy, what))
}
