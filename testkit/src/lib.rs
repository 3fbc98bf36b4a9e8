//! Parts of Selvedge's tests that several packages share.

pub mod atomics;
pub mod check;
pub mod collectives;
pub mod domain;
pub mod endpoint;
pub mod failure;
pub mod fuzz;
pub mod long;
pub mod memory;
pub mod op;
pub mod payload;
pub mod process;
pub mod random;
pub mod shm_peer;
pub mod skip;
pub mod timeout;
pub mod usage;
