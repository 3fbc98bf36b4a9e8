//! What the library sees of the environment when it reads it, at its first call.
//!
//! libfabric takes `FI_PROVIDER` from `getenv(3)` alone: its parameter interface declares and reads
//! variables, and sets none. So the variable is changed, which is sound only while no other thread
//! can read the environment.

#![expect(unsafe_code, reason = "changes of the environment")]

use std::{env, fs};

use selvedge::{Errno, Error};

use crate::names;

const NAME: &str = "FI_PROVIDER";

/// Runs `first`, the library's first call, with a `FI_PROVIDER` that names nothing but what the
/// library knows: our layer would shut all of its providers out.
///
/// # Errors
/// [`Errno::Busy`] when the variable would have to change and there are other threads; those of
/// `first`.
pub(crate) fn with_names_of_its_own<T>(
    first: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    let own = env::var(NAME).unwrap_or_default();
    with_filter(&own, first)
}

fn with_filter<T>(own: &str, first: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let Some(theirs) = names::filter(own) else {
        return first();
    };
    only_thread(own, "Discover once before other threads start")?.set(&theirs);
    let answer = first()?;
    let why =
        format!("The library has started threads meanwhile, and the variable is {theirs:?} now");
    only_thread(own, &why)?.set(own);
    Ok(answer)
}

/// The knowledge that this thread is the only one of the process: another one could be started by
/// nobody but it.
struct OnlyThread(());

/// # Errors
/// [`Errno::Busy`] when there are others, or the system does not say.
fn only_thread(own: &str, advice: &str) -> Result<OnlyThread, Error> {
    let threads = fs::read_dir("/proc/self/task").map(Iterator::count);
    let found = match threads {
        Ok(1) => return Ok(OnlyThread(())),
        Ok(count) => format!("there are {count} threads"),
        Err(error) => format!("the number of threads is unknown ({error})"),
    };
    let what = format!(
        "{NAME}={own:?} names the layer {:?}, which the library does not know, and cannot be changed \
         for the library's first call: {found}, which may read the environment. {advice}, or name the \
         provider in the hints and leave {NAME} unset",
        names::LAYER
    );
    Err(Error::new(Errno::Busy, what))
}

impl OnlyThread {
    /// Changes the variable.
    fn set(self, value: &str) {
        // SAFETY: there is no other thread that could read or change the environment at the same
        // time, and this thread starts none before the call is over.
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
        let before = env::var(NAME);
        let error = with_filter("tcp;ofi", || -> Result<(), Error> {
            panic!("the library would read a filter that shuts it out")
        });
        let error = error.unwrap_err();
        assert_eq!(error.errno(), Errno::Busy);
        assert!(error.message().contains("\"tcp;ofi\""), "{error}");
        assert_eq!(env::var(NAME), before);
        // What the library understands as it is needs no change.
        assert_eq!(with_filter("tcp", || Ok(7)).unwrap(), 7);
        drop(end);
        assert!(other.join().unwrap().is_err());
    }
}
