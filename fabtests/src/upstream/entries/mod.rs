//! The entries of the suite that run these programs.

#[cfg(test)]
mod facts;
pub mod catalogue;
pub mod mutants;

