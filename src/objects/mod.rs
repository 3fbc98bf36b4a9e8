//! The objects that programs open: fabrics, domains, and kinds of endpoints.

mod bindings;
mod cm;
mod domain;
mod endpoint;
mod fabric;
pub(crate) mod handle;
mod option;
mod sep;
mod srx;

pub use bindings::Bindings;
pub use cm::{ConnectionManagement, Membership, PassiveEndpoint};
pub use domain::Domain;
pub(crate) use domain::allocate_ordinary;
pub use endpoint::{Counters, Endpoint, LateBindings};
pub use fabric::Fabric;
pub use option::{EpOption, EpOptionName, Limits};
pub use sep::ScalableEndpoint;
pub use srx::SharedReceives;
