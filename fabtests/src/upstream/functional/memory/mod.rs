//! Programs that check accesses to memory, and deferred work.

pub(super) mod atomic;
pub(super) mod regions;
pub(super) mod rma_event;
pub(super) mod trigger;
pub(super) mod unmap;
