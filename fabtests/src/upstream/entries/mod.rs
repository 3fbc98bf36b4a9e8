//! The entries of the suite that run these programs.

pub mod catalogue;
pub mod mutants;
