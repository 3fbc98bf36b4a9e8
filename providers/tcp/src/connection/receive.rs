//! Receiving: bytes of a connection, cut into frames, each delivered to where it belongs.
//!
//! Large payloads are read straight into their place. When a frame has no place, or the queue has no
//! room for completions, the connection stalls: what was read already waits in it, and the rest in the
//! kernel.

use std::io;

use selvedge_kit::cq::Sink;

use crate::connection::Connection;
use crate::connection::delivery::Delivery;
use crate::connection::incoming::{Arrival, DIRECT_MAX, DIRECT_MIN};
use crate::socket::is_not_ready;
use crate::socket::vecs::Room;
use crate::wire::Nonsense;

/// Bytes that are read ahead in one system call.
pub(crate) const SCRATCH: usize = 64 << 10;
/// The same behind a payload of at least [`SCRATCH`] bytes: the next one is probably as large, and
/// what is read ahead of it is copied once more.
const AHEAD_OF_LARGE: usize = 2 << 10;
/// Bytes that are read of one connection before others have their turn.
const SHARE: usize = 4 << 20;

/// How a connection ends that is read.
#[derive(Debug)]
pub(crate) enum End {
    Closed(io::Result<()>),
    /// The peer has sent what no peer sends.
    Nonsense(Nonsense),
}

impl From<Nonsense> for End {
    fn from(what: Nonsense) -> Self {
        Self::Nonsense(what)
    }
}

/// What a system call has read.
enum Filled {
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
    ) -> Result<(), End> {
        let (mut bytes, mut is_more) = (0, true);
        while self.is_readable(to) && (is_more || self.incoming.has_pending()) {
            if self.incoming.has_pending() {
                let pending = std::mem::take(&mut self.incoming.pending);
                self.take_bytes(&pending, to, done, sink)?;
                continue;
            }
            if *done >= budget || bytes >= SHARE {
                break;
            }
            match self.fill(scratch, to)? {
                Filled::Bytes(count, more) => {
                    is_more = more;
                    bytes += count.max(DIRECT_MIN);
                    *done += 1;
                    self.take_bytes(&scratch[..count], to, done, sink)?;
                }
                Filled::Nothing => is_more = false,
            }
        }
        Ok(())
    }

    /// Whether more can be taken of the connection.
    #[inline]
    fn is_readable(&mut self, to: &Delivery<'_>) -> bool {
        let has_room = to.ep.rx_cq.room() > 0;
        let is_overloaded = self.outgoing.tx.is_overloaded(to.config.tx_size);
        self.incoming.is_choked = !has_room || is_overloaded;
        !self.incoming.is_stalled()
    }

    /// Reads what is there: into the place of a large payload, and behind that into `scratch`.
    fn fill(&mut self, scratch: &mut [u8], to: &mut Delivery<'_>) -> Result<Filled, End> {
        let Some(socket) = &mut self.socket else {
            return Ok(Filled::Nothing);
        };
        let mut direct = 0;
        let (came, room_len) = match &mut self.incoming.body {
            Some(arrival) if arrival.is_direct() => {
                let regions = arrival.needs_regions().then(|| to.keys.regions());
                let ahead = match arrival.len {
                    ..SCRATCH => scratch,
                    _ => &mut scratch[..AHEAD_OF_LARGE],
                };
                let mut room = Room::new();
                arrival.offer(&mut room, regions.as_ref());
                direct = room.len();
                if direct < DIRECT_MAX {
                    room.push_bytes(ahead);
                }
                (socket.recv(&mut room), room.len())
            }
            _ => (socket.recv_bytes(scratch), scratch.len()),
        };
        if socket.is_behind() {
            // An answer of TLS to what has come, for which the kernel has no room.
            self.outgoing.tx.is_blocked = true;
        }
        match came {
            Ok(0) => Err(End::Closed(Ok(()))),
            Ok(count) => {
                let placed = count.min(direct);
                if placed > 0
                    && let Some(arrival) = self.incoming.body.take()
                {
                    self.advance(arrival, placed, to)?;
                }
                Ok(Filled::Bytes(count - placed, count == room_len))
            }
            Err(cause) if is_not_ready(&cause) => Ok(Filled::Nothing),
            Err(cause) => Err(End::Closed(Err(cause))),
        }
    }

    /// Takes bytes that were read; keeps those for which there is no place yet.
    fn take_bytes(
        &mut self,
        bytes: &[u8],
        to: &mut Delivery<'_>,
        done: &mut usize,
        sink: &mut Sink<'_>,
    ) -> Result<(), Nonsense> {
        let mut used = 0;
        while used < bytes.len() && self.is_readable(to) {
            let rest = &bytes[used..];
            used += match self.incoming.body.take() {
                Some(mut arrival) => {
                    let part = rest.len().min(arrival.len - arrival.at);
                    to.place(&mut arrival, &rest[..part]);
                    self.advance(arrival, part, to)?;
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
        mut arrival: Arrival,
        count: usize,
        to: &mut Delivery<'_>,
    ) -> Result<(), Nonsense> {
        arrival.at += count;
        if arrival.at < arrival.len {
            self.incoming.body = Some(arrival);
            return Ok(());
        }
        to.arrived(self, arrival)
    }

    /// Takes a header, or a part of one; how many bytes, of its payload too if that was there.
    #[inline]
    fn take_frame(
        &mut self,
        bytes: &[u8],
        to: &mut Delivery<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<usize, Nonsense> {
        let (len, head) = self.incoming.take_header(bytes, &self.outgoing.terms)?;
        let Some(head) = head else {
            return Ok(len);
        };
        if let Some(payload) = to.deliver_whole(self.peer, &head, &bytes[len..], sink) {
            return Ok(len + payload);
        }
        let number = self.incoming.number(&head);
        if let Some(arrival) = to.open(self, head, number)? {
            self.advance(arrival, 0, to)?;
        }
        Ok(len)
    }

    /// There is room by now for the message that had none, or its payload goes elsewhere: the
    /// connection goes on with it.
    pub(crate) fn release(
        &mut self,
        arrival: Arrival,
        to: &mut Delivery<'_>,
    ) -> Result<(), Nonsense> {
        self.incoming.held = None;
        self.advance(arrival, 0, to)
    }
}
