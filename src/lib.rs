//! Selvedge: a communication fabric, which has libfabric's object model in Rust.
//!
//! A program exchanges messages with peers and accesses their memory through a *provider*, which
//! implements one transport: shared memory, TCP, UDP, or a device. This crate defines the interface
//! between programs and providers: traits, plain data types, and a safe layer. The crate contains
//! no provider; `selvedge-providers` lists the built-in providers.
//!
//! ```text
//!   Registry --getinfo(Hints)--> Info           a description of an endpoint, with its limits
//!                                 | open()
//!            Fabric ------------> Domain        a network, and one interface of it
//!                                 |
//!        +----------------+-------+--------+------------------+
//!        |                |                |                  |
//!   AddressVector   CompletionQueue    Endpoint          MemoryRegion
//!   the peers       completions        posts             memory that peers
//!                   and progress       operations        read and write
//!                         ^                |
//!                         +--- Context ----+
//! ```
//!
//! - Discovery returns the [`Info`]s that match the application's [`Hints`], best first. The
//!   application opens one of them.
//! - Operations of an endpoint are *posted*: the call returns at once, and a completion with the
//!   post's [`Context`] reports the result. [`Errno::Again`] means that a queue is full.
//! - Progress is manual: reading a completion queue drives the progress of the endpoints that are
//!   bound to the queue. The library runs threads only on request.
//! - An address vector maps the [`Address`] of a peer to an index, [`FiAddr`], which operations use.
//! - Dropping a handle closes its object. Handles may be dropped in any order.
//!
//! # Ownership of buffers
//!
//! | layer | methods | ownership of the buffer |
//! |---|---|---|
//! | owned | [`owned::Endpoint`], [`owned::AsyncEndpoint`] | the operation owns the buffer; the completion returns it |
//! | inject | [`Msg::inject`], [`Tagged::tinject`] | the caller owns the buffer, whose bytes are copied before the call returns |
//! | raw | [`Msg::sendmsg`] and the other `unsafe` methods | the caller owns the buffer, and keeps it valid until the completion |
//!
//! # Examples
//!
//! An endpoint sends a message to itself, in safe code (`examples/hello.rs`):
//!
//! ```
//! use selvedge::owned::{Completions, Endpoint, Pool};
//! use selvedge::{Caps, Context, Errno, FiAddr, Hints, av, wait};
//!
//! const TAG: u64 = 7;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let hints = Hints::new().caps(Caps::TAGGED);
//!     let info = selvedge_providers::builtin().infos(&hints)?.remove(0);
//!     let domain = info.open()?;
//!     let av = domain.av(&av::Attr::default())?;
//!     let ep = Endpoint::open_waiting(&*domain, &info, av.clone(), wait::Object::Unspec)?;
//!     let peer = av.insert_one(&ep.address()?)?; // this endpoint
//!
//!     let pool = Pool::new(&*domain, 4096, 2)?;
//!     let recv_buf = pool.take().ok_or(Errno::NoBufs)?;
//!     let mut hello = pool.take().ok_or(Errno::NoBufs)?;
//!     hello.write(b"hello, fabric")?;
//!     ep.trecv(recv_buf, FiAddr::UNSPEC, TAG, Context(1))?;
//!     ep.tsend(hello, peer, TAG, Context(2))?;
//!
//!     let mut done = Completions::with_capacity(2);
//!     while ep.wait(&mut done, None)? < 2 {}
//!     for completion in done.drain().filter(|done| done.context == Context(1)) {
//!         completion.result.map_err(|error| error.errno)?;
//!         println!("{}", String::from_utf8_lossy(&completion.buf));
//!     }
//!     Ok(())
//! }
//! ```
//!
//! # Modules
//!
//! Names are those of libfabric: the man page `fi_cq(3)` corresponds to the module [`cq`], the
//! function
//! `fi_tsendmsg(3)` to the method [`Tagged::tsendmsg`], the constant `FI_TAGGED` to [`Caps::TAGGED`].
//!
//! | module | content |
//! |---|---|
//! | [`owned`] | the safe layer: pools, buffers, polled and async endpoints, shared regions |
//! | [`info`] | [`Info`] and its attributes, [`Hints`] |
//! | [`param`] | parameters from the environment (`FI_*`) |
//! | [`log`] | log output (`FI_LOG_*`) |
//! | [`msg`], [`tagged`], [`rma`], [`atomic`] | operations of an [`Endpoint`]: [`Msg`], [`Tagged`], [`Rma`], [`Atomic`] |
//! | [`op`] | an operation as a value: [`Op`] |
//! | [`cq`], [`cntr`], [`eq`], [`wait`] | completions and events: [`CompletionQueue`], [`Counter`], [`EventQueue`], and wait objects |
//! | [`poll`] | poll sets and wait sets of queues and counters |
//! | [`text`] | descriptions in the layout of fi_tostr(3) |
//! | [`trigger`] | triggered operations and deferred work |
//! | [`collective`] | collective operations of groups: [`Collective`] |
//! | [`av`], [`mr`], [`alloc`] | [`AddressVector`], [`MemoryRegion`], [`Allocation`] |
//!
//! The crate root has the objects ([`Provider`], [`Registry`], [`Fabric`], [`Domain`],
//! [`Endpoint`],
//! [`PassiveEndpoint`]), the flag sets, [`Address`], [`Iov`], and two error types: [`Errno`], a number,
//! for the data path, and [`Error`], a number with a text, for set-up.

#![deny(missing_docs)]
#![warn(clippy::exhaustive_structs)]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "selvedge supports Linux alone: its descriptors, its error numbers and its providers' memory \
     files are those of Linux; build it for a Linux target"
);
#[cfg(not(target_pointer_width = "64"))]
compile_error!(
    "selvedge supports 64-bit targets alone: its structures have libfabric's layout with pointers \
     of 64 bits; build it for a 64-bit target"
);

pub mod av;
mod discovery;
pub mod info;
pub mod log;
mod memory;
mod objects;
mod operations;
pub mod owned;
pub mod param;
mod queues;
mod types;

pub use av::AddressVector;
pub use discovery::{Alias, Explanation, Outcome, Provider, Query, Registry, text};
pub use info::{Hints, Info};
pub use memory::{Allocation, MemoryRegion, alloc, mr, shared};
pub use objects::{
    Bindings, ConnectionManagement, Counters, Domain, Endpoint, EpOption, EpOptionName, Fabric,
    LateBindings, Limits, Membership, PassiveEndpoint, ScalableEndpoint, SharedReceives,
};
pub use operations::{
    Atomic, AtomicExt, Collective, CollectiveExt, Lending, LentMemory, Msg, MsgExt, Op, Rma,
    RmaExt, TagMatch, Tagged, TaggedExt, atomic, collective, lending, msg, op, rma, tagged,
    trigger,
};
pub use queues::{CompletionQueue, Counter, EventQueue, cntr, cq, eq, poll, wait};
pub use types::{
    AddrFormat, Address, Caps, CompletionFlags, Context, Desc, Errno, Error, FiAddr, InfoFlags,
    Iov, IovMut, Mode, MrAccess, MrMode, MsgOrder, OpFlags, PeerCredentials, Result,
};
