//! `Content`: the stand-in for shared memory under the model checker (`--cfg loom`).
//!
//! The words of a mapping are loom's atomics. Its bytes are in the mapping as usual, but each of
//! their cache lines has a loom cell beside it, which fails the model when two accesses race. All
//! mappings of one file share both, so models use the ordinary constructors.
//!
//! [`plant`] weakens one ordering, so that a test can check that the models detect it.

#![expect(
    unsafe_code,
    reason = "cells that the model checker watches are shared"
)]

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, OnceLock, Weak};

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU64;

/// Bytes that share one loom cell.
const LINE: usize = 64;

/// The content of a file under the model checker.
pub(crate) struct Content {
    words: Box<[AtomicU64]>,
    lines: Box<[OnceLock<Line>]>,
}

struct Line(UnsafeCell<()>);

// SAFETY: loom's cell holds no data; loom alone accesses it, on one system thread.
unsafe impl Sync for Line {}

thread_local! {
    /// The files mapped in this model, by inode.
    static FILES: RefCell<HashMap<u64, Weak<Content>>> = RefCell::default();
    static PLANTED: Cell<Option<Fault>> = const { Cell::new(None) };
}

impl Content {
    /// The content of a file of `len` bytes.
    pub(crate) fn of(file: &File, len: usize) -> Arc<Self> {
        let inode = file.metadata().expect("a memfd has metadata").ino();
        FILES.with_borrow_mut(|files| {
            if let Some(content) = files.get(&inode).and_then(Weak::upgrade) {
                return content;
            }
            let content = Arc::new(Self {
                words: (0..len / 8).map(|_| AtomicU64::new(0)).collect(),
                lines: (0..len / LINE).map(|_| OnceLock::new()).collect(),
            });
            files.insert(inode, Arc::downgrade(&content));
            content
        })
    }

    /// Word `index` of the file.
    pub(crate) fn word(&self, index: usize) -> &AtomicU64 {
        &self.words[index]
    }

    /// The `N` words of the file from `first` on.
    pub(crate) fn words<const N: usize>(&self, first: usize) -> &[AtomicU64; N] {
        self.words[first..first + N].try_into().expect("N words")
    }

    /// Records a write of `len` bytes at `at`.
    pub(crate) fn record_write(&self, at: usize, len: usize) {
        self.lines(at, len).for_each(|line| line.with_mut(|_| ()));
    }

    /// Records a read of `len` bytes at `at`.
    pub(crate) fn record_read(&self, at: usize, len: usize) {
        self.lines(at, len).for_each(|line| line.with(|_| ()));
    }

    fn lines(&self, at: usize, len: usize) -> impl Iterator<Item = &UnsafeCell<()>> {
        self.lines[at / LINE..(at + len).div_ceil(LINE)]
            .iter()
            .map(|line| &line.get_or_init(|| Line(UnsafeCell::new(()))).0)
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Content({} words)", self.words.len())
    }
}

/// An ordering that a test can remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The release of a slot, in every kind of queue.
    Commit,
    /// The release of consumed slots.
    Credit,
    /// The release of a doorbell bit.
    Ring,
    /// The fence between a commit and the load of the reader's poll state.
    Announce,
    /// The fence between publishing the parked state and the last poll.
    Arm,
    /// The owner's fence between closing and reusing its memory.
    Close,
    /// The peer's fence between its copy and its check whether the owner has closed.
    Check,
}

/// Removes one ordering from every model that this thread runs until the next call.
pub fn plant(fault: Option<Fault>) {
    PLANTED.set(fault);
}

pub(crate) fn is_planted(fault: Fault) -> bool {
    PLANTED.get() == Some(fault)
}
