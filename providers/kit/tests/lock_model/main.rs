//! The protocol of the lock, run by the model checker on the production source: one thread at a
//! time has the lock, no wake-up is lost, and a pass begins after the threads that wait.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom \
//!     cargo test -p selvedge-kit --release --test lock_model
//! ```

#![cfg(loom)]
#![expect(clippy::unwrap_used, reason = "a model that cannot go on may panic")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::cell::Cell;
use loom::sync::atomic::{AtomicU32, fence};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use selvedge_kit::lock::raw::{FREE, RawLock, TAKEN, Word, Words};

/// The part of the protocol that a model leaves out, to show that the checker detects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The fence between freeing the lock and loading the number of parked threads.
    LightFence,
    /// The fence between counting oneself and parking.
    HeavyFence,
    /// The release of the store that frees the lock.
    Release,
    /// The fences between the count of served threads and the loads of both sides.
    ServedFences,
    /// The load of the number of threads that let others go first.
    PassWaiters,
    /// The wait of a pass for the threads before it.
    PassWait,
}

/// The words of the model. Parking uses a queue. Its lock is held from the load of the word until
/// the thread is queued, as in the kernel.
struct Model {
    words: [AtomicU32; 5],
    queue: Mutex<()>,
    woken: [Condvar; 5],
    fault: Fault,
}

impl Model {
    fn new(fault: Fault) -> Self {
        Self {
            words: [const { 0 }; 5].map(AtomicU32::new),
            queue: Mutex::new(()),
            woken: std::array::from_fn(|_| Condvar::new()),
            fault,
        }
    }

    fn word(&self, word: Word) -> &AtomicU32 {
        &self.words[word as usize]
    }
}

impl Words for Model {
    /// Polls only delay the wait, so the model has none.
    const POLLS: u32 = 0;

    fn load(&self, word: Word, order: Ordering) -> u32 {
        match (word, self.fault) {
            (Word::PassWaiters, Fault::PassWaiters) => 0,
            (Word::Arrived, Fault::PassWait) => self.word(Word::Served).load(order),
            _ => self.word(word).load(order),
        }
    }

    fn store(&self, word: Word, value: u32, order: Ordering) {
        let order = match self.fault {
            Fault::Release => Ordering::Relaxed,
            _ => order,
        };
        self.word(word).store(value, order);
    }

    fn add(&self, word: Word, value: u32) {
        self.word(word).fetch_add(value, Ordering::Relaxed);
    }

    fn take(&self) -> bool {
        self.word(Word::State)
            .compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    fn park_while(&self, word: Word, value: u32) {
        let queue = self.queue.lock().unwrap();
        if self.word(word).load(Ordering::Relaxed) == value {
            drop(self.woken[word as usize].wait(queue).unwrap());
        }
    }

    fn wake_one(&self, word: Word) {
        let _queue = self.queue.lock().unwrap();
        self.woken[word as usize].notify_one();
    }

    fn wake_all(&self, word: Word) {
        let _queue = self.queue.lock().unwrap();
        self.woken[word as usize].notify_all();
    }

    fn fence(&self) {
        if self.fault != Fault::ServedFences {
            fence(Ordering::SeqCst);
        }
    }

    fn light_fence(&self) {
        if self.fault != Fault::LightFence {
            fence(Ordering::SeqCst);
        }
    }

    fn heavy_fence(&self) -> bool {
        if self.fault != Fault::HeavyFence {
            fence(Ordering::SeqCst);
        }
        true
    }

    fn pause(&self, _is_long: bool) {
        thread::yield_now();
    }
}

/// A lock and the value that it guards: loom reports two threads that access the value at once.
struct Guarded {
    lock: RawLock<Model>,
    /// The number of calls, and the number when the pass began.
    inside: Cell<(u32, Option<u32>)>,
}

impl Guarded {
    fn new(fault: Fault) -> Arc<Self> {
        Arc::new(Self {
            lock: RawLock::new(Model::new(fault)),
            inside: Cell::new((0, None)),
        })
    }

    fn call(&self) {
        self.lock.lock();
        let (calls, pass) = self.inside.get();
        self.inside.set((calls + 1, pass));
        self.lock.unlock();
    }

    fn pass(&self) {
        self.lock.lock_for_pass();
        let (calls, _) = self.inside.get();
        self.inside.set((calls, Some(calls)));
        self.lock.unlock();
    }
}

/// Explores all interleavings with up to three preemptions.
fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Two threads and this one take the lock.
fn three_threads_call(fault: Fault) {
    explore(move || {
        let guarded = Guarded::new(fault);
        let others: Vec<_> = (0..2)
            .map(|_| {
                let guarded = Arc::clone(&guarded);
                thread::spawn(move || guarded.call())
            })
            .collect();
        guarded.call();
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(guarded.inside.get().0, 3);
    });
}

/// One thread has the lock while another arrives; a third begins a pass.
fn a_pass_and_a_waiting_thread(fault: Fault) {
    explore(move || {
        let guarded = Guarded::new(fault);
        guarded.lock.lock();
        let waiter = {
            let guarded = Arc::clone(&guarded);
            thread::spawn(move || guarded.call())
        };
        let pass_thread = {
            let guarded = Arc::clone(&guarded);
            thread::spawn(move || {
                let arrived = guarded.lock.words().word(Word::Arrived);
                let has_waiter = arrived.load(Ordering::Relaxed) > 0;
                guarded.pass();
                has_waiter
            })
        };
        guarded.lock.unlock();
        waiter.join().unwrap();
        let has_waiter = pass_thread.join().unwrap();
        let (calls, pass) = guarded.inside.get();
        assert_eq!(calls, 1);
        assert!(!has_waiter || pass == Some(1), "the pass was first");
    });
}

fn is_detected(model: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(model)).is_err()
}

#[test]
fn one_thread_at_a_time_is_inside_and_every_parked_thread_is_woken() {
    three_threads_call(Fault::None);
}

#[test]
fn a_pass_begins_after_a_waiting_thread() {
    a_pass_and_a_waiting_thread(Fault::None);
}

#[test]
fn every_planted_fault_of_the_lock_is_detected() {
    for fault in [Fault::LightFence, Fault::HeavyFence, Fault::Release] {
        assert!(is_detected(|| three_threads_call(fault)), "{fault:?}");
    }
    for fault in [Fault::ServedFences, Fault::PassWaiters, Fault::PassWait] {
        let model = || a_pass_and_a_waiting_thread(fault);
        assert!(is_detected(model), "{fault:?}");
    }
}
