//! The futures of the operations of a [`crate::owned::AsyncEndpoint`].

use std::mem;
use std::pin::Pin;
use std::task::{self, Poll};

use super::async_core::AsyncCore;
use super::stage::{Stage, discard};
use super::waiter::Waiter;
use crate::owned::endpoint::endpoint_core::Finished;
use crate::owned::endpoint::post::{Operands, Post};
use crate::owned::endpoint::slots::Key;
use crate::owned::{Buf, OpError, Received};
use crate::{Errno, OpFlags};

/// Future of a send, a write, a read or an atomic. Resolves to the buffer.
#[derive(Debug)]
#[must_use = "nothing is posted before the future is polled"]
pub struct Sending<'a>(pub(super) Operation<'a>);

impl Future for Sending<'_> {
    type Output = Result<Buf, OpError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        self.0.poll(cx).map_ok(|(_, buf, _)| buf)
    }
}

/// Future of a receive. Resolves to the buffer with the message, and the metadata of the message.
#[derive(Debug)]
#[must_use = "nothing is received before the future is polled"]
pub struct Receiving<'a>(pub(super) Operation<'a>);

impl Future for Receiving<'_> {
    type Output = Result<(Buf, Received), OpError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        let outcome = self.0.poll(cx);
        outcome.map_ok(|(_, buf, received)| (buf, received))
    }
}

/// The common implementation of the futures.
#[derive(Debug)]
pub(super) struct Operation<'a> {
    core: &'a AsyncCore,
    post: Post,
    operands: Operands<'a>,
    stage: Stage,
}

impl<'a> Operation<'a> {
    pub(super) fn new(core: &'a AsyncCore, post: Post, operands: Operands<'a>, buf: Buf) -> Self {
        let stage = Stage::Unposted(buf);
        Self {
            core,
            post,
            operands,
            stage,
        }
    }

    /// The receive of the message that this operation has claimed under `key`.
    pub(super) fn receive_claimed(&self, key: Key, buf: Buf) -> Self {
        Self {
            core: self.core,
            post: Post::claimed(OpFlags::empty()),
            operands: Operands::NONE,
            stage: Stage::Claimed(key, buf),
        }
    }

    /// Replaces the buffer for the claimed message.
    pub(super) fn replace_buf(&mut self, buf: Buf) {
        if let Stage::Claimed(_, old) = &mut self.stage {
            *old = buf;
        }
    }

    /// Polls the operation. When it is done, returns its key, its buffer, and the metadata of the
    /// message.
    pub(super) fn poll(
        &mut self,
        cx: &task::Context<'_>,
    ) -> Poll<Result<(Key, Buf, Received), OpError>> {
        let read = match self.advance(cx) {
            Ok(read) => read,
            Err(failed) => return Poll::Ready(Err(failed)),
        };
        let mut outcome = self.collect(cx);
        if let (Poll::Pending, Err(errno)) = (&outcome, read) {
            outcome = Poll::Ready(self.fail(errno));
        }
        match self.stage {
            Stage::Unposted(_) | Stage::Claimed(..) | Stage::Queued(_) => {
                cx.waker().wake_by_ref();
            }
            Stage::Posted(_) => self.core.poll_again(cx),
            Stage::Done => {}
        }
        outcome
    }

    /// Posts the operation if necessary and drives progress. The inner result says whether
    /// completions could be read.
    fn advance(&mut self, cx: &task::Context<'_>) -> Result<crate::Result, OpError> {
        let waiter = || Waiter::Future(cx.waker().clone());
        self.stage
            .post(self.core, self.post, self.operands, waiter)?;
        let read = self.core.progress();
        self.stage.poll_queued(waiter)?;
        Ok(read.map(drop))
    }

    /// Ends the operation without a completion, because completions cannot be read.
    fn fail(&mut self, errno: Errno) -> Result<(Key, Buf, Received), OpError> {
        let (key, finished) = self.stage.fail(self.core, errno)?;
        into_result(key, finished)
    }

    fn collect(&mut self, cx: &task::Context<'_>) -> Poll<Result<(Key, Buf, Received), OpError>> {
        let key = match self.stage {
            Stage::Unposted(_) | Stage::Claimed(..) | Stage::Queued(_) => return Poll::Pending,
            Stage::Posted(key) => key,
            Stage::Done => panic!("future polled after it was ready"),
        };
        let waiter = Waiter::Future(cx.waker().clone());
        let Ok(finished) = self.core.endpoint().collect(key, waiter) else {
            return Poll::Pending;
        };
        self.stage = Stage::Done;
        Poll::Ready(into_result(key, finished))
    }
}

fn into_result(key: Key, finished: Finished) -> Result<(Key, Buf, Received), OpError> {
    let Finished { buf, outcome, .. } = finished;
    match outcome {
        Ok(received) => Ok((key, buf, received)),
        Err(entry) => Err(OpError { buf, entry }),
    }
}

impl Drop for Operation<'_> {
    /// Leaves the buffer with the endpoint until its operation ends, and tries to cancel the
    /// operation.
    fn drop(&mut self) {
        let stage = mem::replace(&mut self.stage, Stage::Done);
        if let Stage::Claimed(key, buf) = stage {
            return discard(self.core, key, buf);
        }
        let Some(key) = stage.detach() else {
            return;
        };
        match self.core.endpoint().collect(key, Waiter::Dropped) {
            Ok(found) if self.post.claims() && found.outcome.is_ok() => {
                discard(self.core, key, found.buf);
            }
            Ok(_) => {}
            Err(_) if self.core.endpoint().cancel(key).is_ok() => {
                // An error is ignored: the next read fails with it again, for a future that reports
                // it.
                let _ = self.core.progress();
            }
            Err(_) => {}
        }
    }
}
