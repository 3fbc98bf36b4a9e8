//! `Machine`: the state of one connection, without input and output.
//!
//! The machine takes frames and payloads that have arrived, and commands of the application. It
//! returns [`Output`]s to post and [`Event`]s to report. It knows neither endpoints nor time, and
//! does not own memory: `M` is the handle of a payload.

mod id_map;
#[cfg(test)]
mod model;
mod receiver;
mod sender;
mod types;

use std::collections::VecDeque;
use std::time::Instant;

use self::receiver::Receiver;
use self::sender::{Outgoing, Sender};
use crate::wire::{Header, Kind, Limits};

pub(crate) use self::id_map::IdMap;
pub(crate) use self::receiver::{Incoming, Taken};
pub(crate) use self::sender::message_number;
pub(crate) use self::types::{Event, Output, Payload, Role, Violation};

/// The state of one connection after the greetings.
#[derive(Debug)]
pub(crate) struct Machine<M> {
    role: Role,
    sender: Sender<M>,
    receiver: Receiver<M>,
    /// Outputs that need no credit.
    outputs: VecDeque<Output<M>>,
    events: VecDeque<Event<M>>,
    next_id: u64,
    /// The client's requests without a response. Each has exactly one, also after it was cancelled.
    awaited: IdMap<()>,
    /// The peer's last frame, until the payloads that it has sent before have arrived.
    closing: Option<Closing<M>>,
}

/// The content of the last frame of a connection.
#[derive(Debug)]
struct Closing<M> {
    text: M,
    /// The number of announced payloads that the peer has sent.
    payloads: u64,
}

impl<M: Payload> Machine<M> {
    /// The state of a new connection, with the limits of both receivers.
    pub(crate) fn new(role: Role, local: Limits, remote: Limits) -> Self {
        Self {
            role,
            sender: Sender::new(remote),
            receiver: Receiver::new(role, local),
            outputs: VecDeque::new(),
            events: VecDeque::new(),
            next_id: 1,
            awaited: IdMap::new(),
            closing: None,
        }
    }

    /// Whether the queue of outgoing messages has room. Methods that queue a message do not check
    /// this.
    pub(crate) fn has_room(&self) -> bool {
        self.sender.has_room()
    }

    /// Queues a message without a response. Returns its number, which is greater than the numbers
    /// of earlier messages and requests.
    pub(crate) fn send(&mut self, payload: M) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.sender.queue(Outgoing::new(Kind::Message, id, payload));
        id
    }

    /// Removes a message from the queue, unless it was returned as an output.
    pub(crate) fn take_back(&mut self, id: u64) {
        self.sender.remove(id);
    }

    /// Queues a request. Returns its number.
    pub(crate) fn request(&mut self, payload: M, deadline: Option<Instant>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let mut outgoing = Outgoing::new(Kind::Request, id, payload);
        outgoing.deadline = deadline;
        self.sender.queue(outgoing);
        self.awaited.insert(id, ());
        id
    }

    /// Cancels a request: removes it from the queue, or tells the peer.
    pub(crate) fn cancel(&mut self, id: u64) {
        if self.sender.remove(id) {
            self.awaited.remove(id);
        } else if self.awaited.contains(id) {
            let mut header = Header::new(Kind::Cancel);
            header.id = id;
            self.outputs.push_back(Output::Frame(header, None));
        }
    }

    /// Queues the response to a request that [`Self::take`] has returned. A response to a
    /// cancelled request is dropped.
    pub(crate) fn respond(&mut self, id: u64, outcome: Result<M, M>) {
        if !self.receiver.finish(id) {
            return;
        }
        let (kind, payload) = match outcome {
            Ok(payload) => (Kind::Response, payload),
            Err(text) => (Kind::Failure, text),
        };
        self.sender.queue(Outgoing::new(kind, id, payload));
    }

    /// Whether a request of the peer has neither a response nor a cancellation.
    pub(crate) fn is_open(&self, id: u64) -> bool {
        self.receiver.is_open(id)
    }

    /// Takes the oldest message or request, unless the queue of responses is full: the peer then
    /// does not read them.
    pub(crate) fn take(&mut self) -> Option<Taken<M>> {
        if !self.sender.has_response_room() {
            return None;
        }
        let taken = self.receiver.take();
        self.return_credit();
        taken
    }

    /// Whether [`Self::take`] would return something.
    pub(crate) fn can_take(&self) -> bool {
        self.receiver.has_complete() && self.sender.has_response_room()
    }

    /// Takes in a frame after the greetings.
    ///
    /// # Errors
    /// [`Violation`]: the connection must be closed.
    pub(crate) fn receive_frame(&mut self, header: Header, payload: M) -> Result<(), Violation> {
        self.sender.add_credit(header.credit)?;
        match header.kind {
            Kind::Message | Kind::Request | Kind::Response | Kind::Failure => {
                let is_response = matches!(header.kind, Kind::Response | Kind::Failure);
                let is_awaited = !is_response || self.awaited.remove(header.id).is_some();
                let bulk = self.receiver.receive(header, payload)?;
                if !is_awaited {
                    return Err(Violation::Unexpected(header.id));
                }
                self.outputs.extend(bulk);
                self.dispatch()?;
            }
            Kind::Cancel if self.role == Role::Server => {
                let id = header.id;
                if let Some(was_taken) = self.receiver.cancel(id) {
                    let failure = Header {
                        id,
                        ..Header::new(Kind::Failure)
                    };
                    self.outputs.push_back(Output::Frame(failure, None));
                    self.events
                        .extend(was_taken.then_some(Event::Cancelled { id }));
                }
            }
            Kind::Credit => {}
            Kind::Close => {
                let payloads = header.id;
                let text = payload;
                self.closing = Some(Closing { text, payloads });
            }
            kind => return Err(Violation::Kind(kind)),
        }
        self.return_credit();
        Ok(())
    }

    /// Takes in the payload of an announcement.
    ///
    /// # Errors
    /// [`Violation`]: the connection must be closed.
    pub(crate) fn receive_bulk(&mut self, number: u64, payload: M) -> Result<(), Violation> {
        self.receiver.receive_bulk(number, payload)?;
        self.dispatch()?;
        self.return_credit();
        Ok(())
    }

    /// The next thing to post; `now` reads the clock, which only a request with a deadline needs.
    pub(crate) fn next_output(&mut self, now: impl FnOnce() -> Instant) -> Option<Output<M>> {
        if let Some(mut output) = self.outputs.pop_front() {
            if let Output::Frame(header, _) = &mut output {
                header.credit = self.receiver.take_owed();
            }
            return Some(output);
        }
        let (mut header, inline, bulk) = self.sender.next(now)?;
        header.credit = self.receiver.take_owed();
        self.outputs.extend(bulk);
        Some(Output::Frame(header, inline))
    }

    /// Drops everything except messages that the application may still take: the connection has
    /// ended.
    pub(crate) fn abandon(&mut self) {
        self.sender.clear();
        self.receiver.abandon();
        self.outputs.clear();
        self.events.clear();
        self.closing = None;
    }

    /// The next event to report.
    pub(crate) fn next_event(&mut self) -> Option<Event<M>> {
        self.events.pop_front().or_else(|| self.closed())
    }

    /// Whether the peer has closed the connection, and payloads that it has sent before are still
    /// to come. A large payload may arrive after later frames.
    pub(crate) const fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    fn closed(&mut self) -> Option<Event<M>> {
        let awaits_more = |closing: &mut Closing<M>| {
            closing.text.len() == 0 && self.receiver.awaits_payload_before(closing.payloads)
        };
        let closing = self.closing.take_if(|closing| !awaits_more(closing))?;
        Some(Event::Closed(closing.text))
    }

    /// Sorts complete payloads, in the order of their announcements.
    fn dispatch(&mut self) -> Result<(), Violation> {
        while let Some((id, outcome)) = self.receiver.next_complete()? {
            self.events.push_back(Event::Response { id, outcome });
        }
        Ok(())
    }

    /// Queues a frame of nothing but credit, if the peer may wait for it.
    fn return_credit(&mut self) {
        if self.receiver.owes_much() {
            self.probe();
        }
    }

    /// Queues a frame of nothing but credit, unless there is a frame in the queue of those that need
    /// none.
    pub(crate) fn probe(&mut self) {
        let is_frame = |output: &Output<M>| matches!(output, Output::Frame(..));
        if !self.outputs.iter().any(is_frame) {
            let header = Header::new(Kind::Credit);
            self.outputs.push_back(Output::Frame(header, None));
        }
    }
}
