//! `Backlog`: posts that found a full queue, in the order in which they were made.

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::waiter::{Deferred, Waiter, WaiterCore};
use crate::owned::endpoint::post::{Operands, Post};
use crate::owned::endpoint::slots::Key;
use crate::owned::{Buf, TryPostError, lock};
use crate::{Errno, FiAddr};

/// Identifies a queue of posts whose order is kept. A full queue to one peer does not delay posts
/// to other peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueKey {
    Receives,
    To(FiAddr),
}

/// The posts that wait for room, in one queue for each [`QueueKey`]. A post waits behind all
/// earlier posts of its queue.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// Number of queues. It is nearly always 0, and then the lock is not taken.
    count: AtomicUsize,
    queues: Mutex<VecDeque<(QueueKey, VecDeque<Arc<QueuedPost>>)>>,
}

/// A post in the backlog, shared by its future and the backlog.
#[derive(Debug)]
pub(super) struct QueuedPost(Mutex<PostState>);

#[derive(Debug)]
enum PostState {
    Pending(PendingPost),
    Posted(Key),
    Refused(TryPostError),
    /// The future has taken the result, or was dropped.
    Done,
}

/// A post that waits, with copies of its borrowed operands.
#[derive(Debug)]
struct PendingPost {
    post: Post,
    operand: Box<[u8]>,
    compare: Box<[u8]>,
    buf: Buf,
    waiter: Waiter,
}

/// The result of an attempt to post.
enum Attempt {
    /// The queue is still full.
    Full,
    /// The post leaves the backlog.
    Done(Deferred),
}

impl QueueKey {
    pub(super) fn of(post: Post) -> Self {
        post.dest().map_or(Self::Receives, Self::To)
    }
}

impl Backlog {
    /// Whether a post with this key waits.
    pub(super) fn contains(&self, key: QueueKey) -> bool {
        self.count.load(Ordering::Acquire) > 0
            && lock(&self.queues).iter().any(|(other, _)| *other == key)
    }

    /// Appends a post to its queue.
    pub(super) fn add(
        &self,
        post: Post,
        operands: Operands<'_>,
        buf: Buf,
        waiter: Waiter,
    ) -> Arc<QueuedPost> {
        let queued = Arc::new(QueuedPost(Mutex::new(PostState::Pending(PendingPost {
            post,
            operand: operands.operand.into(),
            compare: operands.compare.into(),
            buf,
            waiter,
        }))));
        let (key, last) = (QueueKey::of(post), Arc::clone(&queued));
        let mut queues = lock(&self.queues);
        match queues.iter_mut().find(|(other, _)| *other == key) {
            Some((_, posts)) => posts.push_back(last),
            None => queues.push_back((key, VecDeque::from([last]))),
        }
        self.count.store(queues.len(), Ordering::Release);
        queued
    }

    /// Posts as much as there is room for, each queue in its order. Returns the actions that the
    /// caller runs without locks.
    pub(super) fn flush(&self, core: &WaiterCore) -> Vec<Deferred> {
        let mut deferred = Vec::new();
        if self.count.load(Ordering::Acquire) == 0 {
            return deferred;
        }
        let mut queues = lock(&self.queues);
        queues.retain_mut(|(_, posts)| {
            while let Some(first) = posts.front() {
                let Attempt::Done(action) = first.post(core) else {
                    return true;
                };
                deferred.push(action);
                posts.pop_front();
            }
            false
        });
        // The next call begins with another queue, so that each gets a share of the room.
        if !queues.is_empty() {
            queues.rotate_left(1);
        }
        self.count.store(queues.len(), Ordering::Release);
        deferred
    }
}

impl Drop for Backlog {
    /// Frees the buffers of futures that were leaked.
    fn drop(&mut self) {
        for (_, posts) in mem::take(&mut *lock(&self.queues)) {
            for queued in posts {
                queued.detach();
            }
        }
    }
}

impl QueuedPost {
    fn post(&self, core: &WaiterCore) -> Attempt {
        let mut state = lock(&self.0);
        let PendingPost {
            post,
            operand,
            compare,
            buf,
            waiter,
        } = match mem::replace(&mut *state, PostState::Done) {
            PostState::Pending(pending) => pending,
            other => {
                *state = other;
                return Attempt::Done(Deferred::None);
            }
        };
        let operands = Operands {
            operand: &operand,
            compare: &compare,
        };
        match core.post(post, operands, buf, waiter.clone()) {
            Ok(key) => {
                *state = PostState::Posted(key);
                Attempt::Done(Deferred::DropWaiter(waiter))
            }
            Err(TryPostError {
                errno: Errno::Again,
                buf,
            }) => {
                *state = PostState::Pending(PendingPost {
                    post,
                    operand,
                    compare,
                    buf,
                    waiter,
                });
                Attempt::Full
            }
            Err(refused) => {
                *state = PostState::Refused(refused);
                Attempt::Done(waiter.waker().map_or(Deferred::None, Deferred::Wake))
            }
        }
    }

    /// The key if the post has been made. While it waits, returns `None` and stores `waiter`.
    pub(super) fn poll(&self, waiter: Waiter) -> Result<Option<Key>, TryPostError> {
        let before;
        {
            let mut state = lock(&self.0);
            match &mut *state {
                PostState::Pending(pending) => before = mem::replace(&mut pending.waiter, waiter),
                other => return mem::replace(other, PostState::Done).into_key(),
            }
        }
        drop(before);
        Ok(None)
    }

    /// Removes the post from the backlog. Returns the key if it was posted, its buffer otherwise.
    pub(super) fn withdraw(&self) -> (Option<Key>, Option<Buf>) {
        match mem::replace(&mut *lock(&self.0), PostState::Done) {
            PostState::Pending(pending) => (None, Some(pending.buf)),
            PostState::Refused(refused) => (None, Some(refused.buf)),
            PostState::Posted(key) => (Some(key), None),
            PostState::Done => (None, None),
        }
    }

    /// Removes the post from the backlog and drops its buffer. Returns the key if it was posted.
    pub(super) fn detach(&self) -> Option<Key> {
        let state = mem::replace(&mut *lock(&self.0), PostState::Done);
        state.into_key().ok().flatten()
    }
}

impl PostState {
    fn into_key(self) -> Result<Option<Key>, TryPostError> {
        match self {
            Self::Posted(key) => Ok(Some(key)),
            Self::Refused(refused) => Err(refused),
            Self::Pending(_) | Self::Done => Ok(None),
        }
    }
}
