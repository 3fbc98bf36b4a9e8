//! Contexts of arguments. The first use of [`UNNAMED`], which programs without contexts pass, opens
//! the default context.

use std::sync::{Mutex, MutexGuard, PoisonError};

use selvedge_bmi::{Bmi, ContextId, Result};

/// `BMI_SEED_CONTEXT`: stands for the context of programs that have none.
pub(crate) const UNNAMED: i64 = i64::MIN;

/// The context of an argument: the default context for [`UNNAMED`], otherwise the argument itself.
///
/// # Errors
/// As [`Bmi::open_context`].
#[inline]
pub(crate) fn of_argument(bmi: &Bmi, context: i64) -> Result<ContextId> {
    match context {
        UNNAMED => default_context(bmi),
        named => Ok(ContextId(named)),
    }
}

#[cold]
fn default_context(bmi: &Bmi) -> Result<ContextId> {
    let mut opened = opened();
    match *opened {
        Some(context) => Ok(context),
        None => Ok(*opened.insert(bmi.open_context()?)),
    }
}

/// Forgets the default context, if the last `BMI_finalize` has closed the instance and its
/// contexts.
pub(crate) fn forget_default() {
    if selvedge_bmi::process::instance().is_err() {
        *opened() = None;
    }
}

/// The default context, once it is open.
fn opened() -> MutexGuard<'static, Option<ContextId>> {
    static OPENED: Mutex<Option<ContextId>> = Mutex::new(None);
    OPENED.lock().unwrap_or_else(PoisonError::into_inner)
}
