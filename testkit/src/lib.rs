//! Parts of Selvedge's tests that several packages share.

pub mod fuzz;
pub mod long;
pub mod random;
pub mod skip;
