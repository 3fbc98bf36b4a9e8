//! Parts for authors of providers: structs to embed, each usable alone.
//!
//! | part | description |
//! |---|---|
//! | [`attr::check`] | matches a provider's offer against an application's hints |
//! | [`auth::AuthKey`] | an authorization key: only endpoints with equal keys communicate |
//! | [`barrier`] | memory fences that one thread runs on the processors of others: membarrier(2) |
//! | [`fork_guard::ForkGuard`] | a check that the calling process made an object, and is no forked child |
//! | [`presence`] | checks whether addresses are mapped |
//! | [`numa`] | the NUMA nodes of the machine, and the placement of memory: mbind(2) |
//! | [`lock::Lock`] | a lock that costs only a test where the application promised single-threaded use |
//! | [`copy::RxBuf`], [`copy::TxBuf`] | the caller's promise about memory, as a value |
//! | [`srx::Matcher`] | receive matching without any I/O |
//! | [`srx::Shared`] | a shared receive context |
//! | [`atomic::Kernel`] | the operations of fi_atomic(3) on memory mapped by this process |
//! | [`cq::CqRing`] | a complete completion queue |
//! | [`cntr::Cntr`] | a complete counter |
//! | [`eq::Queue`] | a complete event queue |
//! | [`wait::ArmOutcome`] | whether and for how long one endpoint lets a thread park |
//! | [`mr::Keys`] | registered memory by key |
//! | [`segments::RmaSegments`] | the remote memory segments (`rma_iov`) of one operation |
//! | [`av::Table`] | the table behind an address vector |
//! | [`sep::Scalable`] | a complete scalable endpoint, over ordinary ones |
//! | [`ip`] | network interfaces, name resolution and an address vector, for providers over IP |
//! | [`domain::Base`] | the common part of every domain |
//! | [`DomainId`], [`FabricId`] | the fabric and the domain of an object, compared when objects are bound |
//! | [`AutoProgress`] | the thread of automatic progress |
//! | [`Ep`] | the common part of every endpoint: queues, default flags, completion policy |
//! | [`shell::Shell`] | the outer part of every endpoint: its lock, its drivers, its closing |
//! | [`StoredOp`] | an operation that owns its lists and can be posted later |
//! | [`DeferredOps`] | the deferred operations of an endpoint that have not completed |
//! | [`telemetry::StatsPage`] | the statistics of an endpoint that other processes can read |
//! | [`Report`] | the report of an operation that has completed |
//! | [`layer::Layered`] | an object that forwards to another of its kind, except for the calls that its layer changes |
//! | [`coll::open`] | collectives, over every endpoint with tagged messages |
//! | [`rate_limit::warn_limited`] | rate-limited warnings, for events that peers can cause |
//! | [`close_on_fork::CloseOnFork`] | a descriptor that children of fork(2) do not inherit |
//!
//! No code of this package accesses a device, a file or a peer: that is the provider's part. There
//! are four exceptions: [`ip`] lists the system's interfaces and resolves names, [`telemetry`]
//! creates a memory file, whose contents a crash writes to a file, [`presence`] queries the
//! process's list of mappings, and [`numa`] reads the kernel's description of the machine.

#![deny(missing_docs)]

pub mod attr;
pub mod coll;
mod completion;
pub mod domain;
mod endpoint;
pub mod layer;
mod memory;
mod os;
mod peers;
pub mod srx;
pub mod telemetry;

pub use completion::auto_progress::{AutoProgress, grant_auto_progress};
pub use completion::{cntr, cq, eq, wait};
pub use domain::identity::{DomainId, FabricId, OfDomain};
pub use domain::weak_list;
pub use endpoint::ep::{Drivers, Ep, RemoteCounters, bound_av, bound_eq, bound_srx};
pub use endpoint::report::Report;
pub use endpoint::stored_op::StoredOp;
pub use endpoint::work::{DeferredOps, HasDeferredOps};
pub use endpoint::{sep, shell};
pub use memory::{atomic, copy, mr, segments};
pub use os::{barrier, close_on_fork, fork_guard, lock, numa, presence, seal};
pub use peers::{auth, av, ip};
pub use telemetry::rate_limit;
