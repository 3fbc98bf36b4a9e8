//! How far an awaited operation has come.

use std::mem;
use std::sync::Arc;

use super::atomics::Operands;
use super::backlog::Ticket;
use super::future::AsyncEndpoint;
use super::port::Post;
use super::slots::Key;
use super::told::Task;
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

    /// Ends it for a future that goes; what is posted and not over.
    pub(super) fn leave(self) -> Option<Key> {
        match self {
            Self::Posted(key) => Some(key),
            Self::Waiting(ticket) => ticket.leave(),
            Self::Unposted(_) | Self::Claimed(..) | Self::Over => None,
        }
    }
}
