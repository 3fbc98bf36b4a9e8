//! Receiving: bytes of a connection, cut into frames, each delivered to where it belongs.
//!
//! Large payloads are read straight into their place. When a frame has no place, or the queue has no
//! room for completions, the connection stalls: what was read already waits in it, and the rest in the
//! kernel.

use std::io;

use selvedge_kit::cq::Sink;

use crate::connection::Connection;
use crate::connection::delivery::Delivery;
use crate::connection::incoming::{DIRECT_MAX, DIRECT_MIN, IncomingPayload};
use crate::socket::is_not_ready;
use crate::socket::vecs::RecvVecs;
use crate::wire::ProtocolError;

/// Bytes that are read ahead in one system call.
pub(crate) const SCRATCH: usize = 64 << 10;
/// The same behind a payload of at least [`SCRATCH`] bytes: the next one is probably as large, and
/// what is read ahead of it is copied once more.
const AHEAD_OF_LARGE: usize = 2 << 10;
/// Bytes that are read of one connection before others have their turn.
const READ_QUOTA: usize = 4 << 20;

/// How a connection ends that is read.
#[derive(Debug)]
pub(crate) enum Disconnect {
    Closed(io::Result<()>),
    /// The peer has sent what no peer sends.
    Protocol(ProtocolError),
}

impl From<ProtocolError> for Disconnect {
    fn from(error: ProtocolError) -> Self {
        Self::Protocol(error)
    }
}

/// What a system call has read.
enum ReadOutcome {
    /// So many bytes in the scratch memory; and whether there may be more.
    Bytes(usize, bool),
    Nothing,
}

impl Connection {
    /// Reads the connection and delivers the frames that have come, about `budget` messages at most.
    /// Adds their number to `done`.
    ///
    /// # Errors
    /// When the connection has ended, or has to.
    pub(crate) fn read(
        &mut self,
        to: &mut Delivery<'_>,
        scratch: &mut [u8],
        budget: usize,
        done: &mut usize,
        sink: &mut Sink<'_>,
    ) -> Result<(), Disconnect> {
        let (mut bytes, mut is_more) = (0, true);
        while self.is_readable(to) && (is_more || self.incoming.has_pending()) {
            if self.incoming.has_pending() {
                let pending = std::mem::take(&mut self.incoming.pending);
                self.take_bytes(&pending, to, done, sink)?;
                continue;
            }
            if *done >= budget || bytes >= READ_QUOTA {
                break;
            }
            match self.fill(scratch, to)? {
                ReadOutcome::Bytes(count, more) => {
                    is_more = more;
                    bytes += count.max(DIRECT_MIN);
                    *done += 1;
                    self.take_bytes(&scratch[..count], to, done, sink)?;
                }
                ReadOutcome::Nothing => is_more = false,
            }
        }
        Ok(())
    }

    /// Whether more can be taken of the connection.
    #[inline]
    fn is_readable(&mut self, to: &Delivery<'_>) -> bool {
        let has_room = to.ep.rx_cq.room() > 0;
        let is_overloaded = self.outgoing.tx.is_overloaded(to.config.tx_size);
        self.incoming.is_backpressured = !has_room || is_overloaded;
        !self.incoming.is_stalled()
    }

    /// Reads what is there: into the place of a large payload, and behind that into `scratch`.
    fn fill(
        &mut self,
        scratch: &mut [u8],
        to: &mut Delivery<'_>,
    ) -> Result<ReadOutcome, Disconnect> {
        let Some(socket) = &mut self.socket else {
            return Ok(ReadOutcome::Nothing);
        };
        let mut direct = 0;
        let (received, room_len) = match &mut self.incoming.payload {
            Some(payload) if payload.is_direct() => {
                let regions = payload.needs_regions().then(|| to.keys.regions());
                let ahead = match payload.len {
                    ..SCRATCH => scratch,
                    _ => &mut scratch[..AHEAD_OF_LARGE],
                };
                let mut vecs = RecvVecs::new();
                payload.push_segments(&mut vecs, regions.as_ref());
                direct = vecs.len();
                if direct < DIRECT_MAX {
                    vecs.push_bytes(ahead);
                }
                (socket.recv(&mut vecs), vecs.len())
            }
            _ => (socket.recv_bytes(scratch), scratch.len()),
        };
        if socket.has_unsent_records() {
            // An answer of TLS to what has come, for which the kernel has no room.
            self.outgoing.tx.is_blocked = true;
        }
        match received {
            Ok(0) => Err(Disconnect::Closed(Ok(()))),
            Ok(count) => {
                let stored = count.min(direct);
                if stored > 0
                    && let Some(payload) = self.incoming.payload.take()
                {
                    self.advance(payload, stored, to)?;
                }
                Ok(ReadOutcome::Bytes(count - stored, count == room_len))
            }
            Err(cause) if is_not_ready(&cause) => Ok(ReadOutcome::Nothing),
            Err(cause) => Err(Disconnect::Closed(Err(cause))),
        }
    }

    /// Takes bytes that were read; keeps those for which there is no place yet.
    fn take_bytes(
        &mut self,
        bytes: &[u8],
        to: &mut Delivery<'_>,
        done: &mut usize,
        sink: &mut Sink<'_>,
    ) -> Result<(), ProtocolError> {
        let mut used = 0;
        while used < bytes.len() && self.is_readable(to) {
            let rest = &bytes[used..];
            used += match self.incoming.payload.take() {
                Some(mut payload) => {
                    let part = rest.len().min(payload.len - payload.at);
                    to.store(&mut payload, &rest[..part]);
                    self.advance(payload, part, to)?;
                    part
                }
                None => self.take_frame(rest, to, sink)?,
            };
            *done += 1;
        }
        self.incoming.pending.extend_from_slice(&bytes[used..]);
        Ok(())
    }

    /// `count` more bytes of a payload are in their place.
    fn advance(
        &mut self,
        mut payload: IncomingPayload,
        count: usize,
        to: &mut Delivery<'_>,
    ) -> Result<(), ProtocolError> {
        payload.at += count;
        if payload.at < payload.len {
            self.incoming.payload = Some(payload);
            return Ok(());
        }
        to.payload_complete(self, payload)
    }

    /// Takes a header, or a part of one; how many bytes, of its payload too if that was there.
    #[inline]
    fn take_frame(
        &mut self,
        bytes: &[u8],
        to: &mut Delivery<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<usize, ProtocolError> {
        let (len, header) = self
            .incoming
            .take_header(bytes, &self.outgoing.negotiated)?;
        let Some(header) = header else {
            return Ok(len);
        };
        if let Some(payload_len) = to.deliver_fast(self.peer, &header, &bytes[len..], sink) {
            return Ok(len + payload_len);
        }
        let number = self.incoming.ack_number(&header);
        if let Some(payload) = to.begin_frame(self, header, number)? {
            self.advance(payload, 0, to)?;
        }
        Ok(len)
    }

    /// There is room by now for the message that had none, or its payload goes elsewhere: the
    /// connection goes on with it.
    pub(crate) fn resume_with(
        &mut self,
        payload: IncomingPayload,
        to: &mut Delivery<'_>,
    ) -> Result<(), ProtocolError> {
        self.incoming.held_message = None;
        self.advance(payload, 0, to)
    }
}
