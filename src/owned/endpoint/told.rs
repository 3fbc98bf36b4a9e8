//! Who is told when an awaited operation is done, and how.

use std::mem;
use std::sync::Arc;
use std::task::Waker;

use super::messages::Mailbox;
use super::port::{BATCH, Deliver, Finished};
use crate::owned::Buf;

/// Who is told when an operation is done.
#[derive(Clone, Debug)]
pub(super) enum Task {
    /// Whoever awaits the messages of a buffer.
    Many(Arc<Mailbox>),
    /// A future that was polled with this waker.
    Waiting(Waker),
    /// A future that has been told and has not looked yet.
    Told,
    /// Nobody: the future is gone.
    Gone,
}

impl Task {
    /// Whom to wake, without anything to give.
    pub(super) fn waker(self) -> Option<Waker> {
        match self {
            Self::Many(mailbox) => mailbox.reader(),
            Self::Waiting(waker) => Some(waker),
            Self::Told | Self::Gone => None,
        }
    }
}

/// What is left to do for a completion when the thread's turn is over: either step may
/// run code that comes back to the endpoint.
#[derive(Default)]
pub(super) enum After {
    #[default]
    Nothing,
    Wake(Waker),
    Release(Buf),
    Forget(Task),
}

impl After {
    pub(super) fn run(self) {
        match self {
            Self::Nothing => {}
            Self::Wake(waker) => waker.wake(),
            Self::Release(buf) => drop(buf),
            Self::Forget(task) => drop(task),
        }
    }
}

/// What is left to do for the completions of one read.
#[derive(Default)]
pub(super) struct Aftermath {
    list: [After; BATCH],
    len: usize,
}

impl Aftermath {
    pub(super) fn run(self) {
        self.list.into_iter().take(self.len).for_each(After::run);
    }
}

impl Deliver<Task> for Aftermath {
    /// Keeps a finished operation for its future, if there is one.
    fn deliver(&mut self, mut finished: Finished<Task>) -> Option<Finished<Task>> {
        finished.set_len();
        let (after, rest) = match mem::replace(&mut finished.owner, Task::Told) {
            Task::Many(mailbox) => match mailbox.put(finished) {
                Ok(reader) => (reader.map_or(After::Nothing, After::Wake), None),
                Err(buf) => (After::Release(buf), None),
            },
            Task::Waiting(waker) => (After::Wake(waker), Some(finished)),
            Task::Told | Task::Gone => (After::Release(finished.buf), None),
        };
        self.list[self.len] = after;
        self.len += 1;
        rest
    }
}
