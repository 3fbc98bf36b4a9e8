//! The end of a connection that one side closes: everything that was sent before arrives.

use std::time::{Duration, Instant};

use selvedge::FiAddr;

use crate::End;
use crate::port::{Key, Port};
use crate::wire::{Header, Kind};

/// How long the address of an ended connection stays, so that everything is sent, and how long
/// the peer waits for that.
pub(in crate::hub) const LINGER: Duration = Duration::from_secs(1);

/// The closing of one connection.
#[derive(Debug, Default)]
pub(super) struct Closing {
    /// The number of announced payloads that were posted.
    pub(super) payloads: u64,
    /// When a connection that the peer has closed ends, although payloads are still to come.
    pub(super) until: Option<Instant>,
}

impl Closing {
    /// Ends a connection whose peer has closed it and does not send what it sent before.
    pub(super) fn check(&mut self) -> Result<(), End> {
        let now = Instant::now();
        if now < *self.until.get_or_insert(now + LINGER) {
            Ok(())
        } else {
            Err(End::Remote)
        }
    }
}

/// Sends the last frame of a connection. A peer that does not receive it learns of the end when
/// this endpoint closes.
///
/// `payloads` is the number of announced payloads that were posted.
pub(in crate::hub) fn send_close(port: &Port, peer: FiAddr, key: Key, payloads: u64, text: &str) {
    let mut header = Header::new(Kind::Close);
    header.id = payloads;
    header.len = text.len() as u64;
    let sent = port.message(text.len()).map(|mut message| {
        message.copy_from_slice(text.as_bytes());
        port.send_frame(message.into_frame(&header), peer, key, 0)
    });
    if let Ok(Err((errno, _))) = sent {
        log::debug!("the last frame to {peer:?} cannot be sent: {errno}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::{ServiceAddress, Token};
    use crate::wire::Greeting;
    use crate::{Event, Listener, Options};

    /// A peer that closes without the payload that it has announced and counts as sent.
    #[test]
    fn a_peer_that_closes_and_does_not_send_is_lost_after_a_time() {
        let address = format!("shm://closing-{}", std::process::id());
        let listener = Listener::bind(&address).unwrap();
        let options = Options::new();
        let server = ServiceAddress::parse_list(&address).unwrap();
        let port = Port::connect(&server[0], &options).unwrap();
        let server = port.insert(&server[0].address).unwrap();
        let greeting = Greeting::encode(options.limits, options.version, &[]);
        let mut message = Header::new(Kind::Message);
        (message.is_announced, message.len) = (true, 9000);
        let mut close = Header::new(Kind::Close);
        close.id = 1;
        let send = |header: Header, payload: &[u8]| {
            let frame = port.message_from(payload).unwrap();
            let frame = port.pooled(frame.into_frame(&header)).unwrap();
            port.send(frame, server, Token::Hello).unwrap();
        };
        let mut hello = Header::new(Kind::Hello);
        hello.len = greeting.len() as u64;
        send(hello, &greeting);
        let event = listener.event().wait().unwrap();
        assert!(matches!(event, Event::Connected(_)), "{event:?}");
        send(message, &[]);
        send(close, &[]);
        let event = listener.event().wait_timeout(20 * LINGER).unwrap();
        assert!(matches!(event, Event::Lost(_, End::Remote)), "{event:?}");
    }
}
