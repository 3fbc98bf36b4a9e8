//! Tests of accesses to the memory of peers.

pub(super) mod atomics;
pub(super) mod rma;
