//! `Incoming`: the state of the parser of a connection's received bytes, and the destination of the
//! payload in progress.
//!
//! The parser buffers at most a part of a header; payload bytes go to their destination as they
//! arrive. Only a stalled connection keeps other bytes.

use rustc_hash::FxHashMap;
use selvedge_kit::mr::Regions;
use selvedge_kit::srx::{Envelope, Posted};

use crate::connection::one_sided::{IncomingAtomic, IncomingWrite};
use crate::connection::operation::PendingFetch;
use crate::socket::vecs::RecvVecs;
use crate::wire::ProtocolError;
use crate::wire::frame::{self, BASE_LEN, HEADER_MAX, Header};
use crate::wire::hello::Negotiated;

/// A payload of which at least this many bytes are missing is read directly into its destination.
pub(crate) const DIRECT_MIN: usize = 4 << 10;
/// The maximum number of bytes that one system call reads directly into a destination.
pub(crate) const DIRECT_MAX: usize = 1 << 20;

/// The receive state of a connection.
#[derive(Debug)]
pub(crate) struct Incoming {
    header: [u8; HEADER_MAX],
    header_filled: usize,
    pub(crate) payload: Option<IncomingPayload>,
    /// Bytes that were read but not processed yet.
    pub(crate) pending: Vec<u8>,
    /// The number of frames so far that request an acknowledgement.
    ack_requests: u64,
    /// The key of the unexpected message for which the quota has no room. Nothing after this
    /// message is read.
    pub(crate) held_message: Option<usize>,
    /// Whether the last attempt to read found no room for completions or responses.
    pub(crate) is_backpressured: bool,
    /// The messages that were requested with a CTS, by the id of their RTS, with the receive of
    /// each; `None` for a message that is discarded.
    pub(crate) requested: FxHashMap<u8, (Option<Posted>, Envelope)>,
}

/// The payload of a frame in progress.
#[derive(Debug)]
pub(crate) struct IncomingPayload {
    pub(crate) destination: Destination,
    /// The number of bytes that have been stored at the destination.
    pub(crate) stored: usize,
    pub(crate) len: usize,
}

/// The destination of a payload.
#[derive(Debug)]
pub(crate) enum Destination {
    /// A receive, and the frame's acknowledgement number, if it requests an acknowledgement.
    Receive(Posted, Envelope, Option<u64>),
    /// An unexpected message, by its key.
    Unexpected(usize),
    /// The local registered memory that a peer writes to.
    Write(IncomingWrite),
    /// The buffer of a local read, and whether a `ReadEnd` follows.
    Read(PendingFetch, bool),
    /// The operands of an atomic of the peer.
    Atomic(Box<IncomingAtomic>),
    /// The buffer for the fetched values of a local atomic, and the atomic's status.
    AtomicResult(PendingFetch, u32),
    /// Nowhere: the payload is discarded. With the frame's acknowledgement number, if any.
    Discard(Option<u64>),
}

impl Default for Incoming {
    fn default() -> Self {
        Self {
            header: [0; HEADER_MAX],
            header_filled: 0,
            payload: None,
            pending: Vec::new(),
            ack_requests: 0,
            held_message: None,
            is_backpressured: false,
            requested: FxHashMap::default(),
        }
    }
}

impl Incoming {
    /// Whether the socket must not be read, for lack of room.
    pub(crate) fn is_stalled(&self) -> bool {
        self.held_message.is_some() || self.is_backpressured
    }

    /// Keeps bytes that were read together with the hello message and follow it.
    pub(crate) fn keep_trailing(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// Whether unprocessed bytes are kept here, for which epoll(7) reports no event.
    #[inline]
    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Consumes a header, or a part of one, from the front of `bytes`. Returns the number of
    /// consumed bytes, and the header if it is complete.
    ///
    /// # Errors
    /// When the header violates the protocol.
    #[inline]
    pub(crate) fn take_header(
        &mut self,
        bytes: &[u8],
        negotiated: &Negotiated,
    ) -> Result<(usize, Option<Header>), ProtocolError> {
        let (order, has_extensions) = (negotiated.order, negotiated.has_extensions());
        if self.header_filled == 0 && bytes.len() >= BASE_LEN {
            let len = frame::header_len(bytes, order)?;
            if let Some(header) = bytes.get(..len) {
                return Ok((len, Some(Header::parse(header, order, has_extensions)?)));
            }
        }
        let needed = match self.header_filled {
            0..BASE_LEN => BASE_LEN,
            _ => frame::header_len(&self.header, order)?,
        };
        let part = bytes.len().min(needed - self.header_filled);
        self.header[self.header_filled..self.header_filled + part].copy_from_slice(&bytes[..part]);
        self.header_filled += part;
        if self.header_filled < BASE_LEN
            || self.header_filled < frame::header_len(&self.header, order)?
        {
            return Ok((part, None));
        }
        let header = Header::parse(&self.header[..self.header_filled], order, has_extensions)?;
        self.header_filled = 0;
        Ok((part, Some(header)))
    }

    /// Returns the next acknowledgement number, if the frame requests an acknowledgement.
    pub(crate) fn ack_number(&mut self, header: &Header) -> Option<u64> {
        header.wants_ack().then(|| {
            self.ack_requests += 1;
            self.ack_requests - 1
        })
    }

    /// Changes the destination of the rest of the payload in progress.
    pub(crate) fn set_destination(&mut self, destination: Destination) {
        if let Some(payload) = &mut self.payload {
            payload.destination = destination;
        }
    }
}

impl IncomingPayload {
    pub(crate) fn new(destination: Destination, len: usize) -> Self {
        Self {
            destination,
            stored: 0,
            len,
        }
    }

    /// Whether the missing bytes are read directly into the destination: there are many of them,
    /// and the destination can take them.
    pub(crate) fn is_direct(&self) -> bool {
        let remaining = self.len - self.stored;
        remaining >= DIRECT_MIN
            && match &self.destination {
                Destination::Receive(posted, ..) => posted.buf.len() >= self.len,
                Destination::Write(write) => write.denied.is_none(),
                Destination::Read(..) => true,
                _ => false,
            }
    }

    /// Whether [`Self::push_segments`] needs the registered regions.
    pub(crate) fn needs_regions(&self) -> bool {
        matches!(self.destination, Destination::Write(_))
    }

    /// Appends the segments of the destination that the next bytes are read into.
    pub(crate) fn push_segments<'a>(
        &'a mut self,
        vecs: &mut RecvVecs<'a>,
        regions: Option<&'a Regions<'_>>,
    ) {
        let (at, remaining) = (self.stored, (self.len - self.stored).min(DIRECT_MAX));
        match &mut self.destination {
            Destination::Receive(Posted { buf, .. }, ..)
            | Destination::Read(PendingFetch { buf, .. }, _) => {
                for segment in buf.segments(at, remaining) {
                    vecs.push(segment);
                }
            }
            Destination::Write(write) => {
                let regions = regions.into_iter();
                regions.for_each(|regions| write.push_segments(vecs, regions, at, remaining));
            }
            _ => {}
        }
    }
}
