//! `Link`: a connection of a hub. It posts what the connection's machine returns.

pub(super) mod closing;
mod lending;
mod posts;
mod probing;

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use selvedge::FiAddr;
use selvedge::owned::Handle;

use self::closing::{Closing, send_close};
use self::lending::Lending;
use self::posts::{Post, Posted};
use self::probing::Probing;
use super::shared::{Cancellation, Shared};
use crate::machine::{Event, IdMap, Machine, Payload};
use crate::message::Body;
use crate::port::{Port, Sends};
use crate::{End, Error, Message};

/// A request whose response is outstanding, or has not been collected.
#[derive(Debug)]
pub(in crate::hub) struct Call {
    pub(in crate::hub) waker: Option<Waker>,
    pub(in crate::hub) outcome: Option<Result<Body, Error>>,
    pub(in crate::hub) deadline: Option<Instant>,
    pub(in crate::hub) timeout: Duration,
}

/// A connection.
#[derive(Debug)]
pub(in crate::hub) struct Link {
    pub(in crate::hub) shared: Arc<Shared>,
    pub(in crate::hub) peer: FiAddr,
    /// The number by which a repeated `Hello` is recognized.
    pub(in crate::hub) nonce: u64,
    pub(in crate::hub) machine: Machine<Body>,
    /// Posts that found a full queue.
    held: VecDeque<Post>,
    /// The receive that fails when the peer ends.
    watch: Option<Handle>,
    bulk_receives: FxHashMap<u64, Handle>,
    sends: Sends,
    /// Messages that were posted, with the number of sends after whose completion they are sent.
    unsent: VecDeque<(u64, u64)>,
    closing: Closing,
    lending: Lending,
    probing: Probing,
    /// The number of the last message that was sent.
    pub(in crate::hub) last_sent: u64,
    pub(in crate::hub) calls: IdMap<Call>,
    /// The cancellations of requests that the application has taken and not finished, where a
    /// handler waits for one.
    pub(in crate::hub) active: FxHashMap<u64, Arc<Cancellation>>,
    /// Tasks that wait until their message is sent.
    pub(in crate::hub) sent_wakers: Vec<Waker>,
    /// Tasks that wait for room in the queue of outgoing messages.
    pub(in crate::hub) room_wakers: Vec<Waker>,
    /// Tasks that wait for a message.
    pub(in crate::hub) message_wakers: Vec<Waker>,
    /// Whether the hub's list of connections with messages or requests has this one.
    pub(in crate::hub) is_listed: bool,
    /// Whether messages are received from the connection, and not reported by the listener.
    pub(in crate::hub) is_detached: bool,
}

impl Link {
    pub(in crate::hub) fn new(
        shared: Arc<Shared>,
        peer: FiAddr,
        nonce: u64,
        machine: Machine<Body>,
    ) -> Self {
        Self {
            shared,
            peer,
            nonce,
            machine,
            held: VecDeque::new(),
            watch: None,
            bulk_receives: FxHashMap::default(),
            sends: Sends::default(),
            unsent: VecDeque::new(),
            closing: Closing::default(),
            lending: Lending::default(),
            probing: Probing::default(),
            last_sent: 0,
            calls: IdMap::new(),
            active: FxHashMap::default(),
            sent_wakers: Vec::new(),
            room_wakers: Vec::new(),
            message_wakers: Vec::new(),
            is_listed: false,
            is_detached: false,
        }
    }

    pub(in crate::hub) fn is_open(&self) -> bool {
        self.shared.end.get().is_none()
    }

    /// Whether a post waits for room in a queue of the endpoint.
    pub(in crate::hub) fn is_blocked(&self) -> bool {
        !self.held.is_empty()
    }

    /// Posts the receive that fails when the peer ends.
    pub(in crate::hub) fn watch(&mut self, port: &Port) -> Result<(), Error> {
        self.watch = port.watch(self.peer, self.shared.key)?;
        Ok(())
    }

    /// Queues a probe of a peer whose death the transport does not report, if it is time. Returns
    /// when the next one is due.
    pub(in crate::hub) fn probe(&mut self, port: &Port, now: Instant) -> Option<Instant> {
        if port.scheme.reports_peers() || !self.is_open() {
            return None;
        }
        let (is_due, next) = self.probing.next(now);
        if is_due {
            self.machine.probe();
        }
        Some(next)
    }

    /// Whether the transport has refused everything to this peer for too long, although none of
    /// this connection's sends is outstanding.
    pub(in crate::hub) fn is_unreachable(&mut self, port: &Port, now: Instant) -> bool {
        let is_refused = self.is_blocked() && self.sends.outstanding() == 0;
        !port.scheme.reports_peers() && self.probing.is_refused_for_long(is_refused, now)
    }

    /// The number of sends without a completion.
    pub(in crate::hub) const fn outstanding_sends(&self) -> u64 {
        self.sends.outstanding()
    }

    /// Notes the completion of the send in this slot.
    pub(in crate::hub) const fn sent(&mut self, slot: u32) {
        self.sends.complete(slot);
    }

    /// Notes that the peer has given a lent payload back.
    pub(in crate::hub) const fn given_back(&mut self) {
        self.lending.give_back();
    }

    /// Has the peer's payloads received by reference, if the peer lends them.
    pub(in crate::hub) const fn accept_lent(&mut self) {
        self.lending.is_accepted = true;
    }

    /// Whether the peer of an open connection has payloads that were lent to it.
    pub(in crate::hub) fn is_any_lent(&self) -> bool {
        self.is_open() && self.lending.is_any_lent()
    }

    pub(in crate::hub) fn forget_bulk_receive(&mut self, number: u64) {
        self.bulk_receives.remove(&number);
    }

    /// Reports the machine's events and posts its outputs. Adds the tasks to wake to `woken`. `now`
    /// reads the clock for the deadlines of requests. An error ends the connection.
    pub(in crate::hub) fn pump(
        &mut self,
        port: &Port,
        woken: &mut Vec<Waker>,
        now: impl Fn() -> Instant,
    ) -> Result<(), End> {
        while let Some(event) = self.machine.next_event() {
            self.report(event, woken)?;
        }
        if self.machine.is_closing() {
            self.closing.check()?;
        }
        while let Some(held) = self.held.pop_front() {
            if !self.post(held, port)? {
                self.note_sent(woken);
                return Ok(());
            }
        }
        while self.sends.has_room()
            && let Some(output) = self.machine.next_output(&now)
        {
            if !self.post(Post::new(output, port, &self.lending)?, port)? {
                break;
            }
        }
        self.note_sent(woken);
        if self.machine.has_room() {
            woken.append(&mut self.room_wakers);
        }
        if self.machine.can_take() {
            woken.append(&mut self.message_wakers);
        }
        Ok(())
    }

    /// Until when the payloads of a closed connection may still arrive.
    pub(in crate::hub) const fn closing_until(&self) -> Option<Instant> {
        self.closing.until
    }

    /// The end of a connection whose peer is lost.
    pub(in crate::hub) fn end_of_lost(&self, reason: String) -> End {
        if self.machine.is_closing() {
            End::Remote
        } else {
            End::Lost(reason)
        }
    }

    /// # Errors
    /// [`Error::TooLarge`] for a message beyond the peer's limit.
    pub(in crate::hub) fn check_length(&self, message: &Message) -> Result<(), Error> {
        let (len, limit) = (message.len(), self.shared.remote_limit);
        if len as u64 > limit {
            return Err(Error::TooLarge { len, limit });
        }
        Ok(())
    }

    /// Posts; returns whether there was room.
    fn post(&mut self, post: Post, port: &Port) -> Result<bool, End> {
        let slot = self.sends.next_slot();
        let (message, has_completion) = match post.post(port, (self.peer, self.shared.key), slot)? {
            Posted::Full(post) => {
                self.held.push_front(post);
                return Ok(false);
            }
            Posted::Receive { number, handle } => {
                self.bulk_receives.insert(number, handle);
                return Ok(true);
            }
            Posted::Frame {
                message,
                has_completion,
            } => (message, has_completion),
            Posted::Bulk { message, number } => {
                self.closing.payloads = number + 1;
                (message, true)
            }
            Posted::Lent { number } => {
                self.closing.payloads = number + 1;
                self.lending.lend();
                return Ok(true);
            }
        };
        let sends = self.sends.post(has_completion);
        if message > 0 {
            self.unsent.push_back((message, sends));
        }
        Ok(true)
    }

    /// Wakes the tasks whose messages are sent.
    fn note_sent(&mut self, woken: &mut Vec<Waker>) {
        while let Some(&(message, sends)) = self.unsent.front()
            && self.sends.has_completed(sends)
        {
            self.unsent.pop_front();
            self.last_sent = message;
            woken.append(&mut self.sent_wakers);
        }
    }

    fn report(&mut self, event: Event<Body>, woken: &mut Vec<Waker>) -> Result<(), End> {
        match event {
            Event::Response { id, outcome } => {
                // A request that was dropped has no call, one that has timed out has its outcome.
                let call = self.calls.get_mut(id).filter(|call| call.outcome.is_none());
                if let Some(call) = call {
                    let failed = |text: Body| Error::Failed(text.to_text());
                    call.outcome = Some(outcome.map_err(failed));
                    woken.extend(call.waker.take());
                }
            }
            Event::Cancelled { id } => {
                let cancellation = self.active.remove(&id);
                woken.extend(cancellation.and_then(|it| it.set()));
            }
            Event::Closed(text) if text.len() == 0 => return Err(End::Remote),
            Event::Closed(text) => return Err(End::Refused(text.to_text())),
        }
        Ok(())
    }

    /// Ends the connection: fails its calls, cancels its requests and receives. Messages that have
    /// arrived stay.
    pub(in crate::hub) fn end(&mut self, end: &End, port: &Port, woken: &mut Vec<Waker>) {
        if self.shared.end.set(end.clone()).is_err() {
            return;
        }
        let text = match end {
            End::Local => Some(""),
            End::Violation(text) => Some(text.as_str()),
            End::Remote | End::Lost(_) | End::Refused(_) => None,
        };
        if let Some(text) = text {
            send_close(
                port,
                self.peer,
                self.shared.key,
                self.closing.payloads,
                text,
            );
        }
        self.machine.abandon();
        self.held.clear();
        for handle in self.bulk_receives.drain().map(|(_, handle)| handle) {
            port.cancel(handle);
        }
        if let Some(watch) = self.watch.take() {
            port.cancel(watch);
        }
        for (_, call) in self.calls.iter_mut() {
            call.outcome
                .get_or_insert_with(|| Err(Error::Ended(end.clone())));
            woken.extend(call.waker.take());
        }
        let active = self.active.drain();
        woken.extend(active.filter_map(|(_, cancellation)| cancellation.set()));
        woken.append(&mut self.sent_wakers);
        woken.append(&mut self.room_wakers);
        woken.append(&mut self.message_wakers);
    }
}
