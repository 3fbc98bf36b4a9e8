//! The atomics, cells and queues of the lock-free parts: those of std and crossbeam, or loom's in
//! the models.

#[cfg(not(all(test, loom)))]
pub(super) use self::system::*;

#[cfg(all(test, loom))]
pub(super) use self::model::*;

#[cfg(not(all(test, loom)))]
mod system {
    pub(in crate::owned) use std::sync::Mutex;
    pub(in crate::owned) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

    pub(in crate::owned) use crossbeam_queue::ArrayQueue;
    pub(in crate::owned) use crossbeam_utils::{Backoff, CachePadded};

    /// A value that is accessed by its address.
    #[derive(Debug, Default)]
    pub(in crate::owned) struct Cell<T>(std::cell::UnsafeCell<T>);

    impl<T> Cell<T> {
        pub(in crate::owned) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        /// Calls `access` with the address of the value.
        #[inline]
        pub(in crate::owned) fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
            access(self.0.get())
        }
    }
}

#[cfg(all(test, loom))]
mod model {
    use std::collections::VecDeque;

    pub(in crate::owned) use crossbeam_utils::CachePadded;
    pub(in crate::owned) use loom::cell::UnsafeCell as Cell;
    pub(in crate::owned) use loom::sync::Mutex;
    pub(in crate::owned) use loom::sync::atomic::{AtomicU32, Ordering};

    /// A planted fault: stores that lose their release ordering.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(in crate::owned) enum Fault {
        None,
        /// The stores of the spin lock.
        Lock,
        /// The stores of state words of slots, and of free rings.
        Word,
    }

    thread_local! {
        // The threads of a model run on one system thread.
        static FAULT: std::cell::Cell<Fault> = const { std::cell::Cell::new(Fault::None) };
    }

    /// Plants a fault for the following models of this thread.
    pub(in crate::owned) fn plant(fault: Fault) {
        FAULT.set(fault);
    }

    fn unless(fault: Fault, order: Ordering) -> Ordering {
        if FAULT.get() == fault {
            Ordering::Relaxed
        } else {
            order
        }
    }

    #[derive(Debug)]
    pub(in crate::owned) struct AtomicBool(loom::sync::atomic::AtomicBool);

    impl AtomicBool {
        pub(in crate::owned) fn new(value: bool) -> Self {
            Self(loom::sync::atomic::AtomicBool::new(value))
        }

        pub(in crate::owned) fn load(&self, order: Ordering) -> bool {
            self.0.load(order)
        }

        pub(in crate::owned) fn store(&self, value: bool, order: Ordering) {
            self.0.store(value, unless(Fault::Lock, order));
        }

        pub(in crate::owned) fn compare_exchange(
            &self,
            before: bool,
            after: bool,
            success: Ordering,
            failure: Ordering,
        ) -> Result<bool, bool> {
            self.0.compare_exchange(before, after, success, failure)
        }
    }

    #[derive(Debug)]
    pub(in crate::owned) struct AtomicU64(loom::sync::atomic::AtomicU64);

    impl AtomicU64 {
        pub(in crate::owned) fn new(value: u64) -> Self {
            Self(loom::sync::atomic::AtomicU64::new(value))
        }

        pub(in crate::owned) fn load(&self, order: Ordering) -> u64 {
            self.0.load(order)
        }

        pub(in crate::owned) fn store(&self, value: u64, order: Ordering) {
            self.0.store(value, unless(Fault::Word, order));
        }

        pub(in crate::owned) fn compare_exchange_weak(
            &self,
            before: u64,
            after: u64,
            success: Ordering,
            failure: Ordering,
        ) -> Result<u64, u64> {
            self.0
                .compare_exchange_weak(before, after, success, failure)
        }
    }

    /// A bounded queue with the guarantee of `crossbeam_queue::ArrayQueue`: the push of a value
    /// happens before its pop.
    #[derive(Debug)]
    pub(in crate::owned) struct ArrayQueue<T>(Mutex<VecDeque<T>>, usize);

    impl<T> ArrayQueue<T> {
        pub(in crate::owned) fn new(capacity: usize) -> Self {
            Self(Mutex::new(VecDeque::new()), capacity)
        }

        pub(in crate::owned) fn push(&self, value: T) -> Result<(), T> {
            let mut queue = self.0.lock().unwrap();
            if queue.len() == self.1 {
                return Err(value);
            }
            queue.push_back(value);
            Ok(())
        }

        pub(in crate::owned) fn pop(&self) -> Option<T> {
            self.0.lock().unwrap().pop_front()
        }

        pub(in crate::owned) fn len(&self) -> usize {
            self.0.lock().unwrap().len()
        }
    }

    /// A wait that lets another thread run.
    pub(in crate::owned) struct Backoff;

    impl Backoff {
        pub(in crate::owned) fn new() -> Self {
            Self
        }

        pub(in crate::owned) fn snooze(&self) {
            loom::thread::yield_now();
        }
    }
}
