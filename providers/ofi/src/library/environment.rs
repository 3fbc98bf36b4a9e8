//! The environment of the library's first call, in which it reads its variables.
//!
//! libfabric reads `FI_PROVIDER` with `getenv(3)` alone: its parameter interface declares and reads
//! variables, and sets none. So this module changes the variable, which is sound only while no
//! other thread can read the environment.

#![expect(unsafe_code, reason = "changes of the environment")]

use std::{env, fs};

use selvedge::{Errno, Error};

use super::names;

const NAME: &str = "FI_PROVIDER";

/// Runs `first_call`, the library's first call, with a `FI_PROVIDER` that contains only names of
/// the library: with the layer's name the library would exclude all its providers.
///
/// # Errors
/// [`Errno::Busy`] if the variable would have to change and other threads exist; the errors of
/// `first_call`.
pub(crate) fn with_filtered_variable<T>(
    first_call: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    let original = env::var(NAME).unwrap_or_default();
    with_filter(&original, first_call)
}

fn with_filter<T>(
    original: &str,
    first_call: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    let Some(filtered) = names::filter_for_library(original) else {
        return first_call();
    };
    check_only_thread(original, "Discover once before other threads start")?.set(&filtered);
    let code = first_call()?;
    let advice = format!("The library has started threads, and the variable still is {filtered:?}");
    check_only_thread(original, &advice)?.set(original);
    Ok(code)
}

/// Proof that this thread is the only one of the process. Only this thread could start another one.
struct OnlyThread(());

/// Checks that this thread is the only one of the process.
///
/// # Errors
/// [`Errno::Busy`] if other threads exist, or their number is unknown.
fn check_only_thread(original: &str, advice: &str) -> Result<OnlyThread, Error> {
    let threads = fs::read_dir("/proc/self/task").map(Iterator::count);
    let found = match threads {
        Ok(1) => return Ok(OnlyThread(())),
        Ok(count) => format!("there are {count} threads"),
        Err(error) => format!("the number of threads is unknown ({error})"),
    };
    let message = format!(
        "{NAME}={original:?} names the layer {:?}, which the library does not have, and cannot be changed \
         for the library's first call: {found}, which may read the environment. {advice}, or name the \
         provider in the hints and leave {NAME} unset",
        names::LAYER
    );
    Err(Error::new(Errno::Busy, message))
}

impl OnlyThread {
    /// Changes the variable.
    fn set(self, value: &str) {
        // SAFETY: no other thread exists that could read or change the environment at the same
        // time, and this thread starts none during the call.
        unsafe { env::set_var(NAME, value) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn the_environment_is_not_changed_while_other_threads_may_read_it() {
        let (end, ended) = mpsc::channel::<()>();
        let other = thread::spawn(move || ended.recv());
        let original = env::var(NAME);
        let error = with_filter("tcp;ofi", || -> Result<(), Error> {
            panic!("the library would read a filter that excludes its providers")
        });
        let error = error.unwrap_err();
        assert_eq!(error.errno(), Errno::Busy);
        assert!(error.message().contains("\"tcp;ofi\""), "{error}");
        assert_eq!(env::var(NAME), original);
        // A value that the library understands needs no change.
        assert_eq!(with_filter("tcp", || Ok(7)).unwrap(), 7);
        drop(end);
        assert!(other.join().unwrap().is_err());
    }
}
