//! `Sender`: the queue of outgoing messages, and the peer's credit for them.

use std::collections::VecDeque;
use std::time::Instant;

use super::types::{INLINE_MAX, Output, Payload, Violation, blocks};
use crate::wire::{Credit, Header, Kind, Limits};

/// The number of queued messages from which on the queue has no room.
const QUEUE_MAX: usize = 64;

/// A message that waits for credit.
#[derive(Debug)]
pub(super) struct Outgoing<M> {
    kind: Kind,
    id: u64,
    payload: M,
    pub(super) deadline: Option<Instant>,
}

impl<M> Outgoing<M> {
    pub(super) const fn new(kind: Kind, id: u64, payload: M) -> Self {
        Self {
            kind,
            id,
            payload,
            deadline: None,
        }
    }
}

/// The outgoing side of a connection.
#[derive(Debug)]
pub(super) struct Sender<M> {
    window: Limits,
    /// The part of the window that is free.
    credit: Credit,
    /// The number of announcements.
    announced: u64,
    queue: VecDeque<Outgoing<M>>,
    /// Responses, which need no credit.
    responses: VecDeque<Outgoing<M>>,
}

impl<M: Payload> Sender<M> {
    pub(super) fn new(window: Limits) -> Self {
        Self {
            window,
            credit: Credit {
                messages: window.messages,
                blocks: window.blocks,
            },
            announced: 0,
            queue: VecDeque::new(),
            responses: VecDeque::new(),
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.queue.len() < QUEUE_MAX
    }

    /// Whether the peer reads its responses.
    pub(super) fn has_response_room(&self) -> bool {
        self.responses.len() < QUEUE_MAX
    }

    pub(super) fn queue(&mut self, outgoing: Outgoing<M>) {
        if outgoing.kind.uses_credit() {
            self.queue.push_back(outgoing);
        } else {
            self.responses.push_back(outgoing);
        }
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.responses.clear();
    }

    /// Removes the message or request with this number from the queue. Returns whether the queue
    /// had it.
    pub(super) fn remove(&mut self, id: u64) -> bool {
        let index = self.queue.iter().position(|it| it.id == id);
        index.is_some_and(|index| self.queue.remove(index).is_some())
    }

    /// # Errors
    /// [`Violation::Credit`] for credit beyond the window.
    pub(super) fn add_credit(&mut self, credit: Credit) -> Result<(), Violation> {
        let sum = self.credit.messages.checked_add(credit.messages);
        let messages = sum.filter(|&sum| sum <= self.window.messages);
        self.credit.messages = messages.ok_or(Violation::Credit)?;
        let sum = self.credit.blocks.checked_add(credit.blocks);
        let blocks = sum.filter(|&sum| sum <= self.window.blocks);
        self.credit.blocks = blocks.ok_or(Violation::Credit)?;
        Ok(())
    }

    /// Takes the oldest response, or else the oldest message if the peer has given credit for it.
    /// Returns its header, its payload if the frame contains it, and else the payload to post after
    /// the frame.
    pub(super) fn next(
        &mut self,
        now: impl FnOnce() -> Instant,
    ) -> Option<(Header, Option<M>, Option<Output<M>>)> {
        let Outgoing {
            kind,
            id,
            payload,
            deadline,
        } = self.pop()?;
        let len = payload.len();
        let is_announced = len > INLINE_MAX;
        let header = Header {
            is_announced,
            id,
            len: len as u64,
            time: deadline.map_or(0, |deadline| micros_until(deadline, now())),
            ..Header::new(kind)
        };
        if !is_announced {
            return Some((header, Some(payload), None));
        }
        let number = self.announced;
        self.announced += 1;
        let bulk = Output::Bulk {
            number,
            message: message_number(&header),
            payload,
        };
        Some((header, None, Some(bulk)))
    }

    fn pop(&mut self) -> Option<Outgoing<M>> {
        if let Some(response) = self.responses.pop_front() {
            return Some(response);
        }
        let len = self.queue.front()?.payload.len();
        let blocks = charged_blocks(len > INLINE_MAX, len, self.window);
        if self.credit.messages == 0 || self.credit.blocks < blocks {
            return None;
        }
        self.credit.messages -= 1;
        self.credit.blocks -= blocks;
        self.queue.pop_front()
    }
}

/// The number of a message without a response; 0 for other kinds.
pub(crate) const fn message_number(header: &Header) -> u64 {
    match header.kind {
        Kind::Message => header.id,
        _ => 0,
    }
}

/// The credit that a message uses. A message that exceeds half of the window uses half of it, so
/// that it waits for no more than a receiver returns in any case; the receiver keeps one such
/// message at most for each half.
pub(super) fn charged_blocks(is_announced: bool, len: usize, window: Limits) -> u32 {
    if is_announced {
        blocks(len).min(window.blocks / 2)
    } else {
        0
    }
}

/// At least 1, because 0 means that there is no deadline.
fn micros_until(deadline: Instant, now: Instant) -> u64 {
    let left = deadline.saturating_duration_since(now).as_micros();
    u64::try_from(left).unwrap_or(u64::MAX).max(1)
}
