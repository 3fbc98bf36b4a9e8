//! The memory of a domain: registered regions and the table of their keys, memory that the domain
//! makes, what peers are told of both, and the endpoints that share it.

pub(crate) mod alloc;
pub(crate) mod announcements;
pub(crate) mod keys;
pub(crate) mod mapping_quota;
pub(crate) mod mr;
pub(crate) mod siblings;
pub(crate) mod special;
