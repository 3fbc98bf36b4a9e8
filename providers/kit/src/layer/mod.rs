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

mod bound;
mod calls;
mod endpoint;
mod named;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

pub use bound::Layers;
pub use calls::{
    AvLayer, CntrLayer, CqLayer, DomainLayer, EqLayer, FabricLayer, LayeredProvider, PassiveLayer,
    ProviderLayer, RegionLayer, ScalableLayer, SrxLayer,
};
pub use endpoint::EndpointLayer;

/// A layer around one object. `()` is a layer that changes nothing.
pub trait ObjectLayer: Send + Sync + 'static {
    /// The layers of the same kind around the objects that the object is bound to.
    type Layers: Layers;

    /// Closes the layer when the handle of the object is dropped. The object below still exists.
    fn close(&self) {}
}

impl ObjectLayer for () {
    type Layers = ();
}

/// An object with a layer around it.
pub struct Layered<T: ?Sized, L: ObjectLayer> {
    // Dropped before the layer, which may own memory that it has lent to the object.
    below: Arc<T>,
    layer: L,
}

impl<T: ?Sized, L: ObjectLayer> Layered<T, L> {
    /// Puts a layer around an object.
    pub fn new(below: Arc<T>, layer: L) -> Arc<Self> {
        Arc::new(Self { below, layer })
    }

    /// The layer.
    pub fn layer(&self) -> &L {
        &self.layer
    }
}

impl<T: ?Sized + Object, L: ObjectLayer> Layered<T, L> {
    /// Downcasts an object to one with this layer, if it has this layer.
    pub fn downcast(object: &T) -> Option<&Self> {
        object.as_any().downcast_ref()
    }

    /// The object below the layer; `object` itself if it does not have this layer.
    pub fn below(object: &Arc<T>) -> Arc<T> {
        let below = Self::downcast(object).map_or(object, |layered| &layered.below);
        Arc::clone(below)
    }
}

impl<T: ?Sized, L: ObjectLayer> Drop for Layered<T, L> {
    fn drop(&mut self) {
        self.layer.close();
    }
}

impl<T: ?Sized + fmt::Debug, L: ObjectLayer> fmt::Debug for Layered<T, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.below.fmt(f)
    }
}

/// An object of the contract, as a trait object.
pub trait Object: 'static {
    /// The object as `Any`, for a downcast.
    fn as_any(&self) -> &dyn Any;
}
