//! Facilities of the operating system: locks, memory fences, sealed files, placement of memory, and
//! checks of the process that made an object.

pub mod barrier;
pub mod close_on_fork;
pub mod fork_guard;
pub mod lock;
pub mod numa;
pub mod presence;
pub mod seal;
