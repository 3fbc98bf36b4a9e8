//! `Content`: the stand-in for shared memory under the model checker (`--cfg loom`).
//!
//! `Content` replaces the words of a mapping by loom's atomics. The bytes stay in the mapping, but
//! `Content` has a loom cell for each of their cache lines: loom fails the model when two accesses
//! to the cell race. All mappings of one file share one `Content`, so models use the ordinary
//! constructors.
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

/// The words and cells of one mapped file under the model checker.
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
    /// Returns the content of `file`, which has `len` bytes; creates it on the first call.
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

    /// Tells loom of a write of `len` bytes at `offset`.
    pub(crate) fn record_write(&self, offset: usize, len: usize) {
        self.lines(offset, len)
            .for_each(|line| line.with_mut(|_| ()));
    }

    /// Tells loom of a read of `len` bytes at `offset`.
    pub(crate) fn record_read(&self, offset: usize, len: usize) {
        self.lines(offset, len).for_each(|line| line.with(|_| ()));
    }

    fn lines(&self, offset: usize, len: usize) -> impl Iterator<Item = &UnsafeCell<()>> {
        self.lines[offset / LINE..(offset + len).div_ceil(LINE)]
            .iter()
            .map(|line| &line.get_or_init(|| Line(UnsafeCell::new(()))).0)
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Content({} words)", self.words.len())
    }
}

/// A memory ordering of the protocol (`smr::sync::order`) that a test can weaken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The release ordering with which a writer commits a slot, in every kind of queue.
    Commit,
    /// The release ordering with which a reader returns consumed slots.
    Credit,
    /// The release ordering with which a writer sets a doorbell bit.
    Ring,
    /// The writer's fence between a commit and the load of the reader's poll state.
    Announce,
    /// The reader's fence between publishing that it is parked and its last poll.
    Arm,
    /// The owner's fence between closing and the reuse of its memory.
    Close,
    /// The peer's fence between copying and checking whether the owner has closed.
    Check,
}

/// Weakens the ordering `fault` in every model that this thread runs until the next call; `None`
/// restores all orderings.
pub fn plant(fault: Option<Fault>) {
    PLANTED.set(fault);
}

pub(crate) fn is_planted(fault: Fault) -> bool {
    PLANTED.get() == Some(fault)
}
