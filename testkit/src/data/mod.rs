//! Message contents, random numbers, and checks of received data.

pub mod check;
pub mod payload;
pub mod random;
