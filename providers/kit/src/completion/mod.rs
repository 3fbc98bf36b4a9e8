//! Objects that report events and drive endpoints: completion queues, counters and event queues,
//! with the waits of their readers and the thread of automatic progress.

pub(crate) mod auto_progress;
pub mod cntr;
pub mod cq;
pub mod eq;
mod idle_polls;
pub(crate) mod progress;
pub(crate) mod progress_list;
pub mod wait;
