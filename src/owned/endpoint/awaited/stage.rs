//! `Stage`: the progress of an awaited operation from its first poll to its end.

use std::mem;
use std::sync::Arc;

use super::async_core::AsyncCore;
use super::backlog::{QueueKey, QueuedPost};
use super::waiter::Waiter;
use crate::owned::endpoint::endpoint_core::Finished;
use crate::owned::endpoint::post::{Operands, Post};
use crate::owned::endpoint::slots::Key;
use crate::owned::{Buf, OpError, TryPostError};
use crate::{Errno, OpFlags};

/// The stage of an awaited operation.
#[derive(Debug)]
pub(super) enum Stage {
    Unposted(Buf),
    /// Not posted yet: the receive of the message that was claimed under this key.
    Claimed(Key, Buf),
    /// In the backlog, because the queue was full.
    Queued(Arc<QueuedPost>),
    Posted(Key),
    Done,
}

impl Stage {
    /// Posts the operation if it has not been posted. A full queue is not an error: the operation
    /// stays unposted or goes to the backlog.
    pub(super) fn post(
        &mut self,
        core: &AsyncCore,
        post: Post,
        operands: Operands<'_>,
        waiter: impl Fn() -> Waiter,
    ) -> Result<(), OpError> {
        match mem::replace(self, Self::Done) {
            Self::Unposted(buf) => *self = Self::post_or_queue(core, post, operands, buf, waiter)?,
            Self::Claimed(key, buf) => *self = Self::post_claimed(core, key, post, buf, waiter())?,
            stage => *self = stage,
        }
        Ok(())
    }

    /// Posts an operation, or appends it to the backlog when the queue is full or earlier
    /// operations wait.
    fn post_or_queue(
        core: &AsyncCore,
        post: Post,
        operands: Operands<'_>,
        buf: Buf,
        waiter: impl Fn() -> Waiter,
    ) -> Result<Self, TryPostError> {
        let refused = if core.backlog().contains(QueueKey::of(post)) {
            TryPostError {
                errno: Errno::Again,
                buf,
            }
        } else {
            match core.endpoint().post(post, operands, buf, waiter()) {
                Ok(key) => return Ok(Self::Posted(key)),
                Err(refused) => refused,
            }
        };
        match refused.errno {
            Errno::Again => {
                let queued = core.backlog().add(post, operands, refused.buf, waiter());
                Ok(Self::Queued(queued))
            }
            _ => Err(refused),
        }
    }

    /// Posts the receive or the discard of a claimed message. When the queue is full, the stage
    /// stays [`Self::Claimed`].
    fn post_claimed(
        core: &AsyncCore,
        key: Key,
        post: Post,
        buf: Buf,
        waiter: Waiter,
    ) -> Result<Self, TryPostError> {
        match core.endpoint().post_claimed(key, post, buf, waiter) {
            Ok(()) => Ok(Self::Posted(key)),
            Err(TryPostError {
                errno: Errno::Again,
                buf,
            }) => Ok(Self::Claimed(key, buf)),
            Err(refused) => Err(refused),
        }
    }

    /// Polls a post in the backlog. If it is still there, `waiter` is notified when it fails.
    pub(super) fn poll_queued(&mut self, waiter: impl Fn() -> Waiter) -> Result<(), OpError> {
        let Self::Queued(queued) = self else {
            return Ok(());
        };
        match queued.poll(waiter()) {
            Ok(None) => {}
            Ok(Some(key)) => *self = Self::Posted(key),
            Err(refused) => {
                *self = Self::Done;
                return Err(refused.into());
            }
        }
        Ok(())
    }

    /// Ends an operation after completions could not be read. Returns its outcome if another thread
    /// has read its completion meanwhile.
    pub(super) fn fail(
        &mut self,
        core: &AsyncCore,
        errno: Errno,
    ) -> Result<(Key, Finished), OpError> {
        let (key, buf) = match mem::replace(self, Self::Done) {
            Self::Unposted(buf) | Self::Claimed(_, buf) => (None, Some(buf)),
            Self::Queued(queued) => queued.withdraw(),
            Self::Posted(key) => (Some(key), None),
            Self::Done => (None, None),
        };
        let outcome = match (key, buf) {
            (Some(key), _) => {
                let abandoned = core.endpoint().abandon(key, Waiter::Dropped);
                abandoned.map(|finished| (key, finished))
            }
            (None, Some(buf)) => Err(buf),
            (None, None) => unreachable!("a finished operation is not polled"),
        };
        outcome.map_err(|buf| OpError::without_completion(errno, buf, UNREADABLE))
    }

    /// Ends the operation for a future that is dropped. Returns the key if the operation is posted
    /// and has not finished.
    pub(super) fn detach(self) -> Option<Key> {
        match self {
            Self::Posted(key) => Some(key),
            Self::Queued(queued) => queued.detach(),
            Self::Unposted(_) | Self::Claimed(..) | Self::Done => None,
        }
    }
}

/// Discards a claimed message. If the queue is still full after a poll, the message stays until the
/// endpoint is closed.
pub(super) fn discard(core: &AsyncCore, key: Key, buf: Buf) {
    let post = Post::claimed(OpFlags::DISCARD);
    let posted = Stage::post_claimed(core, key, post, buf, Waiter::Dropped);
    if let Ok(Stage::Claimed(key, buf)) = posted {
        let _ = core.progress();
        let _ = Stage::post_claimed(core, key, post, buf, Waiter::Dropped);
    }
    // An error is ignored: the next read fails with it again, for a future that reports it.
    let _ = core.progress();
}

/// Error text of an operation whose completion cannot be read.
const UNREADABLE: &str = "the endpoint's completions cannot be read, so whether the operation took \
                          place is unknown; close the endpoint and open another";
