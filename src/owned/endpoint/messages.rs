//! `Messages`: the messages of a multi-receive, awaited one after the other.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::mem;
use std::sync::{Arc, Mutex};
use std::task::{self, Poll, Waker};

use super::endpoint_core::{Finished, Outcome};
use super::future::AsyncEndpoint;
use super::post::{Operands, Post};
use super::stage::Stage;
use super::waiter::Waiter;
use crate::owned::{Buf, OpError, Received, lock};
use crate::{CompletionFlags, Errno};

/// The messages of [`AsyncEndpoint::recv_multi`], in the order in which they complete.
///
/// Dropping it cancels the receive and discards messages that were not awaited.
#[derive(Debug)]
#[must_use = "nothing is received before the first message is awaited"]
pub struct Messages<'a> {
    ep: &'a AsyncEndpoint,
    post: Post,
    stage: Stage,
    queue: Arc<MessageQueue>,
}

/// Received messages that were not awaited yet.
#[derive(Debug, Default)]
pub(super) struct MessageQueue(Mutex<QueueState>);

#[derive(Debug, Default)]
struct QueueState {
    messages: VecDeque<(Buf, Outcome)>,
    reader: Option<Waker>,
    /// The [`Messages`] was dropped.
    is_closed: bool,
}

impl MessageQueue {
    /// Appends a message. Returns the waker of the reader.
    ///
    /// # Errors
    /// The buffer of the message, if the queue is closed.
    pub(super) fn push(&self, finished: Finished) -> Result<Option<Waker>, Buf> {
        let mut state = lock(&self.0);
        if state.is_closed {
            return Err(finished.buf);
        }
        state.messages.push_back((finished.buf, finished.outcome));
        Ok(state.reader.take())
    }

    /// Takes the waker of the task that awaits the next message.
    pub(super) fn reader(&self) -> Option<Waker> {
        lock(&self.0).reader.take()
    }

    fn set_reader(&self, cx: &task::Context<'_>) {
        lock(&self.0).reader = Some(cx.waker().clone());
    }

    fn pop(&self) -> Option<(Buf, Outcome)> {
        lock(&self.0).messages.pop_front()
    }

    fn close(&self) {
        let mut state = lock(&self.0);
        state.is_closed = true;
        let left = mem::take(&mut state.messages);
        drop(state);
        drop(left);
    }
}

impl<'a> Messages<'a> {
    pub(super) fn new(ep: &'a AsyncEndpoint, post: Post, buf: Buf) -> Self {
        Self {
            ep,
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
            Stage::Posted(_) => self.ep.poll_again(cx),
        }
        Poll::Pending
    }

    /// Posts the receive if necessary and drives progress. The inner result says whether
    /// completions could be read.
    fn advance(&mut self) -> Result<crate::Result, OpError> {
        let waiter = || Waiter::Messages(Arc::clone(&self.queue));
        self.stage
            .post(self.ep, self.post, Operands::NONE, waiter)?;
        let read = self.ep.progress();
        self.stage.poll_queued(waiter)?;
        Ok(read.map(drop))
    }

    /// Ends the sequence, because completions cannot be read.
    fn fail(&mut self, errno: Errno) -> Option<Result<(Buf, Received), OpError>> {
        match self.stage.fail(self.ep, errno) {
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
            && self.ep.core().cancel(key).is_ok()
        {
            // An error is ignored: the next read fails with it again, for a future that reports it.
            let _ = self.ep.progress();
        }
    }
}
