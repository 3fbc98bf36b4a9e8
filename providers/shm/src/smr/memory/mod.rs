//! Shared memory: mappings, the bytes in them, blocks of the application, and key tables.

pub mod arena;
pub mod bytes;
pub mod keys;
pub(super) mod mapping;
pub(crate) mod prefetch;
pub mod special;
