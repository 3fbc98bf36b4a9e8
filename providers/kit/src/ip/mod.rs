//! What providers over IP have in common: interfaces, names, and addresses by index.

mod av;
pub mod interface;
mod place;
pub mod resolve;

pub use av::{Av, known_as};
pub use place::{Place, own_address, places};

/// Bytes of a written address: an IPv6 one with scope and port, and the zero behind it.
pub const ADDRESS_MAX: usize = 80;
