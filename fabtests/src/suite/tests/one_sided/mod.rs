//! Tests of accesses to the memory of peers.

mod atomics;
mod rma;

