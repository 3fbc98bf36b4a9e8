//! BMI over the fabric, from outside.

#![expect(clippy::unwrap_used, reason = "a test that goes wrong ends")]

mod common;
mod death;
mod matching;
mod process;
mod request;
