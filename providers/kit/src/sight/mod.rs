//! Sight: what another process of the same user sees of an endpoint.
//!
//! Every endpoint has a [`Page`] of shared memory, in which it counts what it does and writes down
//! now and then how things stand: queue depths, peers, what is waited for. It is an anonymous memory
//! file, found by its name under `/proc/PID/fd`, so the page is gone when the process is, however
//! that ended, and nobody but the processes of the same user gets at it. `fi_top` reads pages.
//!
//! Who counts is alone: plain loads and stores of words that nobody else writes. What stands there
//! is never read back, so whatever a reader did to a page would change no endpoint's mind.
//!
//! Not here: who the readers are, and what they make of it.

pub mod crash;
mod flight;
pub mod layout;
mod page;
mod seen;
pub mod seq;
mod settings;
mod standing;

pub use flight::{Event, What};
pub use layout::{PeerState, Tally, Way};
pub use page::{Page, now};
pub use seen::{Directed, KeptMessage, Seen, SeenPeer, Wait};
pub use settings::Settings;
pub use standing::{Gauge, PeerStanding, Standing};
