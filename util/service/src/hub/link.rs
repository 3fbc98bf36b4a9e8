//! `Link`: a connection of a hub. It posts what the connection's machine returns.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use selvedge::owned::{Buf, Handle};
use selvedge::{Errno, FiAddr};

use super::shared::{Cancellation, Shared};
use crate::machine::{Event, Machine, Output, message_number};
use crate::port::{Key, Port, PostError};
use crate::wire::{Header, Kind};
use crate::{End, Error, Message};

/// A request whose response is outstanding, or has not been collected.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) waker: Option<Waker>,
    pub(super) outcome: Option<Result<Message, Error>>,
    pub(super) deadline: Option<Instant>,
    pub(super) timeout: Duration,
}

/// A post that found a full queue.
#[derive(Debug)]
struct Held {
    purpose: Purpose,
    /// The number of the message that is sent by this post; 0 for none.
    message: u64,
    buf: Buf,
}

#[derive(Clone, Copy, Debug)]
enum Purpose {
    Frame,
    /// The payload of the announcement with this number.
    Bulk(u64),
    /// The receive of the payload of the announcement with this number.
    Receive(u64),
}

/// The maximum number of sends without a completion. A peer that receives nothing, and whose
/// responses need no credit, takes no more of the endpoint's slots.
const SENDS_MAX: u64 = 64;

/// A connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) shared: Arc<Shared>,
    pub(super) peer: FiAddr,
    /// The number by which a repeated `Hello` is recognized.
    pub(super) nonce: u64,
    pub(super) machine: Machine<Message>,
    held: VecDeque<Held>,
    /// The receive that fails when the peer ends.
    watch: Option<Handle>,
    bulk_receives: FxHashMap<u64, Handle>,
    /// The numbers of sends that have a completion, and of their completions.
    posted: u64,
    completed: u64,
    /// Messages that were posted, with the number of completions after which they are sent.
    unsent: VecDeque<(u64, u64)>,
    /// The number of the last message that was sent.
    pub(super) last_sent: u64,
    pub(super) calls: FxHashMap<u64, Call>,
    /// The requests that the application has taken and not finished.
    pub(super) active: FxHashMap<u64, Arc<Cancellation>>,
    /// Tasks that wait until their message is sent.
    pub(super) sent_wakers: Vec<Waker>,
    /// Tasks that wait for room in the queue of outgoing messages.
    pub(super) room_wakers: Vec<Waker>,
    /// Tasks that wait for a message.
    pub(super) message_wakers: Vec<Waker>,
    /// Whether the hub's list of connections with messages or requests has this one.
    pub(super) is_listed: bool,
    /// Whether messages are received from the connection, and not reported by the listener.
    pub(super) is_detached: bool,
}

impl Link {
    pub(super) fn new(
        shared: Arc<Shared>,
        peer: FiAddr,
        nonce: u64,
        machine: Machine<Message>,
    ) -> Self {
        Self {
            shared,
            peer,
            nonce,
            machine,
            held: VecDeque::new(),
            watch: None,
            bulk_receives: FxHashMap::default(),
            posted: 0,
            completed: 0,
            unsent: VecDeque::new(),
            last_sent: 0,
            calls: FxHashMap::default(),
            active: FxHashMap::default(),
            sent_wakers: Vec::new(),
            room_wakers: Vec::new(),
            message_wakers: Vec::new(),
            is_listed: false,
            is_detached: false,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.shared.end.get().is_none()
    }

    /// Whether a post waits for room in a queue of the endpoint.
    pub(super) fn is_blocked(&self) -> bool {
        !self.held.is_empty()
    }

    /// Posts the receive that fails when the peer ends.
    pub(super) fn watch(&mut self, port: &Port) -> Result<(), Error> {
        self.watch = Some(port.watch(self.peer, self.shared.key)?);
        Ok(())
    }

    /// Notes the completion of a send.
    pub(super) fn sent(&mut self) {
        self.completed += 1;
    }

    pub(super) fn forget_bulk_receive(&mut self, number: u64) {
        self.bulk_receives.remove(&number);
    }

    /// Reports the machine's events and posts its outputs. Adds the tasks to wake to `woken`.
    /// An error ends the connection.
    pub(super) fn pump(&mut self, port: &Port, woken: &mut Vec<Waker>) -> Result<(), End> {
        while let Some(event) = self.machine.next_event() {
            self.report(event, woken)?;
        }
        while let Some(held) = self.held.pop_front() {
            if !self.post(held, port)? {
                self.note_sent(woken);
                return Ok(());
            }
        }
        while self.posted - self.completed < SENDS_MAX
            && let Some(output) = self.machine.next_output(Instant::now())
        {
            let held = self.prepare(output, port)?;
            if !self.post(held, port)? {
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

    /// Wakes the tasks whose messages are sent.
    fn note_sent(&mut self, woken: &mut Vec<Waker>) {
        while let Some(&(message, completions)) = self.unsent.front()
            && completions <= self.completed
        {
            self.unsent.pop_front();
            self.last_sent = message;
            woken.append(&mut self.sent_wakers);
        }
    }

    fn report(&mut self, event: Event<Message>, woken: &mut Vec<Waker>) -> Result<(), End> {
        match event {
            Event::Response { id, outcome } => {
                // A request that was dropped has no call, one that has timed out has its outcome.
                let call = self
                    .calls
                    .get_mut(&id)
                    .filter(|call| call.outcome.is_none());
                if let Some(call) = call {
                    let failed = |text: Message| Error::Failed(text_of(&text));
                    call.outcome = Some(outcome.map_err(failed));
                    woken.extend(call.waker.take());
                }
            }
            Event::Cancelled { id } => {
                let cancellation = self.active.remove(&id);
                woken.extend(cancellation.and_then(|it| it.set()));
            }
            Event::Closed(text) if text.is_empty() => return Err(End::Remote),
            Event::Closed(text) => return Err(End::Refused(text_of(&text))),
        }
        Ok(())
    }

    /// The buffers of an output.
    fn prepare(&self, output: Output<Message>, port: &Port) -> Result<Held, End> {
        let no_memory = |error: Error| End::Lost(error.to_string());
        Ok(match output {
            Output::Frame(header, Some(payload)) => Held {
                purpose: Purpose::Frame,
                message: message_number(&header),
                buf: payload.into_frame(&header),
            },
            Output::Frame(header, None) => {
                let empty = port.message(0).map_err(no_memory)?;
                Held {
                    purpose: Purpose::Frame,
                    // The payload of an announced message is still to be sent.
                    message: 0,
                    buf: empty.into_frame(&header),
                }
            }
            Output::Bulk {
                number,
                message,
                payload,
            } => Held {
                purpose: Purpose::Bulk(number),
                message,
                buf: payload.into_bulk(),
            },
            Output::Receive { number, len } => Held {
                purpose: Purpose::Receive(number),
                message: 0,
                buf: port.message(len).map_err(no_memory)?.into_bulk(),
            },
        })
    }

    /// Posts; returns whether there was room.
    fn post(&mut self, held: Held, port: &Port) -> Result<bool, End> {
        let (peer, key) = (self.peer, self.shared.key);
        let Held {
            purpose,
            message,
            buf,
        } = held;
        let posted = match purpose {
            Purpose::Frame => port.send_frame(buf, peer, key),
            Purpose::Bulk(number) => port.send_bulk(buf, peer, key, number).map(|()| true),
            Purpose::Receive(number) => {
                let posted = port.receive_bulk(buf, peer, key, number);
                posted.map(|handle| {
                    self.bulk_receives.insert(number, handle);
                    false
                })
            }
        };
        match posted {
            Ok(has_completion) => {
                self.posted += u64::from(has_completion);
                if message > 0 {
                    self.unsent.push_back((message, self.posted));
                }
                Ok(true)
            }
            Err(PostError {
                errno: Errno::Again,
                buf,
            }) => {
                self.held.push_front(Held {
                    purpose,
                    message,
                    buf,
                });
                Ok(false)
            }
            Err(PostError { errno, .. }) => Err(End::Lost(errno.to_string())),
        }
    }

    /// Ends the connection: fails its calls, cancels its requests and receives. Messages that have
    /// arrived stay.
    pub(super) fn end(&mut self, end: &End, port: &Port, woken: &mut Vec<Waker>) {
        if self.shared.end.set(end.clone()).is_err() {
            return;
        }
        let text = match end {
            End::Local => Some(""),
            End::Violation(text) => Some(text.as_str()),
            End::Remote | End::Lost(_) | End::Refused(_) => None,
        };
        if let Some(text) = text {
            send_close(port, self.peer, self.shared.key, text);
        }
        self.machine.abandon();
        self.held.clear();
        for handle in self.bulk_receives.drain().map(|(_, handle)| handle) {
            port.cancel(handle);
        }
        if let Some(watch) = self.watch.take() {
            port.cancel(watch);
        }
        for call in self.calls.values_mut() {
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

/// Sends the last frame of a connection. A peer that does not receive it learns of the end when
/// this endpoint closes.
pub(super) fn send_close(port: &Port, peer: FiAddr, key: Key, text: &str) {
    let mut header = Header::new(Kind::Close);
    header.len = text.len() as u64;
    let sent = port.message(text.len()).map(|mut message| {
        message.copy_from_slice(text.as_bytes());
        port.send_frame(message.into_frame(&header), peer, key)
    });
    if let Ok(Err(error)) = sent {
        log::debug!("the last frame to {peer:?} cannot be sent: {}", error.errno);
    }
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
