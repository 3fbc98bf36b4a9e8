//! Queues and pools of one writer and one reader in shared memory.

pub mod bounce;
pub mod cmd_queue;
pub mod inject_pool;
pub mod resp_queue;
