//! Tests of the objects that report completions and events.

mod counters;
mod events;
mod queues;
mod sets;
mod triggers;
mod waiting;

