//! One-sided operations.

pub(crate) mod access;
