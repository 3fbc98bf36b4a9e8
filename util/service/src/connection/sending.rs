//! `Sending`: the future of a message that is sent.

use std::sync::Arc;
use std::task::Waker;

use crate::executor::{Step, operation};
use crate::hub::{Access, Hub, Shared};
use crate::{Error, Message};

/// The future of [`crate::Peer::send`]. A future that is dropped takes its message back if the
/// message still waits for the peer's window; otherwise the message is sent.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited or waited for"]
pub struct Sending<'a> {
    hub: &'a Arc<Hub>,
    shared: &'a Shared,
    message: Result<Option<Message>, Error>,
    /// The number of the message while it is queued.
    queued: Option<u64>,
}

impl<'a> Sending<'a> {
    pub(super) fn new(
        hub: &'a Arc<Hub>,
        shared: &'a Shared,
        message: Result<Message, Error>,
    ) -> Self {
        Self {
            hub,
            shared,
            message: message.map(Some),
            queued: None,
        }
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.queued {
            self.hub.take_back(self.shared, number);
        }
    }
}

impl<'a> Step<'a> for Sending<'a> {
    type Output = ();

    fn hub(&self) -> &'a Arc<Hub> {
        self.hub
    }

    fn step(
        &mut self,
        access: &mut Access<'_>,
        waker: Option<&Waker>,
    ) -> Option<Result<(), Error>> {
        let number = match (self.queued, &mut self.message) {
            (Some(number), _) => number,
            (None, Ok(message)) => match access.send(self.shared, message, waker)? {
                Ok(number) => *self.queued.insert(number),
                Err(error) => return Some(Err(error)),
            },
            (None, Err(error)) => return Some(Err(error.clone())),
        };
        let sent = access.sent(self.shared, number, waker)?;
        self.queued = None;
        Some(sent)
    }
}

operation!(Sending<'a>, ());
