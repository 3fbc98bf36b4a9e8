//! Cheetah: one-sided messaging for single-threaded programs, over any fabric.
//!
//! A program runs as several *contexts* with separate memory. A context puts bytes into the memory
//! of another context, gets bytes from there, and invokes functions there. The other context takes
//! no part, except that it calls the library periodically. *Bells*, integers that the library
//! increments, report completions.
//!
//! ```text
//!   Controller ---- put, get, ainvoke, poll, wait, barrier      operations between contexts
//!       |  \------- Bell, BellName                              completion counters
//!       |  \------- Special, Parcel                             memory that saves a copy
//!       |
//!   MatchingHandler ---- send, request                          messages matched by sender and tag
//!       |
//!   Serialize                                                   values in messages
//! ```
//!
//! - Only [`Controller::wait`], [`Controller::barrier`] and [`Controller::finalize`] block. All
//!   other operations are queued without a limit.
//! - The library works within calls only. Polls and waits progress operations and run functions;
//!   other calls do so periodically.
//! - When a context fails, the waits of all others end with an error that names the failed context.
//!
//! docs/CHEETAH.md lists the guarantees and their tests. `util/capi/cheetah` is the same library
//! for C and C++, with `Cheetah/Cheetah.h`.

#![deny(missing_docs)]

mod bell;
mod config;
mod controller;
pub mod core;
mod engine;
mod error;
mod memory;
mod net;
pub mod serialize;
mod start;

#[doc(hidden)]
pub use bytemuck;

pub use bell::{Bell, BellName};
pub use config::{Config, Launch, Rendezvous};
pub use controller::matching::{Function, MatchingHandler};
pub use controller::parcel::Parcel;
pub use controller::special::Special;
pub use controller::{Call, Controller, FunctionId};
pub use engine::parts::copies::Copies;
pub use error::{Error, Result};
pub use net::wire::Port;
pub use serialize::Serialize;
pub use start::rendezvous;
