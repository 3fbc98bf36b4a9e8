//! The shm provider: endpoints of one machine, over shared memory.

pub mod smr;
