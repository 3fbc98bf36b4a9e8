//! Layers around the objects of a provider: each call passes through the layer, and goes on to the
//! object below unless the layer changes it.
//!
//! [`Layered`] is an object of the contract around another one of the same kind. Its layer implements
//! the trait of that kind, whose methods are the calls of the contract with the object below in front
//! of their arguments; each passes the call on by default:
//!
//! ```
//! use selvedge::{Address, AddressVector, Errno, FiAddr, Result};
//! use selvedge_kit::layer::{Layered, AvLayer, ObjectLayer};
//! # use std::sync::Arc;
//!
//! /// Refuses removals.
//! struct Forever;
//!
//! impl ObjectLayer for Forever {
//!     type Layers = ();
//! }
//!
//! impl AvLayer for Forever {
//!     fn remove(&self, _below: &dyn AddressVector, _addrs: &[FiAddr]) -> Result {
//!         Err(Errno::Acces)
//!     }
//! }
//!
//! fn forever(av: Arc<dyn AddressVector>) -> Arc<dyn AddressVector> {
//!     Layered::new(av, Forever)
//! }
//! ```
//!
//! A layer puts itself around what is opened, too: [`DomainLayer::cq`] and its like open the object
//! below, and answer with an [`Layered`]. Objects that are bound to others are passed on as those below
//! ([`Layers`]), and events name the endpoints of the layer ([`Layered::name_in_events`]). Everything
//! that is posted to an endpoint comes to one method, [`EndpointLayer::post`], as an
//! [`Op`](selvedge::Op).
//!
//! A call that the contract gains is added in `calls.rs`, and nowhere else.

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

/// A layer around one object. `()` is one that changes nothing.
pub trait ObjectLayer: Send + Sync + 'static {
    /// The layers of the same kind, which are around the objects that this one is bound to.
    type Layers: Layers;

    /// The handle of the object was dropped; the object below is still there.
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
    /// The object as one that has this layer around it, if it is one.
    pub fn downcast(object: &T) -> Option<&Self> {
        object.as_any().downcast_ref()
    }

    /// The object below the layer; `object` itself if this layer is not around it.
    pub fn below(object: &Arc<T>) -> Arc<T> {
        let below = Self::downcast(object).map_or(object, |own| &own.below);
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
    /// The object as any other type, to find out which.
    fn as_any(&self) -> &dyn Any;
}
