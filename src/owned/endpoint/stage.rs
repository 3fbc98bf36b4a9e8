//! `Stage`: the progress of an awaited operation from its first poll to its end.

use std::mem;
use std::sync::Arc;

use super::backlog::QueuedPost;
use super::endpoint_core::Finished;
use super::future::AsyncEndpoint;
use super::post::{Operands, Post};
use super::slots::Key;
use super::waiter::Waiter;
use crate::Errno;
use crate::owned::{Buf, OpError};

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
        ep: &AsyncEndpoint,
        post: Post,
        operands: Operands<'_>,
        waiter: impl Fn() -> Waiter,
    ) -> Result<(), OpError> {
        match mem::replace(self, Self::Done) {
            Self::Unposted(buf) => *self = ep.post_or_queue(post, operands, buf, waiter)?,
            Self::Claimed(key, buf) => *self = ep.post_claimed(key, post, buf, waiter())?,
            stage => *self = stage,
        }
        Ok(())
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
        ep: &AsyncEndpoint,
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
                let abandoned = ep.core().abandon(key, Waiter::Dropped);
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

/// Error text of an operation whose completion cannot be read.
const UNREADABLE: &str = "the endpoint's completions cannot be read, so whether the operation took \
                          place is unknown; close the endpoint and open another";
