//! `Receiver`: payloads that have arrived or are announced, and the credit owed for them.

use std::collections::VecDeque;

use rustc_hash::FxHashSet;

use super::sender::charged_blocks;
use super::types::{Output, Payload, Role, Violation};
use crate::wire::{Credit, Header, Kind, Limits};

/// A request of the peer.
#[derive(Debug)]
pub(crate) struct Incoming<M> {
    /// The number by which the response names it.
    pub(crate) id: u64,
    pub(crate) payload: M,
    /// The time until the deadline when the client sent it, in microseconds; 0 without a deadline.
    pub(crate) time: u64,
}

/// Something for the application to take.
#[derive(Debug)]
pub(crate) enum Taken<M> {
    Message(M),
    Request(Incoming<M>),
}

/// A message that the application has not taken.
#[derive(Debug)]
struct Received<M> {
    kind: Kind,
    id: u64,
    time: u64,
    credit: Credit,
    content: Content<M>,
}

#[derive(Debug)]
enum Content<M> {
    Complete(M),
    /// The payload of the announcement with this number is still to come.
    Announced {
        number: u64,
        len: usize,
    },
    /// The client has cancelled the request; its payload may still be to come.
    Cancelled(Option<(u64, usize)>),
}

impl<M> Content<M> {
    /// The number and length of a payload that is still to come.
    const fn announced(&self) -> Option<(u64, usize)> {
        match *self {
            Self::Announced { number, len } => Some((number, len)),
            Self::Cancelled(announced) => announced,
            Self::Complete(_) => None,
        }
    }
}

/// The incoming side of a connection.
#[derive(Debug)]
pub(super) struct Receiver<M> {
    role: Role,
    limits: Limits,
    /// The bytes of the window that the peer has used and that were not given back.
    used: Credit,
    /// The part of `used` that the application has taken.
    owed: Credit,
    /// The number of announcements.
    announced: u64,
    /// In the order of arrival. All before the first incomplete one are in `complete`.
    pending: VecDeque<Received<M>>,
    complete: VecDeque<(Taken<M>, Credit)>,
    /// The requests in `complete`, and those that the application has taken and not finished.
    open: FxHashSet<u64>,
}

impl<M: Payload> Receiver<M> {
    pub(super) fn new(role: Role, limits: Limits) -> Self {
        Self {
            role,
            limits,
            used: Credit::NONE,
            owed: Credit::NONE,
            announced: 0,
            pending: VecDeque::new(),
            complete: VecDeque::new(),
            open: FxHashSet::default(),
        }
    }

    /// Takes in a frame with a message, or its announcement. Returns the receive to post for an
    /// announced payload.
    ///
    /// # Errors
    /// [`Violation`] of the window, or of the limits.
    pub(super) fn receive(
        &mut self,
        header: Header,
        payload: M,
    ) -> Result<Option<Output<M>>, Violation> {
        let is_expected = match header.kind {
            Kind::Request => self.role == Role::Server,
            Kind::Response | Kind::Failure => self.role == Role::Client,
            _ => true,
        };
        if !is_expected {
            return Err(Violation::Kind(header.kind));
        }
        let limit = self.limits.message_len;
        let too_large = Violation::TooLarge(header.len, limit);
        let len = usize::try_from(header.len).map_err(|_| too_large)?;
        if header.len > limit {
            return Err(too_large);
        }
        let credit = self.use_window(&header, len)?;
        let mut receive = None;
        let content = if header.is_announced {
            let number = self.announced;
            self.announced += 1;
            receive = Some(Output::Receive { number, len });
            Content::Announced { number, len }
        } else {
            Content::Complete(payload)
        };
        self.pending.push_back(Received {
            kind: header.kind,
            id: header.id,
            time: header.time,
            credit,
            content,
        });
        Ok(receive)
    }

    /// The part of the window that a message uses.
    ///
    /// # Errors
    /// [`Violation::Window`] when the window has no room.
    fn use_window(&mut self, header: &Header, len: usize) -> Result<Credit, Violation> {
        if !header.kind.uses_credit() {
            return Ok(Credit::NONE);
        }
        let blocks = charged_blocks(header.is_announced, len, self.limits);
        self.used.messages += 1;
        self.used.blocks = self.used.blocks.saturating_add(blocks);
        if self.used.messages > self.limits.messages || self.used.blocks > self.limits.blocks {
            return Err(Violation::Window);
        }
        let messages = 1;
        Ok(Credit { messages, blocks })
    }

    /// Takes in the payload of an announcement.
    ///
    /// # Errors
    /// [`Violation`] for a payload that was not announced, or has another length.
    pub(super) fn receive_bulk(&mut self, number: u64, payload: M) -> Result<(), Violation> {
        let mut pending = self.pending.iter_mut();
        let found = pending.find_map(|received| {
            let (announced, len) = received.content.announced()?;
            (announced == number).then_some((received, len))
        });
        let (received, len) = found.ok_or(Violation::Unannounced)?;
        if payload.len() != len {
            return Err(Violation::Length(payload.len(), len));
        }
        received.content = match received.content {
            Content::Cancelled(_) => Content::Cancelled(None),
            _ => Content::Complete(payload),
        };
        Ok(())
    }

    /// Whether one of the first `payloads` announced payloads is still to come.
    pub(super) fn awaits_payload_before(&self, payloads: u64) -> bool {
        let mut announced = self.pending.iter().filter_map(|it| it.content.announced());
        announced.any(|(number, _)| number < payloads)
    }

    /// Moves complete messages to the queue, and returns the first one that is a response.
    ///
    /// # Errors
    /// [`Violation::Duplicate`] for a request with the number of an open one.
    #[expect(
        clippy::type_complexity,
        reason = "the number and outcome of a request"
    )]
    pub(super) fn next_complete(&mut self) -> Result<Option<(u64, Result<M, M>)>, Violation> {
        while let Some(first) = self.pending.front()
            && first.content.announced().is_none()
            && let Some(received) = self.pending.pop_front()
        {
            let credit = received.credit;
            let Content::Complete(payload) = received.content else {
                self.owe(credit);
                continue;
            };
            let id = received.id;
            match received.kind {
                Kind::Request => {
                    if !self.open.insert(id) {
                        return Err(Violation::Duplicate(id));
                    }
                    let time = received.time;
                    let request = Incoming { id, payload, time };
                    self.complete.push_back((Taken::Request(request), credit));
                }
                Kind::Response => return Ok(Some((id, Ok(payload)))),
                Kind::Failure => return Ok(Some((id, Err(payload)))),
                _ => self.complete.push_back((Taken::Message(payload), credit)),
            }
        }
        Ok(None)
    }

    /// Cancels a request. Returns whether the application has taken it; `None` for a request that
    /// has its response.
    pub(super) fn cancel(&mut self, id: u64) -> Option<bool> {
        let is_request = |taken: &Taken<M>| match taken {
            Taken::Request(request) => request.id == id,
            Taken::Message(_) => false,
        };
        let queued = self
            .complete
            .iter()
            .position(|(taken, _)| is_request(taken));
        if let Some((_, credit)) = queued.and_then(|index| self.complete.remove(index)) {
            self.open.remove(&id);
            self.owe(credit);
            return Some(false);
        }
        let mut pending = self.pending.iter_mut();
        let received = pending.find(|it| {
            let is_cancelled = matches!(it.content, Content::Cancelled(_));
            it.kind == Kind::Request && it.id == id && !is_cancelled
        });
        if let Some(received) = received {
            received.content = match received.content {
                Content::Announced { number, len } => Content::Cancelled(Some((number, len))),
                Content::Cancelled(expected) => Content::Cancelled(expected),
                Content::Complete(_) => Content::Cancelled(None),
            };
            return Some(false);
        }
        self.open.remove(&id).then_some(true)
    }

    /// Ends a request that the application has taken. Returns `false` if it was cancelled.
    pub(super) fn finish(&mut self, id: u64) -> bool {
        self.open.remove(&id)
    }

    /// Whether a request that has arrived was neither finished nor cancelled.
    pub(super) fn is_open(&self, id: u64) -> bool {
        self.open.contains(&id)
    }

    /// Takes the oldest complete message or request.
    pub(super) fn take(&mut self) -> Option<Taken<M>> {
        let (taken, credit) = self.complete.pop_front()?;
        self.owe(credit);
        Some(taken)
    }

    pub(super) fn has_complete(&self) -> bool {
        !self.complete.is_empty()
    }

    /// Drops everything except complete messages.
    pub(super) fn abandon(&mut self) {
        self.pending.clear();
        self.complete
            .retain(|(taken, _)| matches!(taken, Taken::Message(_)));
        self.open.clear();
    }

    fn owe(&mut self, credit: Credit) {
        self.owed.messages += credit.messages;
        self.owed.blocks += credit.blocks;
    }

    /// The credit for the header of the next frame.
    pub(super) fn take_owed(&mut self) -> Credit {
        let owed = std::mem::replace(&mut self.owed, Credit::NONE);
        self.used.messages -= owed.messages;
        self.used.blocks -= owed.blocks;
        owed
    }

    /// Whether the owed credit is half of the window or more. A sender whose receiver owes less has
    /// half of the window, or waits for the application.
    pub(super) fn owes_much(&self) -> bool {
        let is_much = |owed: u32, window: u32| owed > 0 && owed >= window.div_ceil(2);
        is_much(self.owed.messages.into(), self.limits.messages.into())
            || is_much(self.owed.blocks, self.limits.blocks)
    }
}
