//! The posts of a connection: outputs of its machine, and those that found a full queue.

use selvedge::owned::{Buf, Handle};
use selvedge::{Errno, FiAddr};

use crate::machine::{Output, message_number};
use crate::port::{Key, Port, PostError};
use crate::{End, Error, Message};

/// An output with its buffer.
#[derive(Debug)]
pub(super) struct Post {
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

/// The result of a post.
#[derive(Debug)]
pub(super) enum Posted {
    Frame {
        message: u64,
        has_completion: bool,
    },
    Bulk {
        message: u64,
        number: u64,
    },
    Receive {
        number: u64,
        handle: Handle,
    },
    /// The queue of the endpoint is full.
    Full(Post),
}

impl Post {
    /// The buffers of an output.
    pub(super) fn new(output: Output<Message>, port: &Port) -> Result<Self, End> {
        let no_memory = |error: Error| End::Lost(error.to_string());
        Ok(match output {
            Output::Frame(header, Some(payload)) => Self {
                purpose: Purpose::Frame,
                message: message_number(&header),
                buf: payload.into_frame(&header),
            },
            Output::Frame(header, None) => {
                let empty = port.message(0).map_err(no_memory)?;
                Self {
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
            } => Self {
                purpose: Purpose::Bulk(number),
                message,
                buf: payload.into_bulk(),
            },
            Output::Receive { number, len } => Self {
                purpose: Purpose::Receive(number),
                message: 0,
                buf: port.message(len).map_err(no_memory)?.into_bulk(),
            },
        })
    }

    /// Posts; a send has this slot.
    pub(super) fn post(
        self,
        port: &Port,
        (peer, key): (FiAddr, Key),
        slot: u32,
    ) -> Result<Posted, End> {
        let Self {
            purpose,
            message,
            buf,
        } = self;
        let posted = match purpose {
            Purpose::Frame => {
                let posted = port.send_frame(buf, peer, key, slot);
                posted.map(|has_completion| Posted::Frame {
                    message,
                    has_completion,
                })
            }
            Purpose::Bulk(number) => {
                let posted = port.send_bulk(buf, peer, key, number, slot);
                posted.map(|()| Posted::Bulk { message, number })
            }
            Purpose::Receive(number) => {
                let posted = port.receive_bulk(buf, peer, key, number);
                posted.map(|handle| Posted::Receive { number, handle })
            }
        };
        posted.or_else(|PostError { errno, buf }| match errno {
            Errno::Again => Ok(Posted::Full(Self {
                purpose,
                message,
                buf,
            })),
            _ => Err(End::Lost(errno.to_string())),
        })
    }
}
