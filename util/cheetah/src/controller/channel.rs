//! `Channel`: matches messages with requests by sender and tag, in any order of arrival.

use std::cell::RefCell;
use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::net::recv::Payload;

/// Unmatched requests and messages of a handler. An `A` is the callback of a request.
pub(crate) struct Channel<A> {
    unmatched: RefCell<Unmatched<A>>,
}

struct Unmatched<A> {
    actions: Queues<A>,
    messages: Queues<Payload>,
}

/// Queues by context and tag.
type Queues<T> = FxHashMap<(usize, i32), VecDeque<T>>;

/// A message and its request.
pub(crate) struct MatchedRequest<A> {
    pub(crate) payload: Payload,
    pub(crate) action: A,
}

impl<A> Channel<A> {
    pub(crate) fn new() -> Self {
        Self {
            unmatched: RefCell::new(Unmatched {
                actions: Queues::default(),
                messages: Queues::default(),
            }),
        }
    }

    /// Number of requests of context `from`, or of any context.
    pub(crate) fn actions(&self, from: Option<usize>) -> usize {
        count(&self.unmatched.borrow().actions, from)
    }

    /// Number of messages of context `from`, or of any context.
    pub(crate) fn messages(&self, from: Option<usize>) -> usize {
        count(&self.unmatched.borrow().messages, from)
    }

    /// Matches a message with a request, or queues it.
    pub(crate) fn receive(
        &self,
        from: usize,
        tag: i32,
        payload: Payload,
    ) -> Option<MatchedRequest<A>> {
        let mut unmatched = self.unmatched.borrow_mut();
        match take(&mut unmatched.actions, (from, tag)) {
            Some(action) => Some(MatchedRequest { payload, action }),
            None => {
                let queue = unmatched.messages.entry((from, tag)).or_default();
                queue.push_back(payload);
                None
            }
        }
    }

    /// Matches a request with a message, or queues it.
    pub(crate) fn request(&self, from: usize, tag: i32, action: A) -> Option<MatchedRequest<A>> {
        let mut unmatched = self.unmatched.borrow_mut();
        match take(&mut unmatched.messages, (from, tag)) {
            Some(payload) => Some(MatchedRequest { payload, action }),
            None => {
                let queue = unmatched.actions.entry((from, tag)).or_default();
                queue.push_back(action);
                None
            }
        }
    }
}

fn take<T>(queues: &mut Queues<T>, key: (usize, i32)) -> Option<T> {
    let queue = queues.get_mut(&key)?;
    let item = queue.pop_front();
    if queue.is_empty() {
        queues.remove(&key);
    }
    item
}

fn count<T>(queues: &Queues<T>, from: Option<usize>) -> usize {
    let matching = queues
        .iter()
        .filter(|(key, _)| from.is_none_or(|from| key.0 == from));
    matching.map(|(_, queue)| queue.len()).sum()
}
