//! `Spec`: the declaration of a parameter.

use std::fmt;
use std::time::Duration;

/// The declaration of a parameter. Providers declare their parameters in a `static` table.
///
/// # Examples
/// ```
/// use selvedge::param::Spec;
///
/// static PARAMS: [Spec; 2] = [
///     Spec::size("FI_DEMO_TX_SIZE", 1024, "sends that may be outstanding").within(1, 65536),
///     Spec::flag("FI_DEMO_DISABLE_CMA", false, "never copy between processes directly"),
/// ];
/// ```
#[expect(clippy::exhaustive_structs, reason = "providers write it in constants")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// The name of the variable, `FI_<PROVIDER>_<NAME>`.
    pub name: &'static str,
    /// The type, with the default and the limits.
    pub kind: Kind,
    /// A description as one phrase without a full stop.
    pub help: &'static str,
}

/// The type of a parameter, with its default and limits.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Kind {
    /// `0`, `1`, `true`, `false`, `yes`, `no`, `on` or `off`, ignoring case.
    Flag {
        /// The value when unset.
        default: bool,
    },
    /// A whole number: decimal, hexadecimal with the prefix `0x`, or octal with the prefix `0`.
    Int {
        /// The value when unset.
        default: i64,
    },
    /// A count or a number of bytes: a number as in [`Kind::Int`], with an optional suffix `k`, `m`
    /// or `g` (powers of 1024).
    Size {
        /// The value when unset.
        default: usize,
        /// The smallest value.
        min: usize,
        /// The largest value.
        max: usize,
    },
    /// A whole number with a unit: `ns`, `us`, `ms`, `s` or `m`.
    Time {
        /// The value when unset.
        default: Duration,
    },
    /// Any text.
    Text {
        /// The value when unset; `""` for none.
        default: &'static str,
    },
    /// One of a list of words, ignoring case.
    Choice {
        /// The value when unset.
        default: &'static str,
        /// The words, in lower case.
        words: &'static [&'static str],
    },
}

impl Spec {
    /// Declares a flag.
    pub const fn flag(name: &'static str, default: bool, help: &'static str) -> Self {
        Self::new(name, Kind::Flag { default }, help)
    }

    /// Declares a whole number.
    pub const fn int(name: &'static str, default: i64, help: &'static str) -> Self {
        Self::new(name, Kind::Int { default }, help)
    }

    /// Declares a count or a number of bytes, without limits. [`Spec::within`] sets limits.
    pub const fn size(name: &'static str, default: usize, help: &'static str) -> Self {
        let (min, max) = (0, usize::MAX);
        Self::new(name, Kind::Size { default, min, max }, help)
    }

    /// Declares a duration.
    pub const fn time(name: &'static str, default: Duration, help: &'static str) -> Self {
        Self::new(name, Kind::Time { default }, help)
    }

    /// Declares a text.
    pub const fn text(name: &'static str, default: &'static str, help: &'static str) -> Self {
        Self::new(name, Kind::Text { default }, help)
    }

    /// Declares a choice of one of the `words`.
    pub const fn choice(
        name: &'static str,
        default: &'static str,
        words: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self::new(name, Kind::Choice { default, words }, help)
    }

    /// Limits a size to `min..=max`.
    ///
    /// # Panics
    /// If the parameter is not a size, or the default is outside the limits. In a `static` table,
    /// both are compile-time errors.
    #[must_use]
    pub const fn within(mut self, min: usize, max: usize) -> Self {
        let Kind::Size { default, .. } = self.kind else {
            panic!("`within` limits sizes only");
        };
        assert!(
            min <= default && default <= max,
            "the default is outside the limits"
        );
        self.kind = Kind::Size { default, min, max };
        self
    }

    const fn new(name: &'static str, kind: Kind, help: &'static str) -> Self {
        Self { name, kind, help }
    }
}

impl Kind {
    /// Returns the name of the type, as `fi_info -e` prints it.
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::Flag { .. } => "Boolean (0/1, on/off, true/false, yes/no)",
            Self::Int { .. } => "Integer",
            Self::Size { .. } => "size_t",
            Self::Time { .. } => "Duration",
            Self::Text { .. } | Self::Choice { .. } => "String",
        }
    }

    /// Returns the default value, as a user would write it; empty for a text without a default.
    pub fn default_text(&self) -> String {
        match self {
            Self::Flag { default } => u8::from(*default).to_string(),
            Self::Int { default, .. } => default.to_string(),
            Self::Size { default, .. } => default.to_string(),
            Self::Time { default } => format_time(*default),
            Self::Text { default } | Self::Choice { default, .. } => (*default).to_owned(),
        }
    }
}

/// Describes the accepted values.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Flag { .. } => f.write_str("one of 0, 1, true, false, yes, no, on, off"),
            Self::Int { .. } => f.write_str("a whole number"),
            Self::Size { min, max, .. } => write_size(f, min, max),
            Self::Time { .. } => f.write_str("a time with its unit, such as 500us, 20ms or 2s"),
            Self::Text { .. } => f.write_str("a text"),
            Self::Choice { words, .. } => write!(f, "one of {}", words.join(", ")),
        }
    }
}

/// Formats a duration in the largest unit that gives a whole number.
fn format_time(time: Duration) -> String {
    let nanos = time.as_nanos();
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000)];
    units
        .iter()
        .find(|(_, unit)| nanos.is_multiple_of(*unit))
        .map_or_else(
            || format!("{nanos}ns"),
            |(name, unit)| format!("{}{name}", nanos / unit),
        )
}

fn write_size(f: &mut fmt::Formatter<'_>, min: usize, max: usize) -> fmt::Result {
    f.write_str("a size such as 4096, 64k or 1m")?;
    match (min, max) {
        (0, usize::MAX) => Ok(()),
        (_, usize::MAX) => write!(f, ", at least {min}"),
        (0, _) => write!(f, ", at most {max}"),
        _ => write!(f, ", from {min} to {max}"),
    }
}
