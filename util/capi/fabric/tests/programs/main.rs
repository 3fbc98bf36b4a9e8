//! Programs in C with Selvedge's headers and library, and programs that were built for libfabric,
//! all as real processes. A test is reported as skipped if the machine lacks its programs or
//! headers.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod harness;
mod headers;
mod interfaces;
mod layout;
mod misuse;
mod mpi;
mod numbers;
mod symbols;
mod utilities;
