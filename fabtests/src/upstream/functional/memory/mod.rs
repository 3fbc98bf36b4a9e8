//! Programs that check accesses to memory, and deferred work.

mod atomic;
mod regions;
mod rma_event;
mod trigger;
mod unmap;

