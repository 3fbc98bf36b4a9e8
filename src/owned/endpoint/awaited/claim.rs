//! Claimed messages of [`crate::owned::AsyncEndpoint`].

use std::pin::Pin;
use std::task::{self, Poll};

use super::operation::{Operation, Receiving};
use crate::owned::{Buf, OpError, Received};

/// Future of [`crate::owned::AsyncEndpoint::tclaim`]. Resolves to the claimed message.
#[derive(Debug)]
#[must_use = "nothing is claimed before the future is polled"]
pub struct Claiming<'a>(pub(super) Operation<'a>);

/// A claimed message (fi_trecvmsg(3) with `FI_CLAIM`): no other receive takes it. Dropping the
/// claim discards the message.
#[derive(Debug)]
#[must_use = "dropping the claim discards the message"]
pub struct Claim<'a> {
    found: Received,
    receive: Operation<'a>,
}

impl<'a> Future for Claiming<'a> {
    type Output = Result<Claim<'a>, OpError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        let operation = &mut self.0;
        operation.poll(cx).map_ok(|(key, buf, found)| Claim {
            found,
            receive: operation.receive_claimed(key, buf),
        })
    }
}

impl<'a> Claim<'a> {
    /// The tag, data, source and length of the message.
    pub fn found(&self) -> &Received {
        &self.found
    }

    /// Receives the message into the buffer that it was claimed with.
    pub fn recv(self) -> Receiving<'a> {
        Receiving(self.receive)
    }

    /// Receives the message into another buffer, such as one with enough capacity.
    pub fn recv_into(mut self, buf: Buf) -> Receiving<'a> {
        self.receive.replace_buf(buf);
        Receiving(self.receive)
    }
}
