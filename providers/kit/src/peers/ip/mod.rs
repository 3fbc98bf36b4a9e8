//! The common parts of providers over IP: network interfaces, name resolution, address vectors.

mod address_pair;
mod av;
pub mod interface;
mod nic;
pub mod resolve;

pub use address_pair::{AddressPair, address_pairs, requested_address};
pub use av::Av;
pub use resolve::canonical_addr;

/// The largest size of an address as text in bytes: an IPv6 address with scope and port, and the
/// terminating zero.
pub const ADDRESS_MAX: usize = 80;
