//! `Messages`: the messages of a multi-receive, awaited one after the other.

use std::future::poll_fn;
use std::mem;
use std::sync::Arc;
use std::task::{self, Poll};

use super::async_core::AsyncCore;
use super::message_queue::MessageQueue;
use super::stage::Stage;
use super::waiter::Waiter;
use crate::owned::endpoint::endpoint_core::{Finished, Outcome};
use crate::owned::endpoint::post::{Operands, Post};
use crate::owned::{Buf, OpError, Received};
use crate::{CompletionFlags, Errno};

/// The messages of [`crate::owned::AsyncEndpoint::recv_multi`], in the order in which they
/// complete.
///
/// Dropping it cancels the receive and discards messages that were not awaited.
#[derive(Debug)]
#[must_use = "nothing is received before the first message is awaited"]
pub struct Messages<'a> {
    core: &'a AsyncCore,
    post: Post,
    stage: Stage,
    queue: Arc<MessageQueue>,
}

impl<'a> Messages<'a> {
    pub(super) fn new(core: &'a AsyncCore, post: Post, buf: Buf) -> Self {
        Self {
            core,
            post,
            stage: Stage::Unposted(buf),
            queue: Arc::default(),
        }
    }

    /// Receives the next message. Its buffer is a part of the posted buffer. Returns `None` after
    /// the last message. A message that fails does not end the sequence.
    ///
    /// # Errors
    /// The error of a message that was not received.
    pub async fn next(&mut self) -> Option<Result<(Buf, Received), OpError>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(
        &mut self,
        cx: &mut task::Context<'_>,
    ) -> Poll<Option<Result<(Buf, Received), OpError>>> {
        self.queue.set_reader(cx);
        let read = match self.advance() {
            Ok(read) => read,
            Err(failed) => return Poll::Ready(Some(Err(failed))),
        };
        if let Some((buf, outcome)) = self.queue.pop() {
            return Poll::Ready(Some(self.finish(buf, outcome)));
        }
        if let (Err(errno), false) = (read, matches!(self.stage, Stage::Done)) {
            return Poll::Ready(self.fail(errno));
        }
        match self.stage {
            Stage::Done => return Poll::Ready(None),
            Stage::Unposted(_) | Stage::Claimed(..) | Stage::Queued(_) => cx.waker().wake_by_ref(),
            Stage::Posted(_) => self.core.poll_again(cx),
        }
        Poll::Pending
    }

    /// Posts the receive if necessary and drives progress. The inner result says whether
    /// completions could be read.
    fn advance(&mut self) -> Result<crate::Result, OpError> {
        let waiter = || Waiter::Messages(Arc::clone(&self.queue));
        self.stage
            .post(self.core, self.post, Operands::NONE, waiter)?;
        let read = self.core.progress();
        self.stage.poll_queued(waiter)?;
        Ok(read.map(drop))
    }

    /// Ends the sequence, because completions cannot be read.
    fn fail(&mut self, errno: Errno) -> Option<Result<(Buf, Received), OpError>> {
        match self.stage.fail(self.core, errno) {
            Ok((_, Finished { buf, outcome, .. })) => Some(self.finish(buf, outcome)),
            Err(failed) => Some(Err(failed)),
        }
    }

    fn finish(&mut self, buf: Buf, outcome: Outcome) -> Result<(Buf, Received), OpError> {
        let flags = match &outcome {
            Ok(received) => received.flags,
            Err(error) => error.entry.flags,
        };
        if flags.contains(CompletionFlags::MULTI_RECV) {
            self.stage = Stage::Done;
        }
        match outcome {
            Ok(received) => Ok((buf, received)),
            Err(entry) => Err(OpError { buf, entry }),
        }
    }
}

impl Drop for Messages<'_> {
    fn drop(&mut self) {
        self.queue.close();
        if let Some(key) = mem::replace(&mut self.stage, Stage::Done).detach()
            && self.core.endpoint().cancel(key).is_ok()
        {
            // An error is ignored: the next read fails with it again, for a future that reports it.
            let _ = self.core.progress();
        }
    }
}
