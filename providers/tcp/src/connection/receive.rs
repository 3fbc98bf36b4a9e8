//! Receiving: reads a connection, splits the bytes into frames, and delivers them.
//!
//! Large payloads are read directly into their destination. The connection stalls when the quota of
//! unexpected messages, the completion queue or the queue of responses has no room: bytes that were
//! already read stay in the connection, and the other bytes stay in the kernel.

use std::io;

use selvedge_kit::cq::Sink;

use crate::connection::Connection;
use crate::connection::delivery::Delivery;
use crate::connection::incoming::{DIRECT_MAX, DIRECT_MIN, IncomingPayload};
use crate::socket::is_not_ready;
use crate::socket::vecs::RecvVecs;
use crate::wire::ProtocolError;

/// The length of the scratch buffer: the maximum number of bytes that one system call reads before
/// it is known where they belong.
pub(crate) const SCRATCH: usize = 64 << 10;
/// This maximum for a system call that also reads a payload of at least [`SCRATCH`] bytes. The next
/// payload is probably as large, and those of its bytes that are read into the scratch buffer are
/// copied once more.
const AHEAD_OF_LARGE: usize = 2 << 10;
/// The number of bytes that are read from one connection before other connections are read.
const READ_QUOTA: usize = 4 << 20;

/// The reason why a connection ends while it is read.
#[derive(Debug)]
pub(crate) enum Disconnect {
    /// The peer has closed the connection, or reading has failed.
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
    /// The number of bytes in the scratch buffer, and whether the kernel may have more.
    Bytes(usize, bool),
    /// The kernel has no bytes.
    Nothing,
}

impl Connection {
    /// Reads the connection and delivers the received frames. Adds the number of system calls, of
    /// headers and of parts of payloads to `done`, and stops soon after it has reached `budget`.
    ///
    /// # Errors
    /// When the connection has ended, or must be ended.
    pub(crate) fn read(
        &mut self,
        delivery: &mut Delivery<'_>,
        scratch: &mut [u8],
        budget: usize,
        done: &mut usize,
        sink: &mut Sink<'_>,
    ) -> Result<(), Disconnect> {
        let (mut bytes, mut may_have_more) = (0, true);
        while self.is_readable(delivery) && (may_have_more || self.incoming.has_pending()) {
            if self.incoming.has_pending() {
                let pending = std::mem::take(&mut self.incoming.pending);
                self.take_bytes(&pending, delivery, done, sink)?;
                continue;
            }
            if *done >= budget || bytes >= READ_QUOTA {
                break;
            }
            match self.fill(scratch, delivery)? {
                ReadOutcome::Bytes(count, more) => {
                    may_have_more = more;
                    bytes += count.max(DIRECT_MIN);
                    *done += 1;
                    self.take_bytes(&scratch[..count], delivery, done, sink)?;
                }
                ReadOutcome::Nothing => may_have_more = false,
            }
        }
        Ok(())
    }

    /// Updates `is_backpressured`, and returns whether received bytes can be processed.
    #[inline]
    fn is_readable(&mut self, delivery: &Delivery<'_>) -> bool {
        let has_room = delivery.ep.rx_cq.room() > 0;
        let is_overloaded = self.outgoing.tx.is_overloaded(delivery.config.tx_size);
        self.incoming.is_backpressured = !has_room || is_overloaded;
        !self.incoming.is_stalled()
    }

    /// Reads the socket once: into the destination of a large payload first, and then into
    /// `scratch`.
    fn fill(
        &mut self,
        scratch: &mut [u8],
        delivery: &mut Delivery<'_>,
    ) -> Result<ReadOutcome, Disconnect> {
        let Some(socket) = &mut self.socket else {
            return Ok(ReadOutcome::Nothing);
        };
        let mut direct_len = 0;
        let (received, room_len) = match &mut self.incoming.payload {
            Some(payload) if payload.is_direct() => {
                let regions = payload.needs_regions().then(|| delivery.keys.regions());
                let ahead = match payload.len {
                    ..SCRATCH => scratch,
                    _ => &mut scratch[..AHEAD_OF_LARGE],
                };
                let mut vecs = RecvVecs::new();
                payload.push_segments(&mut vecs, regions.as_ref());
                direct_len = vecs.len();
                if direct_len < DIRECT_MAX {
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
                let stored = count.min(direct_len);
                if stored > 0
                    && let Some(payload) = self.incoming.payload.take()
                {
                    self.advance(payload, stored, delivery)?;
                }
                Ok(ReadOutcome::Bytes(count - stored, count == room_len))
            }
            Err(cause) if is_not_ready(&cause) => Ok(ReadOutcome::Nothing),
            Err(cause) => Err(Disconnect::Closed(Err(cause))),
        }
    }

    /// Processes bytes that were read. When the connection stalls, keeps the rest as pending.
    fn take_bytes(
        &mut self,
        bytes: &[u8],
        delivery: &mut Delivery<'_>,
        done: &mut usize,
        sink: &mut Sink<'_>,
    ) -> Result<(), ProtocolError> {
        let mut used = 0;
        while used < bytes.len() && self.is_readable(delivery) {
            let rest = &bytes[used..];
            used += match self.incoming.payload.take() {
                Some(mut payload) => {
                    let part = rest.len().min(payload.len - payload.stored);
                    delivery.store(&mut payload, &rest[..part]);
                    self.advance(payload, part, delivery)?;
                    part
                }
                None => self.take_frame(rest, delivery, sink)?,
            };
            *done += 1;
        }
        self.incoming.pending.extend_from_slice(&bytes[used..]);
        Ok(())
    }

    /// Records that `count` more bytes of a payload are stored. Completes the payload when it has
    /// all.
    fn advance(
        &mut self,
        mut payload: IncomingPayload,
        count: usize,
        delivery: &mut Delivery<'_>,
    ) -> Result<(), ProtocolError> {
        payload.stored += count;
        if payload.stored < payload.len {
            self.incoming.payload = Some(payload);
            return Ok(());
        }
        delivery.payload_complete(self, payload)
    }

    /// Consumes a header, or a part of one. Returns the number of consumed bytes, which includes
    /// the payload if the fast path has delivered it.
    #[inline]
    fn take_frame(
        &mut self,
        bytes: &[u8],
        delivery: &mut Delivery<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<usize, ProtocolError> {
        let (len, header) = self
            .incoming
            .take_header(bytes, &self.outgoing.negotiated)?;
        let Some(header) = header else {
            return Ok(len);
        };
        if let Some(payload_len) = delivery.deliver_fast(self.peer, &header, &bytes[len..], sink) {
            return Ok(len + payload_len);
        }
        let number = self.incoming.ack_number(&header);
        if let Some(payload) = delivery.begin_frame(self, header, number)? {
            self.advance(payload, 0, delivery)?;
        }
        Ok(len)
    }

    /// Resumes a stalled connection: the payload of its held message now has a destination.
    pub(crate) fn resume_with(
        &mut self,
        payload: IncomingPayload,
        delivery: &mut Delivery<'_>,
    ) -> Result<(), ProtocolError> {
        self.incoming.held_message = None;
        self.advance(payload, 0, delivery)
    }
}
