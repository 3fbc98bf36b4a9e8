//! Receiving: bytes of a connection, cut into frames, each taken to where it belongs.
//!
//! A lane keeps a part of a header at most: payloads go where they belong as they come. Large ones
//! are read straight into that memory. When a frame has no place, or the reader has no room for
//! completions, the lane stalls: what was read already waits in it, and the rest in the kernel.

use std::io;

use selvedge::cq::Entry;
use selvedge_kit::cq::Sink;
use selvedge_kit::srx::{Envelope, Posted, Source};

use crate::lane::{Fetch, Lane, Stage};
use crate::serve::{Arriving, Change};
use crate::state::State;
use crate::vecs::Room;
use crate::wire::Nonsense;
use crate::wire::frame::{self, BASE, HEADER_MAX, Head, Wish};

/// Bytes that are read ahead in one system call.
pub(crate) const SCRATCH: usize = 64 << 10;
/// The same behind a payload of at least [`SCRATCH`] bytes: the next one is probably as large, and
/// what is read ahead of it is copied once more.
const AHEAD_OF_LARGE: usize = 2 << 10;
/// The rest of a payload that is read into its place directly.
const DIRECT_MIN: usize = 4 << 10;
/// Bytes that are read into their place in one system call.
const DIRECT_MAX: usize = 1 << 20;
/// Bytes that are read of one lane before others have their turn.
const SHARE: usize = 4 << 20;

#[derive(Debug)]
pub(crate) struct Rx {
    head: [u8; HEADER_MAX],
    have: usize,
    pub(crate) body: Option<Arrival>,
    /// Read, and not used yet.
    pending: Vec<u8>,
    /// Frames so far that want an answer.
    pub(crate) asked: u64,
    /// The message that has no place: nothing behind it is read.
    pub(crate) held: Option<usize>,
    /// There was no room for completions, or answers.
    is_choked: bool,
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
    /// Memory of a read of ours, and whether the end of the read comes behind it.
    Read(Fetch, bool),
    /// Operands of an atomic on our memory.
    Change(Box<Change>),
    /// Earlier values that an atomic of ours asked for.
    Outcome(Fetch, u32),
    /// Nowhere.
    Nothing(Option<u64>),
}

/// What came of a look at a socket.
enum Came {
    /// So many bytes in the scratch memory; and whether there may be more.
    Bytes(usize, bool),
    Nothing,
    End(io::Result<()>),
}

impl Default for Rx {
    fn default() -> Self {
        Self {
            head: [0; HEADER_MAX],
            have: 0,
            body: None,
            pending: Vec::new(),
            asked: 0,
            held: None,
            is_choked: false,
        }
    }
}

impl Rx {
    /// Whether nothing is to be read of the socket.
    pub(crate) fn is_stalled(&self) -> bool {
        self.held.is_some() || self.is_choked
    }

    /// Bytes that came with the greeting and belong behind it.
    pub(crate) fn put_back(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// Whether bytes wait here that nobody is going to tell of.
    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }
}

impl State {
    /// Reads a lane and takes what has come; about `budget` messages at most. Says how many frames
    /// there were.
    pub(crate) fn read(&mut self, at: usize, budget: usize, sink: &mut Sink<'_>) -> usize {
        let serial = match self.lanes.get(at) {
            Some(lane) if lane.is_up() => lane.serial,
            _ => return 0,
        };
        let (mut done, mut bytes) = (0, 0);
        let mut is_more = true;
        while self.is_readable(at, serial) && (is_more || self.lanes[at].rx.has_pending()) {
            if self.lanes[at].rx.has_pending() {
                let pending = std::mem::take(&mut self.lanes[at].rx.pending);
                done += self.take_bytes(at, &pending, sink);
                continue;
            }
            if done >= budget || bytes >= SHARE {
                break;
            }
            let mut scratch = std::mem::take(&mut self.scratch);
            match self.fill(at, &mut scratch) {
                Came::Bytes(count, more) => {
                    is_more = more;
                    bytes += count.max(DIRECT_MIN);
                    done += 1 + self.take_bytes(at, &scratch[..count], sink);
                }
                Came::Nothing => is_more = false,
                Came::End(how) => {
                    is_more = false;
                    self.lane_ended(at, how);
                }
            }
            self.scratch = scratch;
        }
        if let Some(lane) = self.lanes.get(at)
            && (lane.rx.is_stalled() || lane.is_parting || lane.is_loaded())
        {
            self.stall(at);
        }
        done
    }

    /// Whether the lane is still the same and more can be taken of it.
    fn is_readable(&mut self, at: usize, serial: u64) -> bool {
        let has_room = self.ep.rx_cq.room() > 0;
        let most = self.config.tx_size;
        let Some(lane) = self.lanes.get_mut(at).filter(|lane| lane.serial == serial) else {
            return false;
        };
        lane.rx.is_choked = !has_room || lane.tx.is_overloaded(most);
        lane.is_up() && !lane.rx.is_stalled()
    }

    /// Reads what is there: into the place of a large payload, and behind that into `scratch`.
    fn fill(&mut self, at: usize, scratch: &mut [u8]) -> Came {
        let keys = std::sync::Arc::clone(&self.keys);
        let lane = &mut self.lanes[at];
        let Some(socket) = &mut lane.socket else {
            return Came::Nothing;
        };
        let mut direct = 0;
        let (came, room_len) = match &mut lane.rx.body {
            Some(arrival) if arrival.is_direct() => {
                let regions = arrival.needs_regions().then(|| keys.regions());
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
            self.is_behind(at);
        }
        match came {
            Ok(0) => Came::End(Ok(())),
            Ok(count) => {
                let placed = count.min(direct);
                if placed > 0 {
                    self.placed(at, placed);
                }
                Came::Bytes(count - placed, count == room_len)
            }
            Err(cause) => match cause.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Came::Nothing,
                _ => Came::End(Err(cause)),
            },
        }
    }

    /// There is an answer of TLS to what has come, for which the kernel has no room.
    #[cold]
    fn is_behind(&mut self, at: usize) {
        self.lanes[at].tx.is_blocked = true;
        self.watch(at);
    }

    /// `count` bytes were read into the place of the payload.
    fn placed(&mut self, at: usize, count: usize) {
        let body = &mut self.lanes[at].rx.body;
        let Some(mut arrival) = body.take() else {
            return;
        };
        arrival.at += count;
        if arrival.at < arrival.len {
            *body = Some(arrival);
        } else {
            self.arrived(at, arrival);
        }
    }

    /// Takes bytes that were read; keeps those for which there is no place yet.
    fn take_bytes(&mut self, at: usize, bytes: &[u8], sink: &mut Sink<'_>) -> usize {
        let serial = self.lanes[at].serial;
        let (mut used, mut done) = (0, 0);
        while used < bytes.len() && self.is_readable(at, serial) {
            let rest = &bytes[used..];
            let taken = match self.lanes[at].rx.body.take() {
                Some(arrival) => Ok(self.take_payload(at, arrival, rest)),
                None => self.take_header(at, rest, sink),
            };
            match taken {
                Ok(count) => used += count,
                Err(Nonsense(what)) => {
                    self.cut_off(at, what);
                    return done;
                }
            }
            done += 1;
        }
        if let Some(lane) = self.lanes.get_mut(at).filter(|lane| lane.serial == serial) {
            lane.rx.pending.extend_from_slice(&bytes[used..]);
        }
        done
    }

    /// Takes bytes of a payload; how many.
    fn take_payload(&mut self, at: usize, mut arrival: Arrival, bytes: &[u8]) -> usize {
        let part = bytes.len().min(arrival.len - arrival.at);
        self.place(&mut arrival, &bytes[..part]);
        arrival.at += part;
        if arrival.at < arrival.len {
            self.lanes[at].rx.body = Some(arrival);
        } else {
            self.arrived(at, arrival);
        }
        part
    }

    /// Takes a header, or a part of one; how many bytes, of its payload too if that was there.
    fn take_header(
        &mut self,
        at: usize,
        bytes: &[u8],
        sink: &mut Sink<'_>,
    ) -> Result<usize, Nonsense> {
        let lane = &mut self.lanes[at];
        let (order, knows) = (lane.terms.order, lane.terms.knows());
        let rx = &mut lane.rx;
        if rx.have == 0 && bytes.len() >= BASE {
            let len = frame::length(bytes, order)?;
            if let Some(header) = bytes.get(..len) {
                let head = Head::parse(header, order, knows)?;
                return Ok(len + self.begin(at, head, &bytes[len..], sink)?);
            }
        }
        let wanted = match rx.have {
            0..BASE => BASE,
            _ => frame::length(&rx.head, order)?,
        };
        let part = bytes.len().min(wanted - rx.have);
        rx.head[rx.have..rx.have + part].copy_from_slice(&bytes[..part]);
        rx.have += part;
        if rx.have >= BASE && rx.have == frame::length(&rx.head, order)? {
            let head = Head::parse(&rx.head[..rx.have], order, knows)?;
            rx.have = 0;
            self.begin(at, head, &[], sink)?;
        }
        Ok(part)
    }

    /// Takes a frame, whose payload begins with `bytes`. Says how many of them it took.
    fn begin(
        &mut self,
        at: usize,
        head: Head,
        bytes: &[u8],
        sink: &mut Sink<'_>,
    ) -> Result<usize, Nonsense> {
        if let Head::Message {
            kind,
            tag,
            data: None,
            wish: Wish::Never,
            len,
        } = head
            && let Some(payload) = bytes.get(..len)
        {
            // The usual case: all of it is here, and the oldest receive is for it.
            let peer = self.lanes[at].peer;
            let addr = self.peers[peer].fi_addr(self.av.as_deref());
            let matcher = self.inbound.matcher(kind);
            if let Some(posted) = matcher.oldest(Source(peer as u32), tag)
                && posted.buf.len() >= len
                && !self.ep.is_unknown(addr)
            {
                posted.buf.write(0, payload);
                let flags = posted.flags;
                let entry = Entry {
                    context: posted.context,
                    flags: kind.received(),
                    len,
                    tag,
                    ..Entry::default()
                };
                matcher.drop_oldest();
                self.ep.rx_report(entry, flags, addr, sink);
                return Ok(len);
            }
        }
        let number = head.wants_answer().then(|| {
            let rx = &mut self.lanes[at].rx;
            rx.asked += 1;
            rx.asked - 1
        });
        let Some(arrival) = self.open(at, head, number)? else {
            return Ok(0);
        };
        if arrival.len == 0 {
            self.arrived(at, arrival);
        } else {
            self.lanes[at].rx.body = Some(arrival);
        }
        Ok(0)
    }

    /// Looks again at lanes that were stalled.
    pub(crate) fn resume(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        let mut done = 0;
        for at in std::mem::take(&mut self.stalled) {
            self.make_room_for(at);
            done += self.read(at, budget, sink);
            self.watch(at);
        }
        done
    }

    fn stall(&mut self, at: usize) {
        if !self.stalled.contains(&at) {
            self.stalled.push(at);
        }
        self.watch(at);
    }
}

impl Arrival {
    pub(crate) fn new(goal: Goal, len: usize) -> Self {
        Self { goal, at: 0, len }
    }

    /// Whether the rest is worth to be read into its place.
    fn is_direct(&self) -> bool {
        let left = self.len - self.at;
        left >= DIRECT_MIN
            && match &self.goal {
                Goal::Receive(posted, ..) => posted.buf.len() >= self.len,
                Goal::Write(arriving) => arriving.denied.is_none(),
                Goal::Read(..) => true,
                _ => false,
            }
    }

    fn needs_regions(&self) -> bool {
        matches!(self.goal, Goal::Write(_))
    }

    /// Adds the places of the next bytes.
    fn offer<'a>(
        &'a mut self,
        room: &mut Room<'a>,
        regions: Option<&'a selvedge_kit::mr::Regions<'_>>,
    ) {
        let (at, left) = (self.at, (self.len - self.at).min(DIRECT_MAX));
        match &mut self.goal {
            Goal::Receive(Posted { buf, .. }, ..) | Goal::Read(Fetch { buf, .. }, _) => {
                for piece in buf.pieces(at, left) {
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

impl Lane {
    /// Whether greetings are over and frames may be read.
    pub(crate) fn came_up(&mut self) {
        self.stage = Stage::Up;
        self.greeting = Vec::new();
    }
}
