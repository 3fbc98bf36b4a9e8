//! Shared-memory primitives: what the shm provider is made of, and any provider may use for its
//! traffic inside the machine. They know nothing of endpoints and speak no protocol.
//!
//! - [`Region`] and [`PeerRegion`]: the two ends of sealed memory with one writer (`smr_region`);
//! - [`cmd_queue`]: commands, one cache line each (`smr_cmd`);
//! - [`inject_pool`]: payloads that do not fit a command (`smr_inject_buf`);
//! - [`resp_queue`]: answers (`smr_resp`);
//! - [`doorbell`]: a hint which queues have news;
//! - [`bytes`]: copies in and out.
//!
//! The rules they keep: no lock, no pointer and no function in shared memory; every process writes
//! only what it owns, the doorbell excepted; nothing that a peer wrote is believed.

pub mod bounce;
pub mod bytes;
pub mod cmd_queue;
pub mod doorbell;
pub mod inject_pool;
pub mod layout;
mod map;
#[cfg(loom)]
pub mod model;
mod prefetch;
mod region;
pub mod resp_queue;
pub(crate) mod sync;

pub use layout::Sizes;
pub use map::{Addr, Map, UNSPEC};
pub use region::{Attr, Mapping, Memory, PeerRegion, Region, Writers};
