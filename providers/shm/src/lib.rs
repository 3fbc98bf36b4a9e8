//! The shm provider: endpoints of one machine, over shared memory.
//!
//! ```text
//!   endpoint A                                        endpoint B
//!   outbox to B: commands, payloads, answers  ---->   maps it read-only
//!   maps it read-only  <----  outbox to A: commands, payloads, answers
//!                  \______ socket: hello, end ______/
//! ```
//!
//! Each process writes only to memory of its own. A message is a command in the outbox: with the
//! payload inside, beside it, or still in the sender's memory, from where the receiver copies it or
//! has it bounced. Who dies takes nothing with it but what it had not committed.
//!
//! [`PROVIDER`] goes into a registry; [`Endpoint`] is public for those who want its methods without
//! a dynamic call. Below the provider are the primitives, [`smr`], which speak no protocol and are
//! there for any provider.
//!
//! What the provider promises is in docs/PROVIDERS.md, every byte that two processes share in
//! docs/WIRE.md, and the way of a message through these files in docs/ARCHITECTURE.md.
//!
//! # Examples
//!
//! ```
//! use selvedge::{Caps, Hints, Registry};
//!
//! let registry = Registry::new().with(&selvedge_shm::PROVIDER);
//! let info = registry.infos(&Hints::new().caps(Caps::TAGGED))?.remove(0);
//! let domain = info.open()?;
//! # drop(domain);
//! # Ok::<(), selvedge::Error>(())
//! ```

#![deny(missing_docs)]
// A peer may change every word that it has written, between any two looks at it. Nothing in this
// package may end the process for a word that is not as it was: each exception says why it hangs on
// state of this process alone.
#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::panic, clippy::unreachable)
)]

mod atomic;
mod connect;
mod endpoint;
mod matching;
mod memory;
mod peers;
mod progress;
mod provider;
mod rma;
pub mod smr;
mod transfers;

pub use endpoint::Endpoint;
pub use provider::Shm;

/// The provider, for a registry.
pub static PROVIDER: Shm = Shm;
