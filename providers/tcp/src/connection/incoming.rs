//! `Incoming`: the parser state of the received bytes of a connection, and the destination of the
//! payload in progress.
//!
//! It buffers at most a part of a header; payload bytes go to their destination as they arrive.

use rustc_hash::FxHashMap;
use selvedge_kit::mr::Regions;
use selvedge_kit::srx::{Envelope, Posted};

use crate::connection::one_sided::{IncomingAtomic, IncomingWrite};
use crate::connection::operation::PendingFetch;
use crate::socket::vecs::RecvVecs;
use crate::wire::ProtocolError;
use crate::wire::frame::{self, BASE_LEN, HEADER_MAX, Header};
use crate::wire::hello::Negotiated;

/// A payload with at least this many missing bytes is read directly into its destination.
pub(crate) const DIRECT_MIN: usize = 4 << 10;
/// The maximum number of bytes that one system call reads directly into a destination.
pub(crate) const DIRECT_MAX: usize = 1 << 20;

/// The receive state of a connection.
#[derive(Debug)]
pub(crate) struct Incoming {
    header: [u8; HEADER_MAX],
    header_filled: usize,
    pub(crate) payload: Option<IncomingPayload>,
    /// Bytes that were read and not processed yet.
    pub(crate) pending: Vec<u8>,
    /// The number of frames so far that request an acknowledgement.
    ack_requests: u64,
    /// The message for which the quota has no room; nothing after it is read.
    pub(crate) held_message: Option<usize>,
    /// Whether there was no room for completions or responses.
    pub(crate) is_backpressured: bool,
    /// Messages that were requested with a CTS, with their receives; `None` for a discarded
    /// message.
    pub(crate) requested: FxHashMap<u8, (Option<Posted>, Envelope)>,
}

/// The payload of a frame in progress.
#[derive(Debug)]
pub(crate) struct IncomingPayload {
    pub(crate) destination: Destination,
    pub(crate) at: usize,
    pub(crate) len: usize,
}

/// The destination of a payload.
#[derive(Debug)]
pub(crate) enum Destination {
    /// A receive, and the acknowledgement number of the frame, if any.
    Receive(Posted, Envelope, Option<u64>),
    /// An unexpected message, by its key.
    Unexpected(usize),
    /// Local registered memory.
    Write(IncomingWrite),
    /// The buffer of a local read, and whether a `ReadEnd` follows.
    Read(PendingFetch, bool),
    /// The operands of a peer's atomic.
    Atomic(Box<IncomingAtomic>),
    /// The fetched values of a local atomic.
    AtomicResult(PendingFetch, u32),
    /// Discarded.
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
    /// Whether the socket must not be read.
    pub(crate) fn is_stalled(&self) -> bool {
        self.held_message.is_some() || self.is_backpressured
    }

    /// Adds bytes that arrived after the hello message.
    pub(crate) fn prepend(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// Whether bytes are buffered for which epoll(7) reports no event.
    #[inline]
    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Consumes a header, or a part of one, from the front of `bytes`. Returns the number of bytes,
    /// and the header if it is complete.
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

    /// Returns the acknowledgement number of a frame, if it requests an acknowledgement.
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
            at: 0,
            len,
        }
    }

    /// Whether the rest is large enough to be read directly into its destination.
    pub(crate) fn is_direct(&self) -> bool {
        let remaining = self.len - self.at;
        remaining >= DIRECT_MIN
            && match &self.destination {
                Destination::Receive(posted, ..) => posted.buf.len() >= self.len,
                Destination::Write(write) => write.denied.is_none(),
                Destination::Read(..) => true,
                _ => false,
            }
    }

    pub(crate) fn needs_regions(&self) -> bool {
        matches!(self.destination, Destination::Write(_))
    }

    /// Appends the destination segments of the next bytes.
    pub(crate) fn push_segments<'a>(
        &'a mut self,
        vecs: &mut RecvVecs<'a>,
        regions: Option<&'a Regions<'_>>,
    ) {
        let (at, remaining) = (self.at, (self.len - self.at).min(DIRECT_MAX));
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
