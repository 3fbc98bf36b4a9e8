//! Tests of the objects that report completions and events.

pub(super) mod counters;
pub(super) mod events;
pub(super) mod queues;
pub(super) mod sets;
pub(super) mod triggers;
pub(super) mod waiting;
