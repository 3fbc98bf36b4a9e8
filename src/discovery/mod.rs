//! Discovery: finds the providers that match a request, and explains which do not.

mod explanation;
mod open;
mod provider;
mod registry;
pub mod text;

pub use explanation::{Explanation, Outcome};
pub use provider::{Alias, Provider, Query};
pub use registry::Registry;
