//! Oracles: what operations have to do, computed one element after the other.

pub mod atomics;
pub mod collectives;
