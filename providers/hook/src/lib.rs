//! Layers around any provider that record its calls or make some of them fail: `FI_HOOK`.
//!
//! | name | what it does |
//! |---|---|
//! | `trace` | writes a line of JSON for each call: arguments, result and duration |
//! | `perf` | counts and times calls, times operations by kind and size, and writes tables when the fabric is closed |
//! | `flight` | records the last calls of each endpoint, for `fi_top` and for the file that a crash writes |
//! | `fault` | delays, drops or fails calls, or kills the process at a call, as `FI_HOOK_FAULT` says |
//!
//! With `FI_HOOK=trace;fault` a call passes `trace` first, which sees the results that `fault`
//! makes. Without the variable, [`hooked`] returns the provider's own objects, without layers.
//!
//! [`hooked`] puts the layers around a provider and every object that is opened from it
//! ([`selvedge_kit::layer`]). The layers do not change memory, completions and events, which pass
//! through.

#![deny(missing_docs)]

mod hooks;
mod layers;
mod recorder;

pub use hooks::CALLS;
pub use layers::{Hook, Hooked, hooked};
