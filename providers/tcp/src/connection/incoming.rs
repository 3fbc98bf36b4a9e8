//! `Incoming`: how far the bytes that come over a connection are taken apart into frames, and where
//! the payload that is coming goes.
//!
//! A part of a header at most is kept here: payloads go where they belong as they come.

use rustc_hash::FxHashMap;
use selvedge_kit::mr::Regions;
use selvedge_kit::srx::{Envelope, Posted};

use crate::connection::one_sided::{Arriving, Change};
use crate::connection::operation::Fetch;
use crate::socket::vecs::Room;
use crate::wire::Nonsense;
use crate::wire::frame::{self, BASE, HEADER_MAX, Head};
use crate::wire::hello::Terms;

/// The rest of a payload that is read into its place directly.
pub(crate) const DIRECT_MIN: usize = 4 << 10;
/// Bytes that are read into their place in one system call.
pub(crate) const DIRECT_MAX: usize = 1 << 20;

/// What comes in over a connection.
#[derive(Debug)]
pub(crate) struct Incoming {
    head: [u8; HEADER_MAX],
    have: usize,
    pub(crate) body: Option<Arrival>,
    /// Read, and not used yet.
    pub(crate) pending: Vec<u8>,
    /// Frames so far that want an answer.
    asked: u64,
    /// The message that has no place: nothing behind it is read.
    pub(crate) held: Option<usize>,
    /// There was no room for completions, or answers.
    pub(crate) is_choked: bool,
    /// Offered messages that we have asked for, and their receives, if they are to be received.
    pub(crate) coming: FxHashMap<u8, (Option<Posted>, Envelope)>,
}

/// A payload that is coming.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) goal: Goal,
    pub(crate) at: usize,
    pub(crate) len: usize,
}

/// Where a payload goes.
#[derive(Debug)]
pub(crate) enum Goal {
    /// A receive, and the number of the frame if it wants an answer.
    Receive(Posted, Envelope, Option<u64>),
    /// A message that waits for its receive.
    Keep(usize),
    /// Our registered memory.
    Write(Arriving),
    /// The buffer of a read of ours, and whether the end of the read comes behind it.
    Read(Fetch, bool),
    /// Operands of an atomic on our memory.
    Change(Box<Change>),
    /// Earlier values that an atomic of ours asked for.
    Outcome(Fetch, u32),
    /// Nowhere.
    Nothing(Option<u64>),
}

impl Default for Incoming {
    fn default() -> Self {
        Self {
            head: [0; HEADER_MAX],
            have: 0,
            body: None,
            pending: Vec::new(),
            asked: 0,
            held: None,
            is_choked: false,
            coming: FxHashMap::default(),
        }
    }
}

impl Incoming {
    /// Whether nothing is to be read of the socket.
    pub(crate) fn is_stalled(&self) -> bool {
        self.held.is_some() || self.is_choked
    }

    /// Bytes that came with the greeting and belong behind it.
    pub(crate) fn put_back(&mut self, bytes: &[u8]) {
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
        terms: &Terms,
    ) -> Result<(usize, Option<Head>), Nonsense> {
        let (order, knows) = (terms.order, terms.knows());
        if self.have == 0 && bytes.len() >= BASE {
            let len = frame::length(bytes, order)?;
            if let Some(header) = bytes.get(..len) {
                return Ok((len, Some(Head::parse(header, order, knows)?)));
            }
        }
        let wanted = match self.have {
            0..BASE => BASE,
            _ => frame::length(&self.head, order)?,
        };
        let part = bytes.len().min(wanted - self.have);
        self.head[self.have..self.have + part].copy_from_slice(&bytes[..part]);
        self.have += part;
        if self.have < BASE || self.have < frame::length(&self.head, order)? {
            return Ok((part, None));
        }
        let head = Head::parse(&self.head[..self.have], order, knows)?;
        self.have = 0;
        Ok((part, Some(head)))
    }

    /// The number of a frame among those that want an answer, if it does.
    pub(crate) fn number(&mut self, head: &Head) -> Option<u64> {
        head.wants_answer().then(|| {
            self.asked += 1;
            self.asked - 1
        })
    }

    /// The rest of the payload that is coming goes somewhere else.
    pub(crate) fn redirect(&mut self, goal: Goal) {
        if let Some(arrival) = &mut self.body {
            arrival.goal = goal;
        }
    }
}

impl Arrival {
    pub(crate) fn new(goal: Goal, len: usize) -> Self {
        Self { goal, at: 0, len }
    }

    /// Whether the rest is worth to be read into its place.
    pub(crate) fn is_direct(&self) -> bool {
        let left = self.len - self.at;
        left >= DIRECT_MIN
            && match &self.goal {
                Goal::Receive(posted, ..) => posted.buf.len() >= self.len,
                Goal::Write(arriving) => arriving.denied.is_none(),
                Goal::Read(..) => true,
                _ => false,
            }
    }

    pub(crate) fn needs_regions(&self) -> bool {
        matches!(self.goal, Goal::Write(_))
    }

    /// Adds the places of the next bytes.
    pub(crate) fn offer<'a>(&'a mut self, room: &mut Room<'a>, regions: Option<&'a Regions<'_>>) {
        let (at, left) = (self.at, (self.len - self.at).min(DIRECT_MAX));
        match &mut self.goal {
            Goal::Receive(Posted { buf, .. }, ..) | Goal::Read(Fetch { buf, .. }, _) => {
                for piece in buf.segments(at, left) {
                    room.push(piece);
                }
            }
            Goal::Write(arriving) => {
                let regions = regions.into_iter();
                regions.for_each(|regions| arriving.offer(room, regions, at, left));
            }
            _ => {}
        }
    }
}
