//! Tests of how objects are found, opened, connected and closed.

mod closing;
mod connections;
mod contexts;
mod discovery;
mod domains;
mod shared;
mod vectors;

