//! Layers over any provider that watch its calls, or have some of them fail: `FI_HOOK`.
//!
//! | name | what it does |
//! |---|---|
//! | `trace` | writes a line of JSON for each call: what was given, what was answered, how long it took |
//! | `perf` | counts calls and their time, times operations by kind and size, and writes tables when the fabric is closed |
//! | `flight` | keeps the last calls of each endpoint, for `fi_top` and for what crashes write out |
//! | `fault` | delays, drops, fails or kills at calls that `FI_HOOK_FAULT` names |
//!
//! `FI_HOOK=trace;fault` has a call pass `trace` first, which sees what `fault` makes of it. Without
//! the variable a provider's own objects are handed out, and nothing of this is there.
//!
//! [`hooked`] puts the layers around a provider and every object that is opened from it
//! ([`selvedge_kit::layer`]). What they do to memory, completions and events is nothing: those of the
//! provider pass through.

#![deny(missing_docs)]

mod call;
mod endpoint;
mod fault;
mod ledger;
mod objects;
mod out;
mod perf;
mod post;
mod provider;
mod queues;
mod shared;
mod trace;
mod watch;

pub use call::CALLS;
pub use provider::{Hook, Hooked, hooked};
