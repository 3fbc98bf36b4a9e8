//! Memory of a process as its peers see it: mappings, the bytes in them, blocks, and keys.

pub mod bytes;
pub mod keys;
pub(super) mod mapping;
pub(crate) mod prefetch;
pub mod special;
