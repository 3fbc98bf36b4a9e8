//! `MessageQueue`: received messages of a multi-receive that were not awaited yet.

use std::collections::VecDeque;
use std::mem;
use std::sync::Mutex;
use std::task::{self, Waker};

use crate::owned::endpoint::endpoint_core::{Finished, Outcome};
use crate::owned::{Buf, lock};

/// Received messages that were not awaited yet.
#[derive(Debug, Default)]
pub(super) struct MessageQueue(Mutex<QueueState>);

#[derive(Debug, Default)]
struct QueueState {
    messages: VecDeque<(Buf, Outcome)>,
    reader: Option<Waker>,
    /// The [`super::Messages`] was dropped.
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

    pub(super) fn set_reader(&self, cx: &task::Context<'_>) {
        lock(&self.0).reader = Some(cx.waker().clone());
    }

    pub(super) fn pop(&self) -> Option<(Buf, Outcome)> {
        lock(&self.0).messages.pop_front()
    }

    pub(super) fn close(&self) {
        let mut state = lock(&self.0);
        state.is_closed = true;
        let left = mem::take(&mut state.messages);
        drop(state);
        drop(left);
    }
}
