//! Tests with a short and a long form.
//!
//! `cargo test` runs the short form, `cargo xtask test --long` and CI the long one. Both hold the
//! same promise: the short form samples, the long form covers all of it.

use std::env;
use std::ffi::OsStr;

/// The environment variable that asks for long forms.
pub const LONG: &str = "SELVEDGE_TEST_LONG";

/// Whether tests run in their long form.
pub fn is_long() -> bool {
    asks(env::var_os(LONG).as_deref())
}

/// The part of a test's work that this run does.
pub fn part<T>(short: T, long: T) -> T {
    if is_long() { long } else { short }
}

/// Whether a value of [`LONG`] asks for long forms.
fn asks(value: Option<&OsStr>) -> bool {
    value.is_some_and(|value| !value.is_empty() && value != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_long_form_is_asked_for_by_a_word() {
        for (value, is_long) in [(None, false), (Some(""), false), (Some("0"), false)] {
            assert_eq!(asks(value.map(OsStr::new)), is_long, "{value:?}");
        }
        assert!(asks(Some(OsStr::new("1"))));
    }
}
