//! The shm provider: endpoints of one machine, over shared memory.

mod av;
mod choice;
mod cma;
mod cmd;
mod config;
mod contact;
mod control;
mod domain;
mod endpoint;
mod exchange;
mod liveness;
mod msg;
mod name;
mod packet;
mod peer;
mod progress;
mod proto;
mod provider;
mod rendezvous;
pub mod smr;
mod state;

pub use endpoint::Endpoint;
pub use provider::Shm;

/// The provider, for a registry.
pub static PROVIDER: Shm = Shm;
