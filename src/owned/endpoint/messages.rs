//! The messages of one buffer, awaited one after the other.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::mem;
use std::sync::{Arc, Mutex};
use std::task::{self, Poll, Waker};

use super::future::AsyncEndpoint;
use super::port::{Finished, Outcome};
use super::post::{Operands, Post};
use super::stage::Stage;
use super::told::Task;
use crate::owned::{Buf, Failed, Received, lock};
use crate::{CompletionFlags, Errno};

/// The messages of [`AsyncEndpoint::recv_multi`], in the order in which they complete.
///
/// Dropping it cancels the receive. Messages that were not awaited are gone.
#[derive(Debug)]
#[must_use = "nothing is received before the first message is awaited"]
pub struct Messages<'a> {
    ep: &'a AsyncEndpoint,
    what: Post,
    stage: Stage,
    mailbox: Arc<Mailbox>,
}

/// Where messages wait to be awaited.
#[derive(Debug, Default)]
pub(super) struct Mailbox(Mutex<Letters>);

#[derive(Debug, Default)]
struct Letters {
    waiting: VecDeque<(Buf, Outcome)>,
    reader: Option<Waker>,
    /// Nobody reads any more.
    is_closed: bool,
}

impl Mailbox {
    /// Keeps a message; whom to wake. A message that nobody will read comes back.
    pub(super) fn put(&self, finished: Finished<Task>) -> Result<Option<Waker>, Buf> {
        let mut letters = lock(&self.0);
        if letters.is_closed {
            return Err(finished.buf);
        }
        letters.waiting.push_back((finished.buf, finished.outcome));
        Ok(letters.reader.take())
    }

    /// Whoever awaits the next one.
    pub(super) fn reader(&self) -> Option<Waker> {
        lock(&self.0).reader.take()
    }

    fn await_by(&self, cx: &task::Context<'_>) {
        lock(&self.0).reader = Some(cx.waker().clone());
    }

    fn take(&self) -> Option<(Buf, Outcome)> {
        lock(&self.0).waiting.pop_front()
    }

    fn close(&self) {
        let mut letters = lock(&self.0);
        letters.is_closed = true;
        let left = mem::take(&mut letters.waiting);
        drop(letters);
        drop(left);
    }
}

impl<'a> Messages<'a> {
    pub(super) fn new(ep: &'a AsyncEndpoint, what: Post, buf: Buf) -> Self {
        Self {
            ep,
            what,
            stage: Stage::Unposted(buf),
            mailbox: Arc::default(),
        }
    }

    /// The next message, in a part of the buffer that is a buffer of its own; `None` after the
    /// last. A message that failed does not end it.
    ///
    /// # Errors
    /// What became of a message that was not received.
    pub async fn next(&mut self) -> Option<Result<(Buf, Received), Failed>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(
        &mut self,
        cx: &mut task::Context<'_>,
    ) -> Poll<Option<Result<(Buf, Received), Failed>>> {
        self.mailbox.await_by(cx);
        let read = match self.advance() {
            Ok(read) => read,
            Err(failed) => return Poll::Ready(Some(Err(failed))),
        };
        if let Some((buf, outcome)) = self.mailbox.take() {
            return Poll::Ready(Some(self.open(buf, outcome)));
        }
        if let (Err(errno), false) = (read, matches!(self.stage, Stage::Over)) {
            return Poll::Ready(self.give_up(errno));
        }
        match self.stage {
            Stage::Over => return Poll::Ready(None),
            Stage::Unposted(_) | Stage::Claimed(..) | Stage::Waiting(_) => cx.waker().wake_by_ref(),
            Stage::Posted(_) => self.ep.poll_again(cx),
        }
        Poll::Pending
    }

    /// Posts, if that was not done, and says whether completions could be read.
    fn advance(&mut self) -> Result<crate::Result, Failed> {
        let task = || Task::Many(Arc::clone(&self.mailbox));
        self.stage.post(self.ep, self.what, Operands::NONE, task)?;
        let read = self.ep.progress();
        self.stage.settle(task)?;
        Ok(read.map(drop))
    }

    /// Ends the messages, because no completion can be read.
    fn give_up(&mut self, errno: Errno) -> Option<Result<(Buf, Received), Failed>> {
        match self.stage.fail(self.ep, errno) {
            Ok((_, Finished { buf, outcome, .. })) => Some(self.open(buf, outcome)),
            Err(failed) => Some(Err(failed)),
        }
    }

    fn open(&mut self, buf: Buf, outcome: Outcome) -> Result<(Buf, Received), Failed> {
        let flags = match &outcome {
            Ok(received) => received.flags,
            Err(error) => error.entry.flags,
        };
        if flags.contains(CompletionFlags::MULTI_RECV) {
            self.stage = Stage::Over;
        }
        match outcome {
            Ok(received) => Ok((buf, received)),
            Err(entry) => Err(Failed { buf, entry }),
        }
    }
}

impl Drop for Messages<'_> {
    fn drop(&mut self) {
        self.mailbox.close();
        if let Some(key) = mem::replace(&mut self.stage, Stage::Over).leave()
            && self.ep.port().cancel(key).is_ok()
        {
            // A read that fails here fails again for a future that can say so.
            let _ = self.ep.progress();
        }
    }
}
