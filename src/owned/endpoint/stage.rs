//! How far an awaited operation has come.

use std::mem;
use std::sync::Arc;

use super::backlog::Ticket;
use super::future::AsyncEndpoint;
use super::port::Finished;
use super::post::{Operands, Post};
use super::slots::Key;
use super::told::Task;
use crate::Errno;
use crate::owned::{Buf, Failed};

#[derive(Debug)]
pub(super) enum Stage {
    Unposted(Buf),
    /// To be posted for what is set aside under this key.
    Claimed(Key, Buf),
    /// For room in a full queue.
    Waiting(Arc<Ticket>),
    Posted(Key),
    Over,
}

impl Stage {
    /// Posts, if that was not done; a full queue is no failure.
    pub(super) fn post(
        &mut self,
        ep: &AsyncEndpoint,
        what: Post,
        operands: Operands<'_>,
        task: impl Fn() -> Task,
    ) -> Result<(), Failed> {
        match mem::replace(self, Self::Over) {
            Self::Unposted(buf) => *self = ep.place(what, operands, buf, task)?,
            Self::Claimed(key, buf) => *self = ep.redeem(key, what, buf, task())?,
            stage => *self = stage,
        }
        Ok(())
    }

    /// Sees whether a post that waited has been made; if not, `task` is told when it cannot be.
    pub(super) fn settle(&mut self, task: impl Fn() -> Task) -> Result<(), Failed> {
        let Self::Waiting(ticket) = self else {
            return Ok(());
        };
        match ticket.look(task()) {
            Ok(None) => {}
            Ok(Some(key)) => *self = Self::Posted(key),
            Err(refused) => {
                *self = Self::Over;
                return Err(refused.into());
            }
        }
        Ok(())
    }

    /// Ends an operation after a read of completions that failed. Gives its outcome if another
    /// thread has read that meanwhile.
    pub(super) fn fail(
        &mut self,
        ep: &AsyncEndpoint,
        errno: Errno,
    ) -> Result<(Key, Finished<Task>), Failed> {
        let (key, buf) = match mem::replace(self, Self::Over) {
            Self::Unposted(buf) | Self::Claimed(_, buf) => (None, Some(buf)),
            Self::Waiting(ticket) => ticket.withdraw(),
            Self::Posted(key) => (Some(key), None),
            Self::Over => (None, None),
        };
        let ended = match (key, buf) {
            (Some(key), _) => {
                let abandoned = ep.port().abandon(key, Task::Gone);
                abandoned.map(|finished| (key, finished))
            }
            (None, Some(buf)) => Err(buf),
            (None, None) => unreachable!("an operation that is over is not polled"),
        };
        ended.map_err(|buf| Failed::without_completion(errno, buf, UNREADABLE))
    }

    /// Ends it for a future that goes; what is posted and not over.
    pub(super) fn leave(self) -> Option<Key> {
        match self {
            Self::Posted(key) => Some(key),
            Self::Waiting(ticket) => ticket.leave(),
            Self::Unposted(_) | Self::Claimed(..) | Self::Over => None,
        }
    }
}

/// What a failed operation says whose completion cannot be read.
const UNREADABLE: &str = "the endpoint's completions cannot be read, so whether the operation took \
                          place is unknown; close the endpoint and open another";
