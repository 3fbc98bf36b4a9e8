//! The sequence lock of a telemetry page, run by the model checker on the production source: a
//! reader never accepts a copy with words of two versions.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom \
//!     cargo test -p selvedge-kit --release --test telemetry_model
//! ```

#![cfg(loom)]
#![expect(clippy::unwrap_used, reason = "a model that cannot go on may panic")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::sync::atomic::{AtomicU64, fence};
use loom::thread;
use selvedge_kit::telemetry::seqlock::{self, Words};

/// The ordering that a run leaves out, so that the model has to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The writer's fence behind the odd number.
    Begin,
    /// The release of the even number.
    End,
    /// The reader's fence before it loads the number again.
    Validate,
}

/// The sequence lock and two words, which every version writes with the same value.
struct Page {
    words: [AtomicU64; 3],
    fault: Fault,
}

impl Words for Page {
    fn load(&self, index: usize, order: Ordering) -> u64 {
        self.words[index].load(order)
    }

    fn store(&self, index: usize, value: u64, order: Ordering) {
        let order = match (order, self.fault) {
            (Ordering::Release, Fault::End) => Ordering::Relaxed,
            (order, _) => order,
        };
        self.words[index].store(value, order);
    }

    fn fence(&self, order: Ordering) {
        match (order, self.fault) {
            (Ordering::Release, Fault::Begin) | (Ordering::Acquire, Fault::Validate) => {}
            (order, _) => fence(order),
        }
    }
}

fn reader_races_writer(fault: Fault) {
    let page = Arc::new(Page {
        words: [const { 0 }; 3].map(AtomicU64::new),
        fault,
    });
    let written = Arc::clone(&page);
    let writer = thread::spawn(move || {
        for version in 1..=2 {
            let odd = seqlock::begin_write(&*written, 0);
            written.store(1, version, Ordering::Relaxed);
            written.store(2, version, Ordering::Relaxed);
            seqlock::end_write(&*written, 0, odd);
        }
    });
    if let Some(number) = seqlock::begin_read(&*page, 0) {
        let copy = [1, 2].map(|index| page.load(index, Ordering::Relaxed));
        if seqlock::validate_read(&*page, 0, number) {
            assert_eq!(copy[0], copy[1], "words of two versions");
            assert_eq!(copy[0], number / 2, "not the version of the number");
        }
    }
    writer.join().unwrap();
}

fn explore(fault: Fault) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || reader_races_writer(fault));
}

#[test]
fn a_reader_never_accepts_words_of_two_versions() {
    explore(Fault::None);
}

#[test]
fn a_missing_fence_fails_the_model() {
    for fault in [Fault::Begin, Fault::End, Fault::Validate] {
        let caught = catch_unwind(AssertUnwindSafe(|| explore(fault)));
        assert!(caught.is_err(), "{fault:?} was not detected");
    }
}
