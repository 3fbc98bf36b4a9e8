//! The one instance of a process, with a reference count.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::{Bmi, Code, Config, Error, Result};

/// Number of references. Locked while the instance is opened or dropped.
static COUNT: Mutex<usize> = Mutex::new(0);
static INSTANCE: RwLock<Option<Arc<Bmi>>> = RwLock::new(None);

/// Opens the instance of this process, or adds a reference if it is open (`BMI_initialize`).
///
/// # Errors
/// As [`Bmi::initialize`]; an error leaves the count unchanged.
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

/// Removes a reference, and drops the instance with the last one (`BMI_finalize`). Outstanding
/// operations are dropped. The function waits until other threads have left their calls; a call
/// that waits for events returns early without a result.
///
/// # Errors
/// [`Code::EINVAL`] when no instance is open.
pub fn finalize() -> Result {
    let mut count = COUNT.lock().unwrap_or_else(PoisonError::into_inner);
    *count = count.checked_sub(1).ok_or(Code::EINVAL)?;
    if *count == 0 {
        // Waiting threads hold the read lock on the instance.
        if let Ok(bmi) = instance() {
            bmi.end_waits();
        }
        *INSTANCE.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
    Ok(())
}

/// Returns the instance.
///
/// # Errors
/// [`Code::ENETDOWN`] when no instance is open.
pub fn instance() -> Result<Arc<Bmi>> {
    let instance = INSTANCE.read().unwrap_or_else(PoisonError::into_inner);
    instance.as_ref().map(Arc::clone).ok_or(Code::ENETDOWN)
}

/// Calls `call` with the instance, which stays open during the call. Faster than [`instance`].
///
/// # Errors
/// [`Code::ENETDOWN`] when no instance is open.
#[inline]
pub fn with<T>(call: impl FnOnce(&Bmi) -> T) -> Result<T> {
    let instance = INSTANCE.read().unwrap_or_else(PoisonError::into_inner);
    match &*instance {
        Some(bmi) => Ok(call(bmi)),
        None => Err(Code::ENETDOWN),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn finalize_ends_the_waits_of_other_threads() {
        const LIMIT: Duration = Duration::from_secs(10);
        initialize(Config::client()).unwrap();
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            let parked = scope.spawn(move || {
                sender.send(nix::unistd::gettid()).unwrap();
                with(|bmi| bmi.testunexpected(1, 0, 2 * LIMIT, |_| ()))
            });
            let stat = format!("/proc/self/task/{}/stat", receiver.recv().unwrap());
            while !fs::read_to_string(&stat).unwrap().contains(") S ") {
                thread::yield_now();
            }
            let start = Instant::now();
            finalize().unwrap();
            assert!(
                start.elapsed() < LIMIT,
                "finalize waited for a parked thread"
            );
            assert_eq!(parked.join().unwrap(), Ok(Ok(0)));
        });
    }
}
