//! The shm provider: endpoints of one machine, over shared memory.
//!
//! ```text
//!   endpoint A                                        endpoint B
//!   outbox to B: commands, payloads, responses  -->   maps the outbox read-only
//!   maps the outbox read-only  <--  outbox to A: commands, payloads, responses
//!                  \______ socket: hello, close ______/
//! ```
//!
//! Each process writes only to its own memory. A message is a command in the outbox. Its payload is
//! inside the command, in the inject pool of the outbox, or still in the sender's memory. In the
//! last case the receiver copies it, or requests it through bounce buffers. A process that dies
//! loses only the commands that it had not committed.
//!
//! [`PROVIDER`] is the object to add to a registry. [`Endpoint`] is public so that callers can use
//! its methods without a dynamic call. [`smr`] has the shared-memory primitives that the provider
//! is built from: they contain no protocol, and any provider may use them.
//!
//! docs/PROVIDERS.md lists what the provider guarantees, docs/WIRE.md every byte that two processes
//! share, and docs/ARCHITECTURE.md the path of a message through these files.
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
// A peer may change a word of its memory between any two loads of the word. No code in this package
// may panic because such a word has changed: each exception states why it depends on state of this
// process alone.
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

/// The shm provider, to add to a [`selvedge::Registry`].
pub static PROVIDER: Shm = Shm;
