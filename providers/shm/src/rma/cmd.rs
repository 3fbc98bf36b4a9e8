//! Commands of one-sided operations: the words of a slot whose op is 2, 3, 7 or 8.
//!
//! ```text
//! write    1 key, 2 address, 3 data if the flag says so; inline: the payload in the words behind
//!   inject 3 data, 4 size, 5 offset in the inject pool, 6 msg_id
//!   iov    3 data, 4 size, 5 offset in the inject pool, 6 msg_id | segments << 32,
//!          7 number of eager bounce segments
//! read     1 key, 2 address, 3 size, 4 msg_id, 5 offset in the inject pool
//! result   1 msg_id | error << 32; inline: the payload from word 2 on; iov: 2 size,
//!          3 msg_id of the bounce segments
//! notify   1 direction: 0 a read, 1 a write; 2 data, 3 size
//! ```
//!
//! A command with several remote segments (flag 4) has their number in word 1, and their list at
//! the start of its payload in the inject pool. The list of the writer's segments (iov) is always
//! in the inject pool.
//!
//! A peer writes the slot: the parser loads every word once, and later code uses only the parsed
//! values.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use selvedge::Errno;
use selvedge::rma::RmaIov;
use selvedge_kit::segments::{RMA_IOV_LIMIT, RmaSegments};

use crate::peers::outbox::Inbox;
use crate::smr::bytes::Bytes;
use crate::smr::cmd_queue::{Received, SLOT_WORDS, Slot};
use crate::transfers::cmd::{
    ACK, HAS_DATA, IOV_LIMIT, ProtocolError, SRC_INJECT, SRC_INLINE, SRC_IOV, parse_len,
};
use crate::transfers::incoming::{ENTRY_LEN, SourceSegments, get_words, put_words};
use crate::transfers::inject;

// The op numbers of slots.
const WRITE: u32 = 2;
const READ: u32 = 3;
const RESULT: u32 = 7;
const NOTIFY: u32 = 8;
/// The head of the notification of an access with remote data.
const WRITE_NOTIFICATION: u32 = NOTIFY | HAS_DATA << 16;
/// Word 1 of the notification of a write. Reads have 0.
const DIRECTION_WRITE: u64 = 1;

/// Flag: the command has a list of remote segments.
const HAS_LIST: u32 = 4;

/// The longest payload of an inline result, in bytes.
pub(crate) const RESULT_MAX: usize = RESULT_WORDS * 8;
const RESULT_WORDS: usize = SLOT_WORDS - 2;
/// The payload of an inline result.
pub(crate) type ResultWords = [u64; RESULT_WORDS];

/// Returns the longest payload of an inline write, in bytes.
#[inline]
pub(crate) const fn inline_write_max(has_data: bool) -> usize {
    (SLOT_WORDS - if has_data { 4 } else { 3 }) * 8
}

/// A parsed command of a peer.
#[derive(Debug)]
pub(crate) enum OneSided {
    Write(Write),
    Read(Read),
    Result(Response),
}

/// A write to registered memory of this process.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) segments: RmaSegments,
    pub(crate) data: Option<u64>,
    pub(crate) body: Body,
}

/// A write whose payload is inside its command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InlineWrite {
    pub(crate) segment: RmaIov,
    pub(crate) data: Option<u64>,
    /// The word at which the payload begins.
    pub(crate) word: usize,
}

/// The location of a write's bytes.
#[derive(Debug)]
pub(crate) enum Body {
    /// In the inject pool. The target responds if `ack` is present.
    Inject { offset: usize, ack: Option<u32> },
    /// In the writer's memory.
    Iov {
        msg_id: u32,
        eager: u32,
        segments: SourceSegments,
    },
}

/// A peer's request for registered bytes of this process.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) segments: RmaSegments,
    pub(crate) msg_id: u32,
}

/// The response to a read request of this endpoint.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) msg_id: u32,
    pub(crate) outcome: Outcome,
}

/// The content of a response.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The command held the `len` bytes, in whole words.
    Inline { len: usize, words: ResultWords },
    /// The `len` bytes follow in bounce segments with the `msg_id` `stream`.
    Stream { len: usize, stream: u32 },
    /// The read failed.
    Failed(Errno),
}

/// The notification of a direct access by a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notification {
    /// Whether the peer has written; it has read otherwise.
    pub(crate) is_write: bool,
    pub(crate) data: Option<u64>,
    pub(crate) len: usize,
}

/// The fields of a write command before its body.
#[derive(Debug)]
pub(crate) struct Header<'a> {
    pub(crate) segments: &'a RmaSegments,
    pub(crate) data: Option<u64>,
}

impl Header<'_> {
    fn head(&self, op_src: u32, more_flags: u32) -> u32 {
        let has_list = if self.segments.only().is_some() {
            0
        } else {
            HAS_LIST
        };
        let data = if self.data.is_some() { HAS_DATA } else { 0 };
        WRITE | op_src << 8 | (has_list | data | more_flags) << 16
    }

    /// Commits a write whose payload is at `offset` of the inject pool, after the list of remote
    /// segments.
    pub(crate) fn commit_inject(&self, mut slot: Slot<'_>, offset: usize, ack: Option<u32>) {
        self.put_fields(&mut slot, offset);
        slot.put(6, u64::from(ack.unwrap_or(0)));
        slot.commit(self.head(SRC_INJECT, if ack.is_some() { ACK } else { 0 }));
    }

    /// Commits the RTS of a write. The list of the writer's segments is at `offset` of the inject
    /// pool, after the list of remote segments.
    pub(crate) fn commit_iov(
        &self,
        mut slot: Slot<'_>,
        offset: usize,
        msg_id: u32,
        segments: usize,
        eager: u32,
    ) {
        self.put_fields(&mut slot, offset);
        slot.put(6, u64::from(msg_id) | (segments as u64) << 32);
        slot.put(7, u64::from(eager));
        slot.commit(self.head(SRC_IOV, 0));
    }

    /// Writes the words that commands with a payload outside of the command have in common.
    fn put_fields(&self, slot: &mut Slot<'_>, offset: usize) {
        put_segments(slot, self.segments);
        slot.put(3, self.data.unwrap_or(0));
        slot.put(4, self.segments.len() as u64);
        slot.put(5, offset as u64);
    }
}

impl InlineWrite {
    /// Commits an inline write of `segment`. `payload` holds the bytes in whole words.
    #[inline]
    pub(crate) fn commit(segment: &RmaIov, data: Option<u64>, mut slot: Slot<'_>, payload: &[u64]) {
        debug_assert!(segment.len <= inline_write_max(data.is_some()));
        slot.put(1, segment.key);
        slot.put(2, segment.addr);
        let (mut word, mut flags) = (3, 0);
        if let Some(data) = data {
            slot.put(3, data);
            (word, flags) = (4, HAS_DATA);
        }
        for &bytes in payload {
            slot.put(word, bytes);
            word += 1;
        }
        slot.commit(WRITE | SRC_INLINE << 8 | flags << 16 | (segment.len as u32) << 24);
    }

    /// Parses the command, if it is an inline write.
    #[inline]
    pub(crate) fn parse(slot: &Received<'_>) -> Option<Self> {
        let head = slot.head();
        if head & 0xffff != WRITE | SRC_INLINE << 8 {
            return None;
        }
        let (flags, len) = (head >> 16 & 0xff, (head >> 24) as usize);
        let has_data = flags & HAS_DATA != 0;
        if flags & !HAS_DATA != 0 || len > inline_write_max(has_data) {
            return None;
        }
        let (key, addr) = (slot.word(1), slot.word(2));
        Some(Self {
            segment: RmaIov { addr, len, key },
            data: has_data.then(|| slot.word(3)),
            word: if has_data { 4 } else { 3 },
        })
    }
}

/// Writes the words that name the remote segments.
#[inline]
fn put_segments(slot: &mut Slot<'_>, segments: &RmaSegments) {
    match segments.only() {
        Some(segment) => {
            slot.put(1, segment.key);
            slot.put(2, segment.addr);
        }
        None => slot.put(1, segments.all().len() as u64),
    }
}

/// Commits a request for the bytes of `segments`. A list of more than one is at `offset` of the
/// inject pool.
pub(crate) fn commit_read(mut slot: Slot<'_>, segments: &RmaSegments, offset: usize, msg_id: u32) {
    put_segments(&mut slot, segments);
    slot.put(3, segments.len() as u64);
    slot.put(4, u64::from(msg_id));
    slot.put(5, offset as u64);
    let has_list = if segments.only().is_some() {
        0
    } else {
        HAS_LIST
    };
    slot.commit(READ | has_list << 16);
}

/// Commits an inline result. `payload` holds the bytes in whole words.
pub(crate) fn commit_result(mut slot: Slot<'_>, msg_id: u32, payload: &[u64], len: usize) {
    debug_assert!(len <= RESULT_MAX);
    slot.put(1, u64::from(msg_id));
    for (word, &bytes) in payload.iter().enumerate() {
        slot.put(2 + word, bytes);
    }
    slot.commit(RESULT | (len as u32) << 24);
}

/// Commits a result of `len` bytes that follow in bounce segments with the `msg_id` `stream`.
pub(crate) fn commit_stream(mut slot: Slot<'_>, msg_id: u32, len: usize, stream: u32) {
    slot.put(1, u64::from(msg_id));
    slot.put(2, len as u64);
    slot.put(3, u64::from(stream));
    slot.commit(RESULT | SRC_IOV << 8);
}

/// Commits the error of a read request.
pub(crate) fn commit_failure(mut slot: Slot<'_>, msg_id: u32, errno: Errno) {
    let errno = u64::from(errno.as_raw() as u32);
    slot.put(1, u64::from(msg_id) | errno << 32);
    slot.commit(RESULT);
}

/// Commits the notification of a direct write of `len` bytes with remote data. This is the most
/// frequent kind of notification.
#[inline(always)]
pub(crate) fn commit_write_notification(mut slot: Slot<'_>, data: u64, len: u64) {
    slot.put(1, DIRECTION_WRITE);
    slot.put(2, data);
    slot.put(3, len);
    slot.commit(WRITE_NOTIFICATION);
}

/// Parses a notification of [`commit_write_notification`]. Returns remote data and length.
#[inline(always)]
pub(crate) fn parse_write_notification(slot: &Received<'_>) -> Option<(u64, usize)> {
    if slot.head() != WRITE_NOTIFICATION || slot.word(1) != DIRECTION_WRITE {
        return None;
    }
    let len = parse_len(slot.word(3)).ok()?;
    Some((slot.word(2), len))
}

/// Commits the notification of a direct access.
pub(crate) fn commit_notification(mut slot: Slot<'_>, notification: Notification) {
    slot.put(1, u64::from(notification.is_write));
    slot.put(2, notification.data.unwrap_or(0));
    slot.put(3, notification.len as u64);
    let data = if notification.data.is_some() {
        HAS_DATA
    } else {
        0
    };
    slot.commit(NOTIFY | data << 16);
}

/// Parses a command that is neither an [`InlineWrite`] nor a [`Notification`], and advances the
/// cursor past the payload of the command in the inject pool.
pub(crate) fn parse(slot: &Received<'_>, pool: &mut Pool<'_>) -> Result<OneSided, ProtocolError> {
    let head = slot.head();
    let flags = head >> 16 & 0xff;
    match head & 0xff {
        WRITE if head >> 8 & 0xff == SRC_INLINE => Err(ProtocolError("a malformed inline write")),
        WRITE => parse_write(slot, pool, head, flags).map(OneSided::Write),
        READ if flags & !HAS_LIST == 0 => parse_read(slot, pool, flags).map(OneSided::Read),
        RESULT if flags == 0 => parse_result(slot, head).map(OneSided::Result),
        READ | RESULT => Err(ProtocolError("unknown flags")),
        _ => Err(ProtocolError("unknown op")),
    }
}

/// The cursor over the payloads of a peer's commands in the inject pool.
pub(crate) type Pool<'a> = inject::PoolCursor<'a>;

fn parse_write(
    slot: &Received<'_>,
    pool: &mut Pool<'_>,
    head: u32,
    flags: u32,
) -> Result<Write, ProtocolError> {
    if flags & !(HAS_DATA | ACK | HAS_LIST) != 0 {
        return Err(ProtocolError("unknown flags"));
    }
    let data = (flags & HAS_DATA != 0).then(|| slot.word(3));
    let segments_ref = parse_segments_ref(slot, flags)?;
    let len = parse_len(slot.word(4))?;
    let (offset, word) = (slot.word(5), slot.word(6));
    match head >> 8 & 0xff {
        SRC_INJECT => {
            let start = pool.advance(offset, segments_ref.list_len() + len)?;
            Ok(Write {
                segments: segments_ref.resolve(pool, start, len)?,
                data,
                body: Body::Inject {
                    offset: start + segments_ref.list_len(),
                    ack: (flags & ACK != 0).then_some(word as u32),
                },
            })
        }
        SRC_IOV => {
            let count = (word >> 32) as usize;
            if !(1..=IOV_LIMIT).contains(&count) {
                return Err(ProtocolError("number of segments out of range"));
            }
            let start = pool.advance(offset, segments_ref.list_len() + count * ENTRY_LEN)?;
            Ok(Write {
                segments: segments_ref.resolve(pool, start, len)?,
                data,
                body: Body::Iov {
                    msg_id: word as u32,
                    eager: u32::try_from(slot.word(7))
                        .map_err(|_| ProtocolError("number of bounce segments out of range"))?,
                    segments: SourceSegments::get(
                        pool.bytes(),
                        start + segments_ref.list_len(),
                        count,
                        len,
                    )?,
                },
            })
        }
        _ => Err(ProtocolError("unknown op_src")),
    }
}

fn parse_read(slot: &Received<'_>, pool: &mut Pool<'_>, flags: u32) -> Result<Read, ProtocolError> {
    let segments_ref = parse_segments_ref(slot, flags)?;
    let len = parse_len(slot.word(3))?;
    let msg_id = slot.word(4) as u32;
    let offset = match segments_ref {
        SegmentsRef::One { .. } => 0,
        SegmentsRef::List { .. } => pool.advance(slot.word(5), segments_ref.list_len())?,
    };
    let segments = segments_ref.resolve(pool, offset, len)?;
    Ok(Read { segments, msg_id })
}

fn parse_result(slot: &Received<'_>, head: u32) -> Result<Response, ProtocolError> {
    let word = slot.word(1);
    let errno = (word >> 32) as i32;
    let len = (head >> 24) as usize;
    let outcome = match head >> 8 & 0xff {
        _ if errno != 0 => Outcome::Failed(Errno::from_raw(errno)),
        SRC_INLINE if len <= RESULT_MAX => Outcome::Inline {
            len,
            words: std::array::from_fn(|index| slot.word(2 + index)),
        },
        SRC_IOV => Outcome::Stream {
            len: parse_len(slot.word(2))?,
            stream: slot.word(3) as u32,
        },
        _ => return Err(ProtocolError("unknown op_src of a result")),
    };
    let msg_id = word as u32;
    Ok(Response { msg_id, outcome })
}

impl Notification {
    /// Parses the command, if it is a notification.
    #[inline]
    pub(crate) fn parse(slot: &Received<'_>) -> Result<Option<Self>, ProtocolError> {
        let head = slot.head();
        let flags = head >> 16 & 0xff;
        if head & 0xff != NOTIFY {
            return Ok(None);
        }
        if flags & !HAS_DATA != 0 {
            return Err(ProtocolError("unknown flags"));
        }
        let data = slot.word(2);
        Ok(Some(Self {
            is_write: match slot.word(1) {
                0 => false,
                DIRECTION_WRITE => true,
                _ => return Err(ProtocolError("unknown direction of a notification")),
            },
            data: (flags & HAS_DATA != 0).then_some(data),
            len: parse_len(slot.word(3))?,
        }))
    }
}

/// The remote segments that words 1 and 2 name.
#[derive(Clone, Copy)]
enum SegmentsRef {
    One { key: u64, addr: u64 },
    List { count: usize },
}

fn parse_segments_ref(slot: &Received<'_>, flags: u32) -> Result<SegmentsRef, ProtocolError> {
    let first = slot.word(1);
    if flags & HAS_LIST == 0 {
        let addr = slot.word(2);
        return Ok(SegmentsRef::One { key: first, addr });
    }
    match usize::try_from(first) {
        Ok(count @ 1..=RMA_IOV_LIMIT) => Ok(SegmentsRef::List { count }),
        _ => Err(ProtocolError("number of remote segments out of range")),
    }
}

impl SegmentsRef {
    /// Returns the length of the list in the inject pool, in bytes.
    fn list_len(self) -> usize {
        match self {
            Self::One { .. } => 0,
            Self::List { count } => count * ENTRY_LEN,
        }
    }

    /// Returns the segments, which have `len` bytes in total. Reads a list from `offset` of the
    /// inject pool.
    fn resolve(
        self,
        pool: &Pool<'_>,
        offset: usize,
        len: usize,
    ) -> Result<RmaSegments, ProtocolError> {
        match self {
            Self::One { key, addr } => Ok(RmaSegments::one(RmaIov { addr, len, key })),
            Self::List { count } => read_list(pool.bytes(), offset, count)
                .ok()
                .filter(|segments| segments.len() == len)
                .ok_or(ProtocolError(
                    "lengths of the remote segments do not add up to the size",
                )),
        }
    }
}

/// Splits an inbox into its next slot and the cursor over its payloads, as [`parse`] takes them.
pub(crate) fn split_inbox(inbox: &mut Inbox) -> (Option<Received<'_>>, Pool<'_>) {
    let slot = inbox.rx.peek();
    let pool = Pool::new(&mut inbox.pool_position, &inbox.pool);
    (slot, pool)
}

/// Returns the length of the list in the inject pool, in bytes: 0 for one segment, which the
/// command itself holds.
#[inline]
pub(crate) fn list_len(segments: &RmaSegments) -> usize {
    match segments.all().len() {
        1 => 0,
        count => count * ENTRY_LEN,
    }
}

/// Writes a list of segments to the inject pool.
pub(crate) fn put_list(segments: &RmaSegments, payload: &Bytes, offset: usize) {
    for (index, segment) in segments.all().iter().enumerate() {
        let words = [segment.addr, segment.len as u64, segment.key];
        put_words(payload, offset + index * ENTRY_LEN, words);
    }
}

/// Reads a list of `count` entries from the inject pool.
///
/// # Errors
/// As [`RmaSegments::new`].
fn read_list(payload: &Bytes, offset: usize, count: usize) -> Result<RmaSegments, Errno> {
    const EMPTY: RmaIov = RmaIov {
        addr: 0,
        len: 0,
        key: 0,
    };
    let mut list = [EMPTY; RMA_IOV_LIMIT];
    let list = list.get_mut(..count).ok_or(Errno::Inval)?;
    for (index, segment) in list.iter_mut().enumerate() {
        let [addr, len, key] = get_words(payload, offset + index * ENTRY_LEN);
        let len = usize::try_from(len).map_err(|_| Errno::MsgSize)?;
        *segment = RmaIov { addr, len, key };
    }
    RmaSegments::new(list)
}
