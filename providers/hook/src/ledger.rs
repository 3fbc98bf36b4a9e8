//! Operations whose completions a queue has not reported yet.
//!
//! A completion is its operation's if it has the same kind and context; of several such, the oldest
//! one's.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use selvedge::cq::{Entry, ErrEntry};
use selvedge::{CompletionFlags, Context, Errno, FiAddr};
use selvedge_kit::telemetry::{TimedOp, now};

use crate::watch::Watch;

/// The operations of one queue.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    open: Mutex<HashMap<Key, VecDeque<Open>>>,
    /// Those of shared receives that may complete at this queue.
    shared: Mutex<Vec<Weak<Self>>>,
}

type Key = (TimedOp, Context);

/// An operation.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    pub(crate) watch: Arc<Watch>,
    /// When it was posted, in nanoseconds.
    pub(crate) begun: u64,
    pub(crate) len: usize,
    pub(crate) peer: FiAddr,
    pub(crate) tag: u64,
    /// Whether its time says anything: not that of a look for a message, or of a buffer for many.
    pub(crate) is_timed: bool,
    /// Whether it completes more than once.
    pub(crate) is_multi: bool,
}

impl Ledger {
    /// Waits for a completion.
    pub(crate) fn begin(&self, key: Key, open: Open) {
        self.lock().entry(key).or_default().push_back(open);
    }

    /// Waits for it no more: the post has failed.
    pub(crate) fn take_back(&self, key: Key, watch: &Arc<Watch>, begun: u64) {
        let mut all = self.lock();
        let Some(open) = all.get_mut(&key) else {
            return;
        };
        let is_it = |it: &Open| it.begun == begun && Arc::ptr_eq(&it.watch, watch);
        if let Some(at) = open.iter().rposition(is_it) {
            open.remove(at);
        }
        if open.is_empty() {
            all.remove(&key);
        }
    }

    /// Forgets what an endpoint has open, which is closed.
    pub(crate) fn forget(&self, watch: &Arc<Watch>) {
        self.lock().retain(|_, open| {
            open.retain(|it| !Arc::ptr_eq(&it.watch, watch));
            !open.is_empty()
        });
    }

    /// Looks for what is open in this one, too, if it has not got it itself.
    pub(crate) fn borrow_from(&self, shared: &Arc<Self>) {
        let mut all = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|it| it.strong_count() > 0 && !it.ptr_eq(&Arc::downgrade(shared)));
        all.push(Arc::downgrade(shared));
    }

    /// Takes note of completions that the program has read.
    pub(crate) fn completed(&self, entries: &[Entry]) {
        if entries.is_empty() {
            return;
        }
        let now = now();
        for entry in entries {
            self.over(entry, now, Ok(()));
        }
    }

    /// Likewise of one with an error.
    pub(crate) fn failed(&self, error: &ErrEntry) {
        self.over(&error.entry, now(), Err(error.errno));
    }

    fn over(&self, entry: &Entry, now: u64, outcome: Result<(), Errno>) {
        let Some(what) = kind(entry.flags) else {
            return;
        };
        let is_last = outcome.is_err() || entry.flags.contains(CompletionFlags::MULTI_RECV);
        let key = (what, entry.context);
        let own = self.take(key, is_last);
        if let Some(open) = own.or_else(|| self.take_shared(key, is_last)) {
            open.watch.over(what, &open, entry, (now, outcome));
        }
    }

    fn take(&self, key: Key, is_last: bool) -> Option<Open> {
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

    fn take_shared(&self, key: Key, is_last: bool) -> Option<Open> {
        let all = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = all.iter().filter_map(Weak::upgrade);
        all.find_map(|it| it.take(key, is_last))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, VecDeque<Open>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What completed, if it is an operation of this endpoint's own.
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
    let is_peers = flags.intersects(CompletionFlags::REMOTE_READ | CompletionFlags::REMOTE_WRITE);
    found.map(|(_, kind)| kind).filter(|_| !is_peers)
}
