//! Loom models of the lock-free parts, over the production source: a value has one holder at a
//! time, and each holder sees the writes of the previous one.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom \
//!     cargo test -p selvedge --release --lib owned::model
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use loom::sync::Mutex;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use super::endpoint::slots::{Held, Key, Slots};
use super::free_list::{Free, FreeList, FreeRing};
use super::spin_lock::SpinLock;
use super::sync::{Fault, plant};
use crate::Context;

/// Explores all interleavings with up to three preemptions.
fn explore(fault: Fault, model: impl Fn() + Send + Sync + 'static) {
    plant(fault);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

fn is_noticed(model: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(model)).is_err()
}

/// Runs `body` in two threads.
fn twice(body: impl Fn(u64) + Clone + 'static) {
    let other = {
        let body = body.clone();
        thread::spawn(move || body(1))
    };
    body(0);
    other.join().unwrap();
}

fn three_threads_lock(fault: Fault) {
    explore(fault, || {
        let lock = Arc::new(SpinLock::new(0));
        let third = {
            let lock = Arc::clone(&lock);
            thread::spawn(move || lock.with(|count| *count += 1))
        };
        let shared = Arc::clone(&lock);
        twice(move |_| shared.with(|count| *count += 1));
        third.join().unwrap();
        assert_eq!(lock.with(|count| *count), 3);
    });
}

/// Two threads add values to a table with this depth. A third removes the values whose keys it has
/// seen.
fn values_come_back_once(fault: Fault, depth: u32) {
    explore(fault, move || {
        let slots = Arc::new(Slots::<u64>::new(depth, ()));
        let contexts: Arc<[AtomicU64; 2]> = Arc::default();
        let are_done: Arc<Mutex<[bool; 2]>> = Arc::default();
        let complete = {
            let (slots, contexts) = (Arc::clone(&slots), Arc::clone(&contexts));
            move || {
                let mut are_done = are_done.lock().unwrap();
                for (value, is_done) in are_done.iter_mut().enumerate() {
                    let context = contexts[value].load(Ordering::Acquire);
                    if context != 0 && !*is_done {
                        let key = Key::from(Context(context));
                        assert_eq!(slots.remove(key), Some(Held::Added(value as u64)));
                        assert_eq!(slots.remove(key), None);
                        *is_done = true;
                    }
                }
            }
        };
        let completer = thread::spawn(complete.clone());
        let (poster, posted) = (Arc::clone(&slots), Arc::clone(&contexts));
        twice(move |value| {
            if let Some(vacancy) = poster.reserve() {
                let key = vacancy.put(value);
                // A provider's queue is read after what was posted to it.
                posted[value as usize].store(Context::from(key).0, Ordering::Release);
            } else {
                assert_eq!(depth, 1, "there is room for both");
            }
        });
        completer.join().unwrap();
        complete();
        let vacant = slots.reserve().expect("a slot was lost");
        let next = Context::from(vacant.put(2)).0;
        let is_next = |context: &AtomicU64| context.load(Ordering::Relaxed) == next;
        assert!(!contexts.iter().any(is_next), "a key was reused");
    });
}

/// The common interface of both free lists.
trait Indices: Send + Sync + 'static {
    fn take(&self) -> Option<u32>;
    fn release(&self, index: u32);
}

impl Indices for FreeList<u32> {
    fn take(&self) -> Option<u32> {
        self.take().map(|free| match free {
            Free::Untouched(index) | Free::Released(index) => index,
        })
    }

    fn release(&self, index: u32) {
        self.release(index);
    }
}

/// Releases are serialized by a mutex.
impl Indices for (FreeRing, Mutex<()>) {
    fn take(&self) -> Option<u32> {
        self.0.take().map(|number| number as u32)
    }

    fn release(&self, index: u32) {
        let _apart = self.1.lock().unwrap();
        self.0.release(index.into());
    }
}

/// Two threads each take and release an index twice, where there are two indices.
fn two_indices_are_enough_for_two<I: Indices>(new: impl Fn() -> I + Send + Sync + 'static) {
    explore(Fault::None, move || {
        let indices = Arc::new(new());
        let held: Arc<[loom::cell::Cell<u64>; 2]> = Arc::default();
        let shared = Arc::clone(&indices);
        twice(move |_| {
            for _ in 0..2 {
                let index = shared.take().expect("one of two is free");
                let count = &held[index as usize];
                // Loom reports an access by two threads at the same time.
                count.set(count.get() + 1);
                shared.release(index);
            }
        });
        let mut left = [indices.take().unwrap(), indices.take().unwrap()];
        left.sort();
        assert_eq!((left, indices.take()), ([0, 1], None));
    });
}

#[test]
fn one_thread_at_a_time_holds_the_lock() {
    three_threads_lock(Fault::None);
}

#[test]
fn each_value_is_completed_once_by_its_key() {
    values_come_back_once(Fault::None, 1);
    values_come_back_once(Fault::None, 2);
}

#[test]
fn each_index_has_one_holder_and_none_is_missed() {
    two_indices_are_enough_for_two(|| FreeList::new(2));
    two_indices_are_enough_for_two(|| (FreeRing::new(2), Mutex::new(())));
}

#[test]
fn every_planted_fault_is_detected() {
    assert!(is_noticed(|| three_threads_lock(Fault::Lock)));
    assert!(is_noticed(|| values_come_back_once(Fault::Word, 2)));
    assert!(is_noticed(|| values_come_back_once(Fault::Word, 1)));
}
