//! Parts for authors of providers: structs to embed, each usable alone.
//!
//! | part | what it is |
//! |---|---|
//! | [`attr::check`] | holds what a provider offers against what is asked for |
//! | [`auth::AuthKey`] | the key that only endpoints with the same one talk to |
//! | [`barrier`] | fences that one thread pays for and others get |
//! | [`birth::Birth`] | the process that an object belongs to, told from children forked from it |
//! | [`lock::Lock`] | a lock that vanishes when the application promised single-threaded use |
//! | [`copy::RxBuf`], [`copy::TxBuf`] | the caller's promise about memory, as a value |
//! | [`srx::Matcher`] | receive matching without any I/O |
//! | [`srx::Shared`] | receives that several endpoints have in common |
//! | [`atomic::Kernel`] | the operations of fi_atomic(3) on memory that is mapped here |
//! | [`cq::CqRing`] | the ready-made completion queue |
//! | [`cntr::Cntr`] | the ready-made counter |
//! | [`eq::Queue`] | the ready-made event queue |
//! | [`wait::Rest`] | what an endpoint says to a thread that wants to sleep |
//! | [`mr::Keys`] | registered memory by key |
//! | [`places::Places`] | the stretches of a peer's memory that an operation names |
//! | [`av::Table`] | the table behind an address vector |
//! | [`sep::Scalable`] | the ready-made scalable endpoint, over ordinary ones |
//! | [`ip`] | interfaces, names and an address vector, for providers over IP |
//! | [`domain::Base`] | what every domain keeps |
//! | [`DomainId`], [`FabricId`] | what an object was opened from, compared when objects are bound |
//! | [`Auto`] | the thread of automatic progress |
//! | [`Ep`] | what every endpoint keeps: its queues, default flags and completion policy |
//! | [`shell::Shell`] | what every endpoint has around its state: its lock, what drives it, its end |
//! | [`StoredOp`] | an operation with lists of its own, to be posted later |
//! | [`Ledger`] | who is told of deferred work |
//! | [`telemetry::StatsPage`] | what an endpoint lets other processes see of it |
//! | [`Report`] | how an operation is told of when it is over |
//! | [`layer::Around`] | an object around another of its kind: a layer says what it changes |
//! | [`coll::open`] | collectives, for every endpoint with tagged messages |
//! | [`complaint::complain`] | warnings that peers can cause, rationed |
//! | [`inherit::Uninherited`] | a descriptor that forked children do not get |
//!
//! Nothing here talks to a device, a file or a peer: that is the provider's part. [`ip`] asks the
//! system for its interfaces, and for names; [`telemetry`] for a memory file, and what a crash writes out
//! goes to a file.

#![deny(missing_docs)]

pub mod atomic;
pub mod attr;
pub mod auth;
mod auto;
pub mod av;
pub mod barrier;
pub mod birth;
pub mod cntr;
pub mod coll;
pub mod complaint;
pub mod copy;
pub mod cq;
pub mod domain;
mod driven;
mod ep;
pub mod eq;
mod identity;
pub mod inherit;
pub mod ip;
pub mod layer;
pub mod lock;
pub mod mr;
pub mod places;
mod report;
pub mod seal;
pub mod sep;
pub mod shell;
pub mod srx;
mod stored_op;
pub mod telemetry;
pub mod wait;
pub mod weak_list;
mod work;

pub use auto::{Auto, offer_progress};
pub use ep::{Drivers, Ep, RemoteCounters, own_av, own_eq, own_srx};
pub use identity::{DomainId, FabricId, OfDomain};
pub use report::Report;
pub use stored_op::StoredOp;
pub use work::{Ledger, Owing};
