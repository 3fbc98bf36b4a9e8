//! The common part of every domain, its identity, and lists of the objects that it has opened.

mod base;
pub(crate) mod identity;
pub mod weak_list;

pub use base::Base;
