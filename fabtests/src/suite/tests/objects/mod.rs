//! Tests of how objects are found, opened, connected and closed.

pub(super) mod closing;
pub(super) mod connections;
pub(super) mod contexts;
pub(super) mod discovery;
pub(super) mod domains;
pub(super) mod shared;
pub(super) mod vectors;
