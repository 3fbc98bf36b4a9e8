//! The suite: tests of providers that run as real processes, and their runner.
//!
//! A test is an [`Entry`]: a few processes of this program, with their arguments and a time limit.
//! The [`run`] module starts the processes, receives their messages over [`control`] sockets, and
//! gives each entry an [`Outcome`]. [`catalogue`] makes the entries: the conformance tests, which
//! are independent of providers, for each provider, endpoint type and API, and the programs of the
//! suite. [`Manifest`] has the tests that a provider is not expected to pass, with reasons.

pub mod catalogue;
pub mod conformance;
pub(crate) mod context;
pub mod control;
pub(crate) mod defect;
mod entry;
mod manifest;
mod outcome;
pub mod report;
pub mod run;
mod tests;

pub use entry::{Entry, Process, Selection, Set, Start};
pub use manifest::{Manifest, Variant};
pub use outcome::{Outcome, Report};
