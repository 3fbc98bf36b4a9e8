//! The posts of a connection: outputs of its machine, and those that found a full queue.

use selvedge::owned::{Buf, Handle, SharedBuf};
use selvedge::{Errno, FiAddr};

use super::lending::Lending;
use crate::machine::{Output, message_number};
use crate::message::{Body, Frame};
use crate::port::{Key, Port, PostError};
use crate::{End, Error};

/// An output with its buffer.
#[derive(Debug)]
pub(super) enum Post {
    /// A frame, and the number of the message that it sends; 0 for none.
    Frame { message: u64, frame: Frame },
    /// Another operation that owns its buffer.
    Owned {
        purpose: Purpose,
        /// The number of the message that is sent by this post; 0 for none.
        message: u64,
        buf: Buf,
    },
    /// The payload of the announcement with this number, in memory that is lent to several peers.
    Lend { number: u64, payload: SharedBuf },
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// The payload of the announcement with this number.
    Bulk(u64),
    /// The receive of the payload of the announcement with this number.
    Receive(u64),
    /// As `Receive`, for a payload that the peer may lend.
    ReceiveLent(u64),
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
    Lent {
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
    pub(super) fn new(output: Output<Body>, port: &Port, lending: &Lending) -> Result<Self, End> {
        let no_memory = |error: Error| End::Lost(error.to_string());
        let owned = |purpose, message, buf| {
            Ok(Self::Owned {
                purpose,
                message,
                buf,
            })
        };
        match output {
            Output::Frame(header, Some(payload)) => {
                let payload = payload.into_message(port).map_err(no_memory)?;
                let message = message_number(&header);
                let frame = port
                    .sendable(payload.into_frame(&header))
                    .map_err(no_memory)?;
                Ok(Self::Frame { message, frame })
            }
            Output::Frame(header, None) => {
                let empty = port.message(0).map_err(no_memory)?;
                let frame = empty.into_frame(&header);
                // The payload of an announced message is still to be sent.
                let message = 0;
                Ok(Self::Frame { message, frame })
            }
            Output::Bulk {
                number,
                payload: Body::Shared(payload),
                ..
            } if lending.has_room() => Ok(Self::Lend { number, payload }),
            Output::Bulk {
                number,
                message,
                payload,
            } => {
                let payload = payload.into_message(port).map_err(no_memory)?;
                let buf = port.pooled(payload.into_bulk()).map_err(no_memory)?;
                owned(Purpose::Bulk(number), message, buf)
            }
            Output::Receive { number, len } => {
                let buf = port.take(len).map_err(no_memory)?;
                let purpose = if lending.is_accepted {
                    Purpose::ReceiveLent(number)
                } else {
                    Purpose::Receive(number)
                };
                owned(purpose, 0, buf)
            }
        }
    }

    /// Posts; a send has this slot.
    pub(super) fn post(
        self,
        port: &Port,
        (peer, key): (FiAddr, Key),
        slot: u32,
    ) -> Result<Posted, End> {
        let posted = match self {
            Self::Frame { message, frame } => {
                let posted = port.send_frame(frame, peer, key, slot);
                let posted = posted.map(|has_completion| Posted::Frame {
                    message,
                    has_completion,
                });
                posted.map_err(|(errno, frame)| (errno, Self::Frame { message, frame }))
            }
            Self::Owned {
                purpose,
                message,
                buf,
            } => post_owned(port, (peer, key, slot), (purpose, message), buf),
            Self::Lend { number, payload } => {
                let posted = port.lend_bulk(&payload, peer, key, number);
                let posted = posted.map(|()| Posted::Lent { number });
                posted.map_err(|errno| (errno, Self::Lend { number, payload }))
            }
        };
        posted.or_else(|(errno, post)| match errno {
            Errno::Again => Ok(Posted::Full(post)),
            _ => Err(End::Lost(errno.to_string())),
        })
    }
}

/// Posts an operation that owns its buffer. An error returns the post.
fn post_owned(
    port: &Port,
    (peer, key, slot): (FiAddr, Key, u32),
    (purpose, message): (Purpose, u64),
    buf: Buf,
) -> Result<Posted, (Errno, Post)> {
    let posted = match purpose {
        Purpose::Bulk(number) => {
            let posted = port.send_bulk(buf, peer, key, number, slot);
            posted.map(|()| Posted::Bulk { message, number })
        }
        Purpose::Receive(number) => {
            let posted = port.receive_bulk(buf, peer, key, number);
            posted.map(|handle| Posted::Receive { number, handle })
        }
        Purpose::ReceiveLent(number) => {
            let posted = port.receive_lent(buf, peer, key, number);
            posted.map(|handle| Posted::Receive { number, handle })
        }
    };
    posted.map_err(|PostError { errno, buf }| {
        let post = Post::Owned {
            purpose,
            message,
            buf,
        };
        (errno, post)
    })
}
