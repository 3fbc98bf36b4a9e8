//! `Channel`: matches messages with requests by sender and tag, in any order of arrival.

use std::cell::RefCell;
use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::net::recv::Payload;

/// Unmatched requests and messages of a handler. An `A` is the callback of a request.
pub(crate) struct Channel<A> {
    actions: RefCell<Queues<A>>,
    messages: RefCell<Queues<Payload>>,
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
            actions: RefCell::default(),
            messages: RefCell::default(),
        }
    }

    /// Number of requests of context `from`, or of any context.
    pub(crate) fn actions(&self, from: Option<usize>) -> usize {
        count(&self.actions.borrow(), from)
    }

    /// Number of messages of context `from`, or of any context.
    pub(crate) fn messages(&self, from: Option<usize>) -> usize {
        count(&self.messages.borrow(), from)
    }

    /// Matches a message with a request, or queues it.
    pub(crate) fn receive(
        &self,
        from: usize,
        tag: i32,
        payload: Payload,
    ) -> Option<MatchedRequest<A>> {
        let (action, payload) = take_or_queue(&self.actions, &self.messages, (from, tag), payload)?;
        Some(MatchedRequest { payload, action })
    }

    /// Matches a request with a message, or queues it.
    pub(crate) fn request(&self, from: usize, tag: i32, action: A) -> Option<MatchedRequest<A>> {
        let (payload, action) = take_or_queue(&self.messages, &self.actions, (from, tag), action)?;
        Some(MatchedRequest { payload, action })
    }
}

/// Takes the oldest item that waits for `item`, and returns both; queues `item` if there is none.
fn take_or_queue<T, U>(
    waiting: &RefCell<Queues<T>>,
    queues: &RefCell<Queues<U>>,
    key: (usize, i32),
    item: U,
) -> Option<(T, U)> {
    let Some(taken) = take(&mut waiting.borrow_mut(), key) else {
        queues.borrow_mut().entry(key).or_default().push_back(item);
        return None;
    };
    Some((taken, item))
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
