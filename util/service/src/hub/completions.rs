//! The completions of a hub's ports, and what they do to its connections.

use selvedge::owned::{Buf, Completion, Received};
use selvedge::{Errno, FiAddr, cq};

use super::state::State;
use crate::message::{Body, Frame, SmallFrame};
use crate::port::{Key, Port, Token, bulk_number};
use crate::wire::{Header, Kind};
use crate::{End, Message};

impl State {
    pub(super) fn complete(&mut self, ports: &[Port], port: usize, completion: Completion) {
        let Some(token) = Token::parse(completion.context) else {
            return;
        };
        match token {
            Token::Frame => {
                self.receives[port].spent += 1;
                self.frame(ports, port, completion);
            }
            Token::Hello => {
                if let Err(error) = completion.result {
                    self.attempt_failed(&error.detail);
                }
            }
            Token::Bulk(key) => self.bulk(ports, key, completion.buf, completion.result),
            Token::Sent(key, slot) if completion.result.is_ok() => {
                if let Some(link) = self.link(key) {
                    link.sent(slot);
                    self.pump(ports, key.index as usize);
                }
            }
            Token::Lent(key) if completion.result.is_ok() => {
                if let Some(link) = self.link(key) {
                    link.given_back();
                    self.pump(ports, key.index as usize);
                }
            }
            Token::End(key) | Token::Sent(key, _) | Token::Lent(key) => {
                if let Err(error) = completion.result
                    && error.errno != Errno::Canceled
                {
                    self.lost(ports, key, &error);
                }
            }
        }
    }

    fn lost(&mut self, ports: &[Port], key: Key, error: &cq::ErrEntry) {
        if let Some(link) = self.link(key) {
            let end = link.end_of_lost(format!("{}: {}", error.detail, error.errno));
            self.end(ports, key.index as usize, &end);
        }
    }

    fn bulk(
        &mut self,
        ports: &[Port],
        key: Key,
        buf: Buf,
        result: Result<Received, Box<cq::ErrEntry>>,
    ) {
        let received = match result {
            Ok(received) => received,
            Err(error) if error.errno == Errno::Canceled => return,
            Err(error) => return self.lost(ports, key, &error),
        };
        let Some(link) = self.link(key).filter(|link| link.is_open()) else {
            return;
        };
        let number = bulk_number(received.tag);
        link.forget_bulk_receive(number);
        let taken = match Body::received(buf) {
            None => Err(format!(
                "it sent a payload of {} bytes without a header",
                received.len
            )),
            Some(body) => {
                let taken = link.machine.receive_bulk(number, body);
                taken.map_err(|violation| violation.to_string())
            }
        };
        self.continue_or_end(ports, key.index as usize, taken);
    }

    /// A frame of any peer.
    fn frame(&mut self, ports: &[Port], port: usize, completion: Completion) {
        let Completion { buf, result, .. } = completion;
        let (peer, sender) = match result {
            // A libfabric reports a peer without an index in this way.
            Ok(received) if received.src == FiAddr::UNSPEC => (None, None),
            Ok(received) => (Some(received.src), None),
            Err(error) if error.errno == Errno::AddrNotAvail => (None, error.sender()),
            Err(error) => {
                let index = self.peers[port].get(&error.src).copied();
                if let (Some(index), Errno::Trunc) = (index, error.errno) {
                    let text = "it sent a frame that is too long".to_owned();
                    self.end(ports, index, &End::Violation(text));
                }
                return;
            }
        };
        let parsed = Header::parse(&buf).map_err(|malformed| malformed.to_string());
        let index = peer.and_then(|peer| self.peers[port].get(&peer).copied());
        match (parsed, index) {
            (Ok(header), _) if is_greeting(header.kind) => {
                let payload = Message::new(buf);
                self.greet(ports, port, (peer, sender), header, &payload);
            }
            (Ok(header), Some(index)) => {
                let message = self.message_in(port, buf);
                let Some(link) = self.links.get_mut(index) else {
                    return;
                };
                let taken = link.machine.receive_frame(header, message.into());
                let taken = taken.map_err(|violation| violation.to_string());
                self.continue_or_end(ports, index, taken);
            }
            (Err(malformed), Some(index)) => self.continue_or_end(ports, index, Err(malformed)),
            // A frame that was on its route when the connection ended, or one of a program that is
            // no client.
            (_, None) => {}
        }
    }

    /// The message of a frame. A short one is copied, and its buffer is posted again.
    fn message_in(&mut self, port: usize, buf: Buf) -> Message {
        let Some(small) = SmallFrame::copied(&buf) else {
            return Message::new(buf);
        };
        self.receives[port].spare.push(buf);
        Message::of(Frame::Small(small))
    }

    fn continue_or_end(&mut self, ports: &[Port], index: usize, taken: Result<(), String>) {
        match taken {
            Ok(()) => self.pump(ports, index),
            Err(violation) => self.end(ports, index, &End::Violation(violation)),
        }
    }
}

const fn is_greeting(kind: Kind) -> bool {
    matches!(kind, Kind::Hello | Kind::Welcome | Kind::Refuse)
}
