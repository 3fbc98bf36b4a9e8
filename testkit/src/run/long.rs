//! Tests with a short and a long form.
//!
//! `cargo test` runs the short form; `cargo xtask test --long` and CI run the long form. Both test
//! the same property: the short form with a sample of the cases, the long form with all.

use std::env;
use std::ffi::OsStr;

/// The environment variable that selects long forms.
pub const LONG: &str = "SELVEDGE_TEST_LONG";

/// Whether tests run in their long form.
pub fn is_long() -> bool {
    selects_long(env::var_os(LONG).as_deref())
}

/// Selects the value for the form of this run.
pub fn part<T>(short: T, long: T) -> T {
    if is_long() { long } else { short }
}

/// Whether a value of [`LONG`] selects long forms.
fn selects_long(value: Option<&OsStr>) -> bool {
    value.is_some_and(|value| !value.is_empty() && value != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_other_than_0_selects_the_long_form() {
        for (value, is_long) in [(None, false), (Some(""), false), (Some("0"), false)] {
            assert_eq!(selects_long(value.map(OsStr::new)), is_long, "{value:?}");
        }
        assert!(selects_long(Some(OsStr::new("1"))));
    }
}
