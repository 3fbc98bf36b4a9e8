//! The suite: tests of providers that run as real processes, and what runs them.
//!
//! A test is an [`Entry`]: a few processes of this program, what they are started with, and how long
//! they may take. The [`run`] module starts them, hears what they say over their [`control`]
//! sockets, and gives each entry a [`Verdict`]. [`catalogue`] makes the entries: the conformance
//! tests, which know nothing of any provider, for each provider, endpoint type and face, and the
//! programs of the suite. What a provider is not expected to do stands in [`Manifest`], with the
//! reason.

pub mod catalogue;
pub mod conformance;
pub mod control;
mod cx;
mod entry;
pub(crate) mod flaw;
mod manifest;
pub mod misbehave;
pub mod report;
pub mod run;
mod tests;
mod verdict;

pub use entry::{Entry, Process, Set, Start};
pub use manifest::{Manifest, Variant};
pub use verdict::{Report, Verdict};
