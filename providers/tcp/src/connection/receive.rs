//! Receiving: reads a connection, splits the bytes into frames, and delivers them.
//!
//! Large payloads are read directly into their destination. The connection stalls when the quota
//! has no room for a message, or the completion queue has no room: bytes that were already read
//! stay in the connection, the rest in the kernel.

use std::io;

use selvedge_kit::cq::Sink;

use crate::connection::Connection;
use crate::connection::delivery::Delivery;
use crate::connection::incoming::{DIRECT_MAX, DIRECT_MIN, IncomingPayload};
use crate::socket::is_not_ready;
use crate::socket::vecs::RecvVecs;
use crate::wire::ProtocolError;

/// Bytes that one system call reads ahead.
pub(crate) const SCRATCH: usize = 64 << 10;
/// The same after a payload of at least [`SCRATCH`] bytes: the next one is probably as large, and
/// bytes of it that are read ahead are copied once more.
const AHEAD_OF_LARGE: usize = 2 << 10;
/// Bytes that are read of one connection before the others are read.
const READ_QUOTA: usize = 4 << 20;

/// Why reading a connection ends it.
#[derive(Debug)]
pub(crate) enum Disconnect {
    Closed(io::Result<()>),
    /// The peer has violated the protocol.
    Protocol(ProtocolError),
}

impl From<ProtocolError> for Disconnect {
    fn from(error: ProtocolError) -> Self {
        Self::Protocol(error)
    }
}

/// The result of a read system call.
enum ReadOutcome {
    /// This many bytes are in the scratch buffer; and whether more may be available.
    Bytes(usize, bool),
    Nothing,
}

impl Connection {
    /// Reads the connection and delivers the received frames, about `budget` messages at most. Adds
    /// their number to `done`.
    ///
    /// # Errors
    /// When the connection has ended, or must end.
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

    /// Whether the connection can be read; updates `is_backpressured`.
    #[inline]
    fn is_readable(&mut self, to: &Delivery<'_>) -> bool {
        let has_room = to.ep.rx_cq.room() > 0;
        let is_overloaded = self.outgoing.tx.is_overloaded(to.config.tx_size);
        self.incoming.is_backpressured = !has_room || is_overloaded;
        !self.incoming.is_stalled()
    }

    /// Reads available bytes, into the destination of a large payload and then into `scratch`.
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
            // TLS has a response to the input, for which the kernel has no room.
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

    /// Processes bytes that were read, and keeps those that must wait.
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

    /// Records that `count` more bytes of a payload are stored, and completes it with the last.
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

    /// Consumes a header, or a part of one. Returns the number of bytes, with the payload if the
    /// fast path took it.
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

    /// Resumes with the payload of the held message, which now has a destination.
    pub(crate) fn resume_with(
        &mut self,
        payload: IncomingPayload,
        to: &mut Delivery<'_>,
    ) -> Result<(), ProtocolError> {
        self.incoming.held_message = None;
        self.advance(payload, 0, to)
    }
}
