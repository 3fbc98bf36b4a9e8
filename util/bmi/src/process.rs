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
/// dropped. Threads that are inside a call end it first; those that wait find nothing, before their
/// time.
///
/// # Errors
/// [`Code::EINVAL`] when there is none.
pub fn finalize() -> Result {
    let mut count = COUNT.lock().unwrap_or_else(PoisonError::into_inner);
    *count = count.checked_sub(1).ok_or(Code::EINVAL)?;
    if *count == 0 {
        // Threads that wait keep the instance locked.
        if let Ok(bmi) = instance() {
            bmi.end_waits();
        }
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_thread_that_waits_keeps_no_process_from_ending_its_instance() {
        const LIMIT: Duration = Duration::from_secs(10);
        initialize(Config::client()).unwrap();
        let (tell, hear) = mpsc::channel();
        thread::scope(|scope| {
            let parked = scope.spawn(move || {
                tell.send(nix::unistd::gettid()).unwrap();
                with(|bmi| bmi.testunexpected(1, 0, 2 * LIMIT, |_| ()))
            });
            let stat = format!("/proc/self/task/{}/stat", hear.recv().unwrap());
            while !fs::read_to_string(&stat).unwrap().contains(") S ") {
                thread::yield_now();
            }
            let start = Instant::now();
            finalize().unwrap();
            assert!(start.elapsed() < LIMIT, "a thread that waits is waited for");
            assert_eq!(parked.join().unwrap(), Ok(Ok(0)));
        });
    }
}
