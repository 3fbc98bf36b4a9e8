//! What the library sees of the environment when it reads it, at its first call.

#![expect(unsafe_code, reason = "changes of the environment")]

use std::env;

use crate::names;

const NAME: &str = "FI_PROVIDER";

/// Runs `first`, the library's first call, with a `FI_PROVIDER` that names nothing but what the
/// library knows: our layer would shut all of its providers out.
pub(crate) fn with_names_of_its_own<T>(first: impl FnOnce() -> T) -> T {
    let own = env::var(NAME).unwrap_or_default();
    let Some(theirs) = names::filter(&own) else {
        return first();
    };
    set(&theirs);
    let answer = first();
    set(&own);
    answer
}

fn set(value: &str) {
    // SAFETY: the variable is there already, and the GNU C library never gives the memory of an
    // environment back, so who reads it meanwhile in another thread finds the one text or the other.
    unsafe { env::set_var(NAME, value) };
}
