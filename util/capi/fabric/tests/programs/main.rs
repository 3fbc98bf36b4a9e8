//! Programs in C against libfabric's own headers and Selvedge's library, and programs that were
//! built for libfabric, all as real processes. A test whose programs or headers the machine lacks
//! is reported as skipped.

#![expect(clippy::unwrap_used, reason = "a test that goes wrong ends")]

mod harness;
mod interfaces;
mod layout;
mod misuse;
mod mpi;
mod numbers;
mod symbols;
mod utilities;
