//! Open operations: posts whose completions the application has not read from a queue yet.
//!
//! A completion belongs to the oldest open operation with the same kind and context.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use selvedge::cq::{Entry, ErrEntry};
use selvedge::{CompletionFlags, Context, Errno};
use selvedge_kit::telemetry::{TimedOp, now};

use super::records::{OpenPost, Records};

/// The open operations of one queue.
#[derive(Debug, Default)]
pub(crate) struct OpenOps {
    open: Mutex<HashMap<Key, VecDeque<OpenOp>>>,
    /// Open operations of shared receives that may complete in this queue.
    shared: Mutex<Vec<Weak<Self>>>,
}

type Key = (TimedOp, Context);

/// An open operation.
#[derive(Clone, Debug)]
pub(super) struct OpenOp {
    pub(super) records: Arc<Records>,
    pub(super) post: OpenPost,
    /// Whether the operation may complete more than once: a multi-receive buffer.
    pub(super) is_multi: bool,
}

impl OpenOps {
    /// Adds an operation that is about to be posted.
    pub(super) fn begin(&self, key: Key, open: OpenOp) {
        self.lock().entry(key).or_default().push_back(open);
    }

    /// Removes an operation whose post has failed.
    pub(super) fn remove_failed(&self, key: Key, records: &Arc<Records>, started: u64) {
        let mut all = self.lock();
        let Some(open) = all.get_mut(&key) else {
            return;
        };
        let is_same = |it: &OpenOp| it.post.started == started && Arc::ptr_eq(&it.records, records);
        if let Some(index) = open.iter().rposition(is_same) {
            open.remove(index);
        }
        if open.is_empty() {
            all.remove(&key);
        }
    }

    /// Removes the operations of an endpoint that is closed.
    pub(super) fn remove_endpoint(&self, records: &Arc<Records>) {
        self.lock().retain(|_, open| {
            open.retain(|it| !Arc::ptr_eq(&it.records, records));
            !open.is_empty()
        });
    }

    /// Adds the open operations of shared receives. A completion that matches no operation of this
    /// queue is matched with these.
    pub(crate) fn add_shared(&self, shared: &Arc<Self>) {
        let mut all = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|it| it.strong_count() > 0 && !it.ptr_eq(&Arc::downgrade(shared)));
        all.push(Arc::downgrade(shared));
    }

    /// Completes the operations of entries that the application has read.
    pub(crate) fn complete_entries(&self, entries: &[Entry]) {
        if entries.is_empty() {
            return;
        }
        let now = now();
        for entry in entries {
            self.complete(entry, now, Ok(()));
        }
    }

    /// Completes the operation of an error entry that the application has read.
    pub(crate) fn complete_failed(&self, error: &ErrEntry) {
        self.complete(&error.entry, now(), Err(error.errno));
    }

    fn complete(&self, entry: &Entry, now: u64, outcome: Result<(), Errno>) {
        let Some(op_kind) = kind(entry.flags) else {
            return;
        };
        let is_last = outcome.is_err() || entry.flags.contains(CompletionFlags::MULTI_RECV);
        let key = (op_kind, entry.context);
        let local = self.take(key, is_last);
        if let Some(open) = local.or_else(|| self.take_shared(key, is_last)) {
            open.records
                .complete(op_kind, &open.post, entry, (now, outcome));
        }
    }

    fn take(&self, key: Key, is_last: bool) -> Option<OpenOp> {
        let mut all = self.lock();
        let open = all.get_mut(&key)?;
        if open.front()?.is_multi && !is_last {
            return open.front().cloned();
        }
        let first = open.pop_front();
        if open.is_empty() {
            all.remove(&key);
        }
        first
    }

    fn take_shared(&self, key: Key, is_last: bool) -> Option<OpenOp> {
        let all = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = all.iter().filter_map(Weak::upgrade);
        all.find_map(|it| it.take(key, is_last))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, VecDeque<OpenOp>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The kind of the completed operation; none for a peer's operation.
fn kind(flags: CompletionFlags) -> Option<TimedOp> {
    let tagged = |yes, no| {
        if flags.contains(CompletionFlags::TAGGED) {
            yes
        } else {
            no
        }
    };
    let kinds = [
        (CompletionFlags::COLLECTIVE, TimedOp::Collective),
        (
            CompletionFlags::RECV,
            tagged(TimedOp::TaggedReceive, TimedOp::Receive),
        ),
        (
            CompletionFlags::SEND,
            tagged(TimedOp::TaggedSend, TimedOp::Send),
        ),
        (CompletionFlags::ATOMIC, TimedOp::Atomic),
        (CompletionFlags::READ, TimedOp::Read),
        (CompletionFlags::WRITE, TimedOp::Write),
    ];
    let found = kinds.into_iter().find(|(flag, _)| flags.contains(*flag));
    let is_by_peer = flags.intersects(CompletionFlags::REMOTE_READ | CompletionFlags::REMOTE_WRITE);
    found.map(|(_, kind)| kind).filter(|_| !is_by_peer)
}
