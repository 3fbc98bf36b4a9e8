//! The parts of measurements: clocks, timings, statistics, message sizes and buffers.

pub mod buffer;
pub mod clock;
pub mod size;
pub mod stats;
pub mod timing;
