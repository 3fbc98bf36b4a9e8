//! The table of the programs, with their names, options and functions.

mod absent;
mod links;

