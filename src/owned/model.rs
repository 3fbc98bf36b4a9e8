//! The lock-free parts, run by the model checker on the production source: a value has one holder at a
//! time, and the next one sees what the last one wrote.
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
use super::sync::{Fault, plant};
use super::turn::Turn;
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

/// Runs this in two threads.
fn twice(body: impl Fn(u64) + Clone + 'static) {
    let other = {
        let body = body.clone();
        thread::spawn(move || body(1))
    };
    body(0);
    other.join().unwrap();
}

fn three_threads_take_turns(fault: Fault) {
    explore(fault, || {
        let turn = Arc::new(Turn::new(0));
        let third = {
            let turn = Arc::clone(&turn);
            thread::spawn(move || turn.take(|count| *count += 1))
        };
        let of_two = Arc::clone(&turn);
        twice(move |_| of_two.take(|count| *count += 1));
        third.join().unwrap();
        assert_eq!(turn.take(|count| *count), 3);
    });
}

/// Two threads post, a third completes what it has heard of, in a table with this depth.
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
        let poster = Arc::clone(&slots);
        twice(move |value| {
            if let Some(vacancy) = poster.reserve() {
                let key = vacancy.put(value);
                // A provider's queue is read after what was posted to it.
                contexts[value as usize].store(Context::from(key).0, Ordering::Release);
            } else {
                assert_eq!(depth, 1, "there is room for both");
            }
        });
        completer.join().unwrap();
        complete();
        assert!(slots.reserve().is_some(), "a place was lost");
    });
}

/// What both kinds of free indices have in common.
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

/// Releases are kept apart.
impl Indices for (FreeRing, Mutex<()>) {
    fn take(&self) -> Option<u32> {
        self.0.take()
    }

    fn release(&self, index: u32) {
        let _apart = self.1.lock().unwrap();
        self.0.release(index);
    }
}

/// Two threads hold an index each, twice, of as many as there are.
fn two_indices_are_enough_for_two<I: Indices>(new: impl Fn() -> I + Send + Sync + 'static) {
    explore(Fault::None, move || {
        let indices = Arc::new(new());
        let held: Arc<[loom::cell::Cell<u64>; 2]> = Arc::default();
        let of_two = Arc::clone(&indices);
        twice(move |_| {
            for _ in 0..2 {
                let index = of_two.take().expect("one of two is free");
                let count = &held[index as usize];
                // The model checker says when two threads are at it.
                count.set(count.get() + 1);
                of_two.release(index);
            }
        });
        let mut left = [indices.take().unwrap(), indices.take().unwrap()];
        left.sort();
        assert_eq!((left, indices.take()), ([0, 1], None));
    });
}

#[test]
fn one_thread_at_a_time_has_the_turn() {
    three_threads_take_turns(Fault::None);
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
fn every_planted_fault_is_noticed() {
    assert!(is_noticed(|| three_threads_take_turns(Fault::Turns)));
    assert!(is_noticed(|| values_come_back_once(Fault::Words, 2)));
    assert!(is_noticed(|| values_come_back_once(Fault::Words, 1)));
}
