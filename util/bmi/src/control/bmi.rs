//! `Bmi`: an instance, with its methods and contexts.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use super::method_instance::MethodInstance;
use super::parking::Parking;
use crate::ids::{CONTEXTS, ContextId, METHODS};
use crate::{Code, Module, Result};

/// A BMI instance, opened by `BMI_initialize`. Dropping it ends all outstanding operations.
#[derive(Debug)]
pub struct Bmi {
    pub(super) config: Config,
    pub(super) modules: Vec<&'static dyn Module>,
    pub(super) instances: [OnceLock<MethodInstance>; METHODS],
    /// Number of active methods.
    pub(super) active: AtomicUsize,
    /// Locked while a method is being activated.
    pub(super) activation: Mutex<()>,
    /// Open contexts, one bit each.
    pub(super) contexts: AtomicU32,
    pub(super) parking: Parking,
    /// Whether an unexpected message ends a wait of `testcontext`.
    pub(super) interrupts_on_unexpected: AtomicBool,
    /// Counter that selects the method that the next pass over all methods polls first.
    pub(super) turn: AtomicUsize,
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
        self.parking.wake_all();
    }

    /// Returns the index of an open context.
    ///
    /// # Errors
    /// [`Code::EINVAL`] if the context is not open.
    #[inline]
    pub(super) fn context(&self, context: ContextId) -> Result<u8> {
        let number = u8::try_from(context.0).map_err(|_| Code::EINVAL)?;
        let open = self.contexts.load(Ordering::Acquire);
        if usize::from(number) < CONTEXTS && open & 1 << number != 0 {
            Ok(number)
        } else {
            Err(Code::EINVAL)
        }
    }

    /// Returns the active methods.
    #[inline]
    pub(super) fn method_instances(&self) -> impl Iterator<Item = &MethodInstance> {
        let active = self.active.load(Ordering::Acquire);
        self.instances[..active].iter().filter_map(OnceLock::get)
    }

    /// Returns the active methods. Each call starts with another method.
    #[inline]
    pub(super) fn instances_rotated(&self) -> impl Iterator<Item = &MethodInstance> {
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
    pub(super) fn method_instance(&self, method: usize) -> Option<&MethodInstance> {
        self.instances.get(method)?.get()
    }
}

/// Configuration of an instance (the arguments of `BMI_initialize`).
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Schemes of the methods to activate, separated by commas, with or without the prefix `bmi_`.
    /// If empty, a lookup activates the method of its URL.
    pub methods: String,
    /// URLs under which peers find this process, separated by commas; empty for a client.
    pub listen: String,
    /// Listen at exactly that address (`BMI_TCP_BIND_SPECIFIC`).
    pub bind_specific: bool,
    /// An unexpected message counts as a reference to its sender (`BMI_AUTO_REF_COUNT`).
    pub auto_ref_count: bool,
}

impl Config {
    /// A client: a lookup activates the method of its URL.
    pub fn client() -> Self {
        Self::default()
    }

    /// A server that listens at these URLs with the methods of their schemes.
    pub fn server(listen: &str) -> Self {
        let schemes = listen.split(',').filter_map(|url| url.split_once("://"));
        let methods: Vec<_> = schemes.map(|(scheme, _)| scheme).collect();
        Self {
            methods: methods.join(","),
            listen: listen.to_owned(),
            ..Self::default()
        }
    }
}
