//! The instance of a process: opened by the first who asks, and ended by the last.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::{Bmi, Code, Config, Error, Result};

/// How often it was asked for. Held while it begins and ends.
static COUNT: Mutex<usize> = Mutex::new(0);
static INSTANCE: RwLock<Option<Arc<Bmi>>> = RwLock::new(None);

/// Opens the instance of this process, or counts once more if there is one (`BMI_initialize`).
///
/// # Errors
/// As [`Bmi::initialize`]; nothing was counted then.
pub fn initialize(config: Config) -> Result<Arc<Bmi>, Error> {
    let mut count = COUNT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Ok(bmi) = instance() {
        *count += 1;
        return Ok(bmi);
    }
    let bmi = Arc::new(Bmi::initialize(config)?);
    *INSTANCE.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&bmi));
    *count = 1;
    Ok(bmi)
}

/// Counts once less, and ends the instance with the last (`BMI_finalize`): what is outstanding is
/// dropped. Threads that are inside a call end it first.
///
/// # Errors
/// [`Code::EINVAL`] when there is none.
pub fn finalize() -> Result {
    let mut count = COUNT.lock().unwrap_or_else(PoisonError::into_inner);
    *count = count.checked_sub(1).ok_or(Code::EINVAL)?;
    if *count == 0 {
        *INSTANCE.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
    Ok(())
}

/// The instance.
///
/// # Errors
/// [`Code::ENETDOWN`] when there is none.
pub fn instance() -> Result<Arc<Bmi>> {
    let instance = INSTANCE.read().unwrap_or_else(PoisonError::into_inner);
    instance.as_ref().map(Arc::clone).ok_or(Code::ENETDOWN)
}

/// Calls the instance, which does not end meanwhile. For calls that are made often.
///
/// # Errors
/// [`Code::ENETDOWN`] when there is none.
#[inline]
pub fn with<T>(call: impl FnOnce(&Bmi) -> T) -> Result<T> {
    let instance = INSTANCE.read().unwrap_or_else(PoisonError::into_inner);
    match &*instance {
        Some(bmi) => Ok(call(bmi)),
        None => Err(Code::ENETDOWN),
    }
}
