//! Contents of messages, the numbers they come from, and checks of what arrived.

pub mod check;
pub mod payload;
pub mod random;
