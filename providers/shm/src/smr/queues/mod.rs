//! Queues and pools in shared memory with one writer and one reader each.

pub mod bounce;
pub mod cmd_queue;
pub mod inject_pool;
pub mod resp_queue;
