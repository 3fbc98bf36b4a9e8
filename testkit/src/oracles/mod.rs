//! Oracles: the expected results of operations, computed element by element.

pub mod atomics;
pub mod collectives;
