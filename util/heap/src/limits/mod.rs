//! The memory that the process may still commit, as the machine and the control groups of the
//! process limit it.
//!
//! Ordinary memory counts when it is touched, and the heap's when it is allocated. If the heap took
//! what is available to the last page, the kernel would kill a process that ordinary memory would
//! have left alive. Therefore the heap asks here before it commits, and takes only a part.

mod budget;
mod control_groups;
mod files;
mod machine;
mod memory;
#[cfg(test)]
mod tests;

pub(crate) use self::budget::Budget;
pub(crate) use self::machine::memory;
