//! Test utilities that several packages share.

mod data;
pub mod domain;
pub mod endpoint;
pub mod fuzz;
pub mod local;
pub mod memory;
pub mod op;
mod oracles;
mod run;
pub mod shm_peer;

pub use data::{check, payload, random};
pub use oracles::{atomics, collectives};
pub use run::{failure, long, process, schedstat, skip, timeout, usage};
