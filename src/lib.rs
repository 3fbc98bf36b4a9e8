//! Selvedge: a communication fabric. libfabric's object model in Rust.

#![deny(missing_docs)]

mod addr;
pub mod atomic;
pub mod av;
mod cm;
pub mod cntr;
pub mod cq;
mod domain;
mod endpoint;
pub mod eq;
mod errno;
mod error;
mod fabric;
mod flags;
pub mod info;
mod iov;
pub mod log;
pub mod mr;
pub mod msg;
pub mod owned;
pub mod param;
mod provider;
mod registry;
pub mod rma;
pub mod tagged;
mod tostr;
mod verdict;
pub mod wait;

pub use addr::{AddrFormat, Address, FiAddr};
pub use atomic::Atomic;
pub use av::AddressVector;
pub use cm::{ConnectionManagement, PassiveEndpoint};
pub use cntr::Counter;
pub use cq::CompletionQueue;
pub use domain::Domain;
pub use endpoint::{Bindings, Counters, Endpoint, EpOption, EpOptionName};
pub use eq::EventQueue;
pub use errno::{Errno, Result};
pub use error::Error;
pub use fabric::Fabric;
pub use flags::{Caps, CompletionFlags, InfoFlags, Mode, MrAccess, MrMode, MsgOrder, OpFlags};
pub use info::{Hints, Info};
pub use iov::{Context, Desc, Iov, IovMut};
pub use mr::MemoryRegion;
pub use msg::{Msg, MsgExt};
pub use provider::{Provider, Query};
pub use registry::Registry;
pub use rma::{Rma, RmaExt};
pub use tagged::{TagMatch, Tagged, TaggedExt};
pub use verdict::{Outcome, Verdict};
