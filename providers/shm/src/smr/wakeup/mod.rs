//! What two processes tell each other about polling, parking and waking.

pub mod attention;
pub mod doorbell;
pub mod parking;
