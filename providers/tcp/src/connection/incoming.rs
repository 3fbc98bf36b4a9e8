//! `Incoming`: how far the bytes that come over a connection are taken apart into frames, and where
//! the payload that is coming goes.
//!
//! A part of a header at most is kept here: payloads go where they belong as they come.

use rustc_hash::FxHashMap;
use selvedge_kit::mr::Regions;
use selvedge_kit::srx::{Envelope, Posted};

use crate::connection::one_sided::{IncomingAtomic, IncomingWrite};
use crate::connection::operation::PendingFetch;
use crate::socket::vecs::RecvVecs;
use crate::wire::ProtocolError;
use crate::wire::frame::{self, BASE_LEN, HEADER_MAX, Header};
use crate::wire::hello::Negotiated;

/// The rest of a payload that is read into its place directly.
pub(crate) const DIRECT_MIN: usize = 4 << 10;
/// Bytes that are read into their place in one system call.
pub(crate) const DIRECT_MAX: usize = 1 << 20;

/// What comes in over a connection.
#[derive(Debug)]
pub(crate) struct Incoming {
    header: [u8; HEADER_MAX],
    header_filled: usize,
    pub(crate) payload: Option<IncomingPayload>,
    /// Read, and not used yet.
    pub(crate) pending: Vec<u8>,
    /// Frames so far that want an answer.
    ack_requests: u64,
    /// The message that has no place: nothing behind it is read.
    pub(crate) held_message: Option<usize>,
    /// There was no room for completions, or answers.
    pub(crate) is_backpressured: bool,
    /// Offered messages that we have asked for, and their receives, if they are to be received.
    pub(crate) requested: FxHashMap<u8, (Option<Posted>, Envelope)>,
}

/// A payload that is coming.
#[derive(Debug)]
pub(crate) struct IncomingPayload {
    pub(crate) destination: Destination,
    pub(crate) at: usize,
    pub(crate) len: usize,
}

/// Where a payload goes.
#[derive(Debug)]
pub(crate) enum Destination {
    /// A receive, and the number of the frame if it wants an answer.
    Receive(Posted, Envelope, Option<u64>),
    /// A message that waits for its receive.
    Unexpected(usize),
    /// Our registered memory.
    Write(IncomingWrite),
    /// The buffer of a read of ours, and whether the end of the read comes behind it.
    Read(PendingFetch, bool),
    /// Operands of an atomic on our memory.
    Atomic(Box<IncomingAtomic>),
    /// Earlier values that an atomic of ours asked for.
    AtomicResult(PendingFetch, u32),
    /// Nowhere.
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
    /// Whether nothing is to be read of the socket.
    pub(crate) fn is_stalled(&self) -> bool {
        self.held_message.is_some() || self.is_backpressured
    }

    /// Bytes that came with the greeting and belong behind it.
    pub(crate) fn prepend(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// Whether bytes wait here that the system is not going to tell of any more.
    #[inline]
    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Takes a header, or a part of one, from the front of `bytes`: how many bytes, and the header if
    /// it is whole.
    ///
    /// # Errors
    /// When no peer would send it.
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

    /// The number of a frame among those that want an answer, if it does.
    pub(crate) fn ack_number(&mut self, header: &Header) -> Option<u64> {
        header.wants_ack().then(|| {
            self.ack_requests += 1;
            self.ack_requests - 1
        })
    }

    /// The rest of the payload that is coming goes somewhere else.
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

    /// Whether the rest is worth to be read into its place.
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

    /// Adds the places of the next bytes.
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
