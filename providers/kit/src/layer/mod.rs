//! Layers around the objects of a provider: each call goes to the layer, which forwards it to the
//! object below unless it changes the call.
//!
//! [`Layered`] is an object of the contract around another one of the same kind. Its layer
//! implements the layer trait of that kind, whose methods are the calls of the contract with the
//! object below as first argument. By default, each forwards the call:
//!
//! ```
//! use selvedge::{Address, AddressVector, Errno, FiAddr, Result};
//! use selvedge_kit::layer::{Layered, AvLayer, ObjectLayer};
//! # use std::sync::Arc;
//!
//! /// Refuses removals.
//! struct NoRemoval;
//!
//! impl ObjectLayer for NoRemoval {
//!     type Layers = ();
//! }
//!
//! impl AvLayer for NoRemoval {
//!     fn remove(&self, _below: &dyn AddressVector, _addrs: &[FiAddr]) -> Result {
//!         Err(Errno::Acces)
//!     }
//! }
//!
//! fn without_removal(av: Arc<dyn AddressVector>) -> Arc<dyn AddressVector> {
//!     Layered::new(av, NoRemoval)
//! }
//! ```
//!
//! A layer also wraps the objects that are opened through it: methods such as [`DomainLayer::cq`]
//! open the object below and return a [`Layered`]. Objects that are bound to others are replaced by
//! those below ([`Layers`]), and events name the endpoints of the layer
//! ([`Layered::name_in_events`]). Every operation that is posted to an endpoint goes to one method,
//! [`EndpointLayer::post`], as an [`Op`](selvedge::Op).
//!
//! A new call of the contract is added in `calls.rs`, and nowhere else.

mod calls;
mod endpoint;
mod layered;
mod named;
#[cfg(test)]
mod tests;

pub use calls::{
    AvLayer, CntrLayer, CqLayer, DomainLayer, EqLayer, FabricLayer, LayeredProvider, PassiveLayer,
    ProviderLayer, RegionLayer, ScalableLayer, SrxLayer,
};
pub use endpoint::EndpointLayer;
pub use layered::{Layered, Layers, Object, ObjectLayer};
