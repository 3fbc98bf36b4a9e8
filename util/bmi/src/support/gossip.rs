//! Logging in gossip's manner, into the project's log.
//!
//! Debug messages belong to parts, and a mask says which parts are heard; errors are always heard.
//! Where messages go is up to whoever installed a logger ([`selvedge::log::init`]).

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Parts of BMI that debug messages come from: bits of the mask.
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

static HEARD: AtomicU64 = AtomicU64::new(0);

/// Sets which parts are heard (`gossip_set_debug_mask`).
pub fn set_debug_mask(mask: Mask) {
    HEARD.store(mask.0, Ordering::Relaxed);
}

/// Which parts are heard.
pub fn debug_mask() -> Mask {
    Mask(HEARD.load(Ordering::Relaxed))
}

/// Hears no part any more (`gossip_disable`).
pub fn disable() {
    set_debug_mask(Mask(0));
}

/// Has debug messages printed by `print` from the first call on, whatever the level of the log is.
pub fn set_debug_output(print: fn(fmt::Arguments<'_>)) {
    PRINT.get_or_init(|| print);
}

static PRINT: OnceLock<fn(fmt::Arguments<'_>)> = OnceLock::new();

/// Says something of a part, if that is heard.
pub fn debug(part: Mask, what: fmt::Arguments<'_>) {
    if debug_mask().0 & part.0 == 0 {
        return;
    }
    match PRINT.get() {
        Some(print) => print(what),
        None => log::debug!(target: part.name(), "{what}"),
    }
}

/// Says what went wrong.
#[cold]
pub fn err(what: fmt::Arguments<'_>) {
    log::warn!(target: "selvedge::bmi::core", "{what}");
}
