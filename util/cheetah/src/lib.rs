//! Cheetah: one-sided messaging for programs without threads, on any fabric.
//!
//! A program runs as several *contexts*, each with memory of its own. A context puts bytes into the
//! memory of another one, gets them from there, and has functions run there, without that one's
//! program taking part: it only has to call in now and then. Whether something is done is told by
//! *bells*: integers that the library counts up.
//!
//! ```text
//!   Controller ---- put, get, ainvoke, poll, wait, barrier      what contexts do to each other
//!       |  \------- Bell, BellName                              how they learn that it is done
//!       |  \------- Special, Parcel                             memory that is copied once less
//!       |
//!   MatchingHandler ---- send, request                          messages with a meeting point
//!       |
//!   Serialize                                                   values in messages
//! ```
//!
//! - Nothing waits but [`Controller::wait`], [`Controller::barrier`] and [`Controller::finalize`];
//!   everything else is queued without end.
//! - Everything happens within calls: bytes move in all of them, functions run in polls and waits,
//!   and now and then in others.
//! - A context that dies ends the waits of all others with an error that names it.
//!
//! docs/CHEETAH.md has the promises, and the tests that hold them. `util/capi/cheetah` is the same
//! for C and C++, with `Cheetah/Cheetah.h`.

#![deny(missing_docs)]

mod bell;
mod config;
mod controller;
mod copies;
pub mod core;
mod engine;
mod error;
mod local;
mod matching;
mod memory;
mod net;
mod parcel;
mod recv;
pub mod serialize;
mod special;
mod start;
mod wire;

#[doc(hidden)]
pub use bytemuck;

pub use bell::{Bell, BellName};
pub use config::{Config, Meeting, Place};
pub use controller::{Call, Controller, FunctionId};
pub use copies::Copies;
pub use error::{Error, Result};
pub use matching::{Function, MatchingHandler};
pub use parcel::Parcel;
pub use serialize::Serialize;
pub use special::Special;
pub use start::gather;
pub use wire::Port;
