//! The posts of a connection: outputs of its machine, and those that found a full queue.

use selvedge::Errno;
use selvedge::owned::Buf;

use super::Link;
use crate::machine::{Output, message_number};
use crate::port::{Port, PostError};
use crate::{End, Error, Message};

/// A post that found a full queue.
#[derive(Debug)]
pub(super) struct Held {
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

impl Link {
    /// The buffers of an output.
    pub(super) fn prepare(&self, output: Output<Message>, port: &Port) -> Result<Held, End> {
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
    pub(super) fn post(&mut self, held: Held, port: &Port) -> Result<bool, End> {
        let (peer, key, slot) = (self.peer, self.shared.key, self.sends.next_slot());
        let Held {
            purpose,
            message,
            buf,
        } = held;
        let posted = match purpose {
            Purpose::Frame => port.send_frame(buf, peer, key, slot),
            Purpose::Bulk(number) => {
                let posted = port.send_bulk(buf, peer, key, number, slot);
                posted.map(|()| true)
            }
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
                if let Purpose::Bulk(number) = purpose {
                    self.payloads = number + 1;
                }
                let sends = self.sends.post(has_completion);
                if message > 0 {
                    self.unsent.push_back((message, sends));
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
}
