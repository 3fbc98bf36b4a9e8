//! Logging in the style of PVFS's gossip, into the project's log.
//!
//! Debug messages belong to parts, and a mask enables parts. Errors are always logged. The
//! installed logger decides where messages go ([`selvedge::log::init`]).

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Parts of BMI with debug messages: bits of the mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mask(pub u64);

impl Mask {
    /// The control layer.
    pub const CONTROL: Self = Self(1 << 9);
    /// Methods.
    pub const METHOD: Self = Self(1 << 0);
    /// Queues of operations, when they are dumped.
    pub const OP_LIST: Self = Self(1 << 2);
    /// All parts.
    pub const ALL: Self = Self(u64::MAX);

    fn name(self) -> &'static str {
        match self {
            Self::CONTROL => "selvedge::bmi::domain",
            Self::OP_LIST => "selvedge::bmi::ep_data",
            _ => "selvedge::bmi::ep_ctrl",
        }
    }
}

static DEBUG_MASK: AtomicU64 = AtomicU64::new(0);

/// Sets the enabled parts (`gossip_set_debug_mask`).
pub fn set_debug_mask(mask: Mask) {
    DEBUG_MASK.store(mask.0, Ordering::Relaxed);
}

/// The enabled parts.
pub fn debug_mask() -> Mask {
    Mask(DEBUG_MASK.load(Ordering::Relaxed))
}

/// Disables all parts (`gossip_disable`).
pub fn disable() {
    set_debug_mask(Mask(0));
}

/// Prints debug messages with `print`, regardless of the log level. Only the first call has an
/// effect.
pub fn set_debug_output(print: fn(fmt::Arguments<'_>)) {
    PRINT.get_or_init(|| print);
}

static PRINT: OnceLock<fn(fmt::Arguments<'_>)> = OnceLock::new();

/// Logs a debug message if its part is enabled.
pub fn debug(part: Mask, message: fmt::Arguments<'_>) {
    if debug_mask().0 & part.0 == 0 {
        return;
    }
    match PRINT.get() {
        Some(print) => print(message),
        None => log::debug!(target: part.name(), "{message}"),
    }
}

/// Logs an error.
#[cold]
pub fn err(message: fmt::Arguments<'_>) {
    log::warn!(target: "selvedge::bmi::core", "{message}");
}
