//! Programs in C against libfabric's own headers and our library, and programs that were built for
//! libfabric: all as real processes. What the machine lacks is said aloud and skipped.

#![expect(clippy::unwrap_used, reason = "a test that goes wrong ends")]

mod harness;
mod interfaces;
mod layout;
mod misuse;
mod mpi;
mod numbers;
mod symbols;
mod utilities;
