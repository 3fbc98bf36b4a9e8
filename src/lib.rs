//! Selvedge: a communication fabric. libfabric's object model in Rust.
//!
//! A fabric lets a program hand whole messages and stretches of memory to a *provider*, a piece of
//! code that knows one way of moving bytes: the memory of this machine, a socket, a device. This
//! crate is the contract between the two: traits, plain data, and a layer that is safe to use. It
//! knows no provider. The built-in ones are listed by the crate `selvedge-providers`.
//!
//! ```text
//!   Registry --getinfo(Hints)--> Info           which ways there are, and their limits
//!                                 | open()
//!            Fabric ------------> Domain        a network, and one interface of it
//!                                 |
//!        +----------------+-------+--------+------------------+
//!        |                |                |                  |
//!   AddressVector   CompletionQueue    Endpoint          MemoryRegion
//!   who the peers   what is done,      where operations  what peers may
//!   are             and progress       are posted        read and write
//!                         ^                |
//!                         +--- Context ----+
//! ```
//!
//! - Discovery answers [`Hints`] with [`Info`]s, best first; the application opens one.
//! - Everything an endpoint does is *posted*: the call returns at once, and a completion with the
//!   post's [`Context`] says when it is done. [`Errno::Again`] means that a queue is full.
//! - Nothing happens behind the application's back: reading a completion queue is what moves
//!   things (manual progress).
//! - Peers are numbers: an address vector turns an [`Address`] into an [`FiAddr`].
//! - Handles close what they stand for when they are dropped, in any order.
//!
//! # The three ways to post
//!
//! | way | form | who keeps the bytes |
//! |---|---|---|
//! | owned | [`owned::Endpoint`], [`owned::AsyncEndpoint`] | the buffer moves in, and comes back with the completion |
//! | inject | [`Msg::inject`], [`Tagged::tinject`] | they are copied before the call returns |
//! | raw | [`Msg::sendmsg`] and its kin, `unsafe` | the caller, who promises it |
//!
//! # Examples
//!
//! A message to oneself, in safe code (`examples/hello.rs`):
//!
//! ```
//! use selvedge::owned::{Completions, Endpoint, Pool};
//! use selvedge::{Caps, Context, Errno, FiAddr, Hints, av};
//!
//! const TAG: u64 = 7;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let hints = Hints::new().caps(Caps::TAGGED);
//!     let info = selvedge_providers::builtin().infos(&hints)?.remove(0);
//!     let domain = info.open()?;
//!     let av = domain.av(&av::Attr::default())?;
//!     let ep = Endpoint::open(&*domain, &info, av.clone())?;
//!     let peer = av.insert_one(&ep.address()?)?; // ourselves
//!
//!     let pool = Pool::new(&*domain, 4096, 2)?;
//!     let room = pool.take().ok_or(Errno::NoBufs)?;
//!     let mut hello = pool.take().ok_or(Errno::NoBufs)?;
//!     hello.write(b"hello, fabric")?;
//!     ep.trecv(room, FiAddr::UNSPEC, TAG, Context(1))?;
//!     ep.tsend(hello, peer, TAG, Context(2))?;
//!
//!     let mut done = Completions::with_capacity(2);
//!     while ep.poll(&mut done)? < 2 {}
//!     for completion in done.drain().filter(|done| done.context == Context(1)) {
//!         completion.result.map_err(|error| error.errno)?;
//!         println!("{}", String::from_utf8_lossy(&completion.buf));
//!     }
//!     Ok(())
//! }
//! ```
//!
//! # Where things are
//!
//! Names are libfabric's: the module of a man page `fi_cq(3)` is [`cq`], the method of
//! `fi_tsendmsg(3)` is [`Tagged::tsendmsg`], the constant `FI_TAGGED` is [`Caps::TAGGED`].
//!
//! | module | what is there |
//! |---|---|
//! | [`owned`] | the safe layer: pools, buffers, endpoints that are polled or awaited, windows |
//! | [`info`] | [`Info`] and its attributes, [`Hints`] |
//! | [`param`] | parameters from the environment (`FI_*`) |
//! | [`log`] | messages for people (`FI_LOG_*`) |
//! | [`msg`], [`tagged`], [`rma`], [`atomic`] | what an [`Endpoint`] does: [`Msg`], [`Tagged`], [`Rma`], [`Atomic`] |
//! | [`op`] | any of these operations as a value: [`Op`] |
//! | [`cq`], [`cntr`], [`eq`], [`wait`] | how it is learnt that something is done: [`CompletionQueue`], [`Counter`], [`EventQueue`], and how to sleep until then |
//! | [`poll`] | several of them together |
//! | [`text`] | descriptions in libfabric's layout |
//! | [`trigger`] | what is done when a counter has reached a number |
//! | [`collective`] | groups, and what their members do together: [`Collective`] |
//! | [`av`], [`mr`], [`alloc`] | [`AddressVector`], [`MemoryRegion`], [`Allocation`] |
//! | [`presence`] | whether there is memory at an address that a peer has named |
//!
//! The objects themselves ([`Provider`], [`Registry`], [`Fabric`], [`Domain`], [`Endpoint`],
//! [`PassiveEndpoint`]), the flag sets, [`Address`], [`Iov`] and the two errors ([`Errno`] for what
//! a loop calls, [`Error`] for what a person reads) are at the top.

#![deny(missing_docs)]
#![warn(clippy::exhaustive_structs)]

mod addr;
pub mod alloc;
pub mod atomic;
pub mod av;
mod cm;
pub mod cntr;
pub mod collective;
pub mod cq;
mod domain;
mod endpoint;
pub mod eq;
mod errno;
mod error;
mod fabric;
mod flags;
mod handle;
pub mod info;
mod iov;
pub mod log;
pub mod mr;
pub mod msg;
pub mod op;
mod option;
pub mod owned;
mod pages;
pub mod param;
pub mod poll;
pub mod presence;
mod provider;
mod registry;
pub mod rma;
mod sep;
pub mod shared;
mod srx;
pub mod tagged;
pub mod text;
mod tostr;
pub mod trigger;
mod verdict;
pub mod wait;

pub use addr::{AddrFormat, Address, FiAddr};
pub use alloc::Allocation;
pub use atomic::{Atomic, AtomicExt};
pub use av::AddressVector;
pub use cm::{ConnectionManagement, Membership, PassiveEndpoint};
pub use cntr::Counter;
pub use collective::{Collective, CollectiveExt};
pub use cq::CompletionQueue;
pub use domain::Domain;
pub use endpoint::{Bindings, Counters, Endpoint, LateBindings};
pub use eq::EventQueue;
pub use errno::{Errno, Result};
pub use error::Error;
pub use fabric::Fabric;
pub use flags::{Caps, CompletionFlags, InfoFlags, Mode, MrAccess, MrMode, MsgOrder, OpFlags};
pub use info::{Hints, Info};
pub use iov::{Context, Desc, Iov, IovMut};
pub use mr::MemoryRegion;
pub use msg::{Msg, MsgExt};
pub use op::Op;
pub use option::{EpOption, EpOptionName, Limits};
pub use provider::{OtherName, Provider, Query};
pub use registry::Registry;
pub use rma::{Rma, RmaExt};
pub use sep::ScalableEndpoint;
pub use srx::SharedReceives;
pub use tagged::{TagMatch, Tagged, TaggedExt};
pub use verdict::{Outcome, Verdict};
