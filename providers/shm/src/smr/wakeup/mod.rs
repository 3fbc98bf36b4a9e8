//! State that two processes share about polling, parking and waking.

pub mod attention;
pub mod doorbell;
pub mod parking;
