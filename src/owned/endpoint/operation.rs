//! Operations that are futures.

use std::mem;
use std::pin::Pin;
use std::task::{self, Poll};

use super::future::AsyncEndpoint;
use super::port::Finished;
use super::post::{Operands, Post};
use super::slots::Key;
use super::stage::Stage;
use super::told::Task;
use crate::owned::{Buf, Failed, Received};
use crate::{Errno, OpFlags};

/// The future of a send or an atomic: gives the buffer back.
#[derive(Debug)]
#[must_use = "nothing is posted before the future is polled"]
pub struct Sending<'a>(pub(super) Operation<'a>);

impl Future for Sending<'_> {
    type Output = Result<Buf, Failed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        self.0.poll(cx).map_ok(|(_, buf, _)| buf)
    }
}

/// The future of a receive: gives the buffer with the message, and what came with it.
#[derive(Debug)]
#[must_use = "nothing is received before the future is polled"]
pub struct Receiving<'a>(pub(super) Operation<'a>);

impl Future for Receiving<'_> {
    type Output = Result<(Buf, Received), Failed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        let over = self.0.poll(cx);
        over.map_ok(|(_, buf, received)| (buf, received))
    }
}

/// What the futures are inside.
#[derive(Debug)]
pub(super) struct Operation<'a> {
    ep: &'a AsyncEndpoint,
    what: Post,
    operands: Operands<'a>,
    stage: Stage,
}

impl<'a> Operation<'a> {
    pub(super) fn new(ep: &'a AsyncEndpoint, what: Post, operands: Operands<'a>, buf: Buf) -> Self {
        let stage = Stage::Unposted(buf);
        Self {
            ep,
            what,
            operands,
            stage,
        }
    }

    /// The receive of the message that this one has set aside under a key.
    pub(super) fn redeem(&self, key: Key, buf: Buf) -> Self {
        Self {
            ep: self.ep,
            what: Post::claimed(OpFlags::empty()),
            operands: Operands::NONE,
            stage: Stage::Claimed(key, buf),
        }
    }

    /// Takes another buffer for what is set aside.
    pub(super) fn exchange(&mut self, buf: Buf) {
        if let Stage::Claimed(_, before) = &mut self.stage {
            *before = buf;
        }
    }

    /// Once it is over: what named it, its buffer, and what came.
    pub(super) fn poll(
        &mut self,
        cx: &task::Context<'_>,
    ) -> Poll<Result<(Key, Buf, Received), Failed>> {
        let read = match self.advance(cx) {
            Ok(read) => read,
            Err(failed) => return Poll::Ready(Err(failed)),
        };
        let mut over = self.collect(cx);
        if let (Poll::Pending, Err(errno)) = (&over, read) {
            over = Poll::Ready(self.give_up(errno));
        }
        match self.stage {
            Stage::Unposted(_) | Stage::Claimed(..) | Stage::Waiting(_) => {
                cx.waker().wake_by_ref();
            }
            Stage::Posted(_) => self.ep.poll_again(cx),
            Stage::Over => {}
        }
        over
    }

    /// Posts, if that was not done, and says whether completions could be read.
    fn advance(&mut self, cx: &task::Context<'_>) -> Result<crate::Result, Failed> {
        let task = || Task::Waiting(cx.waker().clone());
        self.stage.post(self.ep, self.what, self.operands, task)?;
        let read = self.ep.progress();
        self.stage.settle(task)?;
        Ok(read.map(drop))
    }

    /// Ends without a completion, because none can be read.
    fn give_up(&mut self, errno: Errno) -> Result<(Key, Buf, Received), Failed> {
        let (key, finished) = self.stage.fail(self.ep, errno)?;
        concluded(key, finished)
    }

    fn collect(&mut self, cx: &task::Context<'_>) -> Poll<Result<(Key, Buf, Received), Failed>> {
        let key = match self.stage {
            Stage::Unposted(_) | Stage::Claimed(..) | Stage::Waiting(_) => return Poll::Pending,
            Stage::Posted(key) => key,
            Stage::Over => panic!("future polled after it was ready"),
        };
        let task = Task::Waiting(cx.waker().clone());
        let Ok(finished) = self.ep.port().collect(key, task) else {
            return Poll::Pending;
        };
        self.stage = Stage::Over;
        Poll::Ready(concluded(key, finished))
    }
}

fn concluded(key: Key, finished: Finished<Task>) -> Result<(Key, Buf, Received), Failed> {
    let Finished { buf, outcome, .. } = finished;
    match outcome {
        Ok(received) => Ok((key, buf, received)),
        Err(entry) => Err(Failed { buf, entry }),
    }
}

impl Drop for Operation<'_> {
    /// Leaves the buffer to the endpoint until its operation is over, and tries to make that soon.
    fn drop(&mut self) {
        let stage = mem::replace(&mut self.stage, Stage::Over);
        if let Stage::Claimed(key, buf) = stage {
            return self.ep.discard(key, buf);
        }
        let Some(key) = stage.leave() else {
            return;
        };
        match self.ep.port().collect(key, Task::Gone) {
            Ok(found) if self.what.claims() && found.outcome.is_ok() => {
                self.ep.discard(key, found.buf);
            }
            Ok(_) => {}
            Err(_) if self.ep.port().cancel(key).is_ok() => {
                // A read that fails here fails again for whoever can be told.
                let _ = self.ep.progress();
            }
            Err(_) => {}
        }
    }
}
