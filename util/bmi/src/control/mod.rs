//! The method control layer: selects the method for each peer and address, and offers one
//! thread-safe interface to all methods.
//!
//! The layer copies a payload only if it is a segment list and the method does not support lists
//! ([`pack`]).

pub(crate) mod info;
mod method_instance;
mod open;
mod pack;
mod parking;
pub(crate) mod post;
pub(crate) mod queues;
mod test;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

pub use info::Limit;
pub use open::{Config, transports};
pub use post::{Post, Posted};
pub use test::WAIT;

use crate::ids::{CONTEXTS, ContextId, METHODS};
use crate::{Code, Module, Result};
use method_instance::MethodInstance;
use parking::Parking;

/// A BMI instance, opened by `BMI_initialize`. Dropping it ends all outstanding operations.
#[derive(Debug)]
pub struct Bmi {
    config: Config,
    modules: Vec<&'static dyn Module>,
    instances: [OnceLock<MethodInstance>; METHODS],
    /// Number of active methods.
    active: AtomicUsize,
    /// Locked while a method is being activated.
    activation: Mutex<()>,
    /// Open contexts, one bit each.
    contexts: AtomicU32,
    parking: Parking,
    /// Whether an unexpected message ends a wait of `testcontext`.
    interrupts_on_unexpected: AtomicBool,
    /// Counter that selects the method that the next pass over all methods polls first.
    turn: AtomicUsize,
}

impl Bmi {
    /// Opens a context (`BMI_open_context`).
    ///
    /// # Errors
    /// [`Code::EBUSY`] when [`CONTEXTS`] contexts are open.
    pub fn open_context(&self) -> Result<ContextId> {
        let mut found = 0;
        let open = |open: u32| {
            found = (!open).trailing_zeros();
            (found < CONTEXTS as u32).then(|| open | 1 << found)
        };
        let (set, fetch) = (Ordering::AcqRel, Ordering::Acquire);
        match self.contexts.fetch_update(set, fetch, open) {
            Ok(_) => Ok(ContextId(i64::from(found))),
            Err(_) => Err(Code::EBUSY),
        }
    }

    /// Closes a context (`BMI_close_context`). Drops its completions, including those of operations
    /// that are still pending. Does nothing if the context is not open.
    pub fn close_context(&self, context: ContextId) {
        let Ok(number) = self.context(context) else {
            return;
        };
        self.method_instances()
            .for_each(|instance| instance.lock(&self.parking).queues().close_context(number));
        self.contexts.fetch_and(!(1 << number), Ordering::AcqRel);
        // Threads that are parked in a test of this context wake and find it closed.
        self.wake_all();
    }

    /// Returns the index of an open context.
    ///
    /// # Errors
    /// [`Code::EINVAL`] if the context is not open.
    #[inline]
    fn context(&self, context: ContextId) -> Result<u8> {
        let number = u8::try_from(context.0).map_err(|_| Code::EINVAL)?;
        let open = self.contexts.load(Ordering::Acquire);
        match usize::from(number) < CONTEXTS && open & 1 << number != 0 {
            true => Ok(number),
            false => Err(Code::EINVAL),
        }
    }

    /// Returns the active methods.
    #[inline]
    fn method_instances(&self) -> impl Iterator<Item = &MethodInstance> {
        let active = self.active.load(Ordering::Acquire);
        self.instances[..active].iter().filter_map(OnceLock::get)
    }

    /// Returns the active methods. Each call starts with another method.
    #[inline]
    fn instances_rotated(&self) -> impl Iterator<Item = &MethodInstance> {
        let active = self.active.load(Ordering::Acquire);
        let first = match active {
            0 | 1 => 0,
            _ => self.turn.fetch_add(1, Ordering::Relaxed) % active,
        };
        let (behind, front) = self.instances[..active].split_at(first);
        front.iter().chain(behind).filter_map(OnceLock::get)
    }

    /// Returns the active method with an index.
    #[inline]
    fn method_instance(&self, method: usize) -> Option<&MethodInstance> {
        self.instances.get(method)?.get()
    }
}
