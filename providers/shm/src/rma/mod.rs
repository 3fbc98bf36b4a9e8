//! One-sided operations.

pub(crate) mod access;
pub(crate) mod direct;
mod post;
