//! Macros that declare structures, tables of functions and handles of C.

pub(crate) mod handle;
pub(crate) mod structs;
pub(crate) mod table;
