//! Memory that operations access: message buffers, registered regions and atomics.

pub mod atomic;
pub mod copy;
pub mod mr;
pub mod segments;
