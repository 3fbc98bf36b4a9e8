//! The layers around a provider and all objects that are opened from it.

mod endpoint;
mod objects;
mod point;
mod provider;
mod queue;
mod shared;

pub(crate) use point::{HookLayers, HookPoint};
pub use provider::{Hook, Hooked, hooked};
pub(crate) use queue::HookedQueue;
