//! The memory of a domain: registered regions and their key table, memory that the domain
//! allocates, the announcements of both to peers, and the domain's own endpoints.

pub(crate) mod alloc;
pub(crate) mod announcements;
pub(crate) mod arena;
pub(crate) mod heap;
pub(crate) mod keys;
pub(crate) mod mapping_quota;
pub(crate) mod siblings;
pub(crate) mod special;
