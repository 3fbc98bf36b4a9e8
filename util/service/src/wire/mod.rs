//! The bytes that the two ends of a connection exchange: frames and greetings.
//!
//! Bytes of peers are untrusted: they are parsed into closed types, and checked, before any other
//! code sees them. docs/WIRE.md has the format.

#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable
    )
)]

mod frame;
mod greeting;

pub(crate) use frame::{Credit, HEADER, Header, Kind, Malformed};
pub(crate) use greeting::{Greeting, Limits, Refusal, VERSION};
