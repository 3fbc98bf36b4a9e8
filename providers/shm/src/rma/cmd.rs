//! Commands of one-sided operations: what a slot says whose op is 2 or more.
//!
//! ```text
//! write    1 key, 2 address, 3 data if the flag says so; inline: the payload in the words behind
//!   inject 3 data, 4 size, 5 offset in the inject pool, 6 msg_id
//!   iov    3 data, 4 size, 5 offset in the inject pool, 6 msg_id | pieces << 32, 7 segments unasked
//! read     1 key, 2 address, 3 size, 4 msg_id, 5 offset in the inject pool
//! result   1 msg_id | error << 32; inline: the payload from word 2 on; iov: 2 size, 3 msg_id of the
//!          segments
//! notify   1 what took place: 0 a read, 1 a write; 2 data, 3 size
//! ```
//!
//! Where several places are named (flag 4), word 1 has their number and a list of them begins what
//! lies in the inject pool. The list of the pieces of an offered write always lies there.
//!
//! A peer wrote it: every word is loaded once, and only what was parsed is used.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use selvedge::Errno;
use selvedge::rma::RmaIov;
use selvedge_kit::segments::{RMA_IOV_LIMIT, RmaSegments};

use crate::peers::outbox::Inbox;
use crate::smr::bytes::Bytes;
use crate::smr::cmd_queue::{Received, SLOT_WORDS, Slot};
use crate::transfers::cmd::{
    ACK, HAS_DATA, IOV_LIMIT, Nonsense, SRC_INJECT, SRC_INLINE, SRC_IOV, length,
};
use crate::transfers::incoming::{ENTRY, Pieces, put_words, words_at};
use crate::transfers::inject;

const WRITE: u32 = 2;
const READ: u32 = 3;
const RESULT: u32 = 7;
const NOTIFY: u32 = 8;
/// The first word of a notice with data.
const TOLD: u32 = NOTIFY | HAS_DATA << 16;
/// A notice of a write.
const WROTE: u64 = 1;

/// Several places are named.
const LISTS: u32 = 4;

/// The most payload of a result that is inside its command.
pub(crate) const RESULT_MAX: usize = RESULT_WORDS * 8;
const RESULT_WORDS: usize = SLOT_WORDS - 2;
pub(crate) type ResultWords = [u64; RESULT_WORDS];

/// The most payload of a write that is inside its command.
#[inline]
pub(crate) const fn write_room(has_data: bool) -> usize {
    (SLOT_WORDS - if has_data { 4 } else { 3 }) * 8
}

/// A command of a peer, checked.
#[derive(Debug)]
pub(crate) enum OneSided {
    Write(Write),
    Read(Read),
    Result(Answer),
}

/// A write into memory of ours.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) places: RmaSegments,
    pub(crate) data: Option<u64>,
    pub(crate) body: Body,
}

/// A write that is inside its command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Small {
    pub(crate) place: RmaIov,
    pub(crate) data: Option<u64>,
    /// Where the payload begins.
    pub(crate) word: usize,
}

/// Where the bytes of a write are.
#[derive(Debug)]
pub(crate) enum Body {
    /// In the inject pool. Answered if `ack` is there.
    Inject { at: usize, ack: Option<u32> },
    /// In the writer's memory.
    Iov {
        msg_id: u32,
        eager: u32,
        pieces: Pieces,
    },
}

/// Bytes of ours that a peer wants.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) places: RmaSegments,
    pub(crate) msg_id: u32,
}

/// An answer to what we have asked for.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) msg_id: u32,
    pub(crate) outcome: Outcome,
}

/// What the answer is.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The bytes were in the command: these whole words.
    Inline { len: usize, words: ResultWords },
    /// They come in segments.
    Stream { len: usize, stream: u32 },
    /// They do not come.
    Failed(Errno),
}

/// A peer has used our memory by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notice {
    pub(crate) wrote: bool,
    pub(crate) data: Option<u64>,
    pub(crate) len: usize,
}

/// What a write says before its body.
#[derive(Debug)]
pub(crate) struct Header<'a> {
    pub(crate) places: &'a RmaSegments,
    pub(crate) data: Option<u64>,
}

impl Header<'_> {
    fn head(&self, op_src: u32, more_flags: u32) -> u32 {
        let lists = if self.places.only().is_some() {
            0
        } else {
            LISTS
        };
        let data = if self.data.is_some() { HAS_DATA } else { 0 };
        WRITE | op_src << 8 | (lists | data | more_flags) << 16
    }

    /// Writes bytes that lie at `offset` of the inject pool, behind the list of places.
    pub(crate) fn commit_inject(&self, mut slot: Slot<'_>, offset: usize, ack: Option<u32>) {
        self.put_long(&mut slot, offset);
        slot.put(6, u64::from(ack.unwrap_or(0)));
        slot.commit(self.head(SRC_INJECT, if ack.is_some() { ACK } else { 0 }));
    }

    /// Offers bytes whose pieces are listed at `offset` of the inject pool, behind the list of
    /// places.
    pub(crate) fn commit_iov(
        &self,
        mut slot: Slot<'_>,
        offset: usize,
        msg_id: u32,
        pieces: usize,
        eager: u32,
    ) {
        self.put_long(&mut slot, offset);
        slot.put(6, u64::from(msg_id) | (pieces as u64) << 32);
        slot.put(7, u64::from(eager));
        slot.commit(self.head(SRC_IOV, 0));
    }

    fn put_long(&self, slot: &mut Slot<'_>, offset: usize) {
        put_places(slot, self.places);
        slot.put(3, self.data.unwrap_or(0));
        slot.put(4, self.places.len() as u64);
        slot.put(5, offset as u64);
    }
}

impl Small {
    /// Writes the place's bytes inside the command. `payload` holds them in whole words.
    #[inline]
    pub(crate) fn commit(place: &RmaIov, data: Option<u64>, mut slot: Slot<'_>, payload: &[u64]) {
        debug_assert!(place.len <= write_room(data.is_some()));
        slot.put(1, place.key);
        slot.put(2, place.addr);
        let (mut word, mut flags) = (3, 0);
        if let Some(data) = data {
            slot.put(3, data);
            (word, flags) = (4, HAS_DATA);
        }
        for &bytes in payload {
            slot.put(word, bytes);
            word += 1;
        }
        slot.commit(WRITE | SRC_INLINE << 8 | flags << 16 | (place.len as u32) << 24);
    }

    /// The write, if the command is one of this kind.
    #[inline]
    pub(crate) fn parse(slot: &Received<'_>) -> Option<Self> {
        let head = slot.head();
        if head & 0xffff != WRITE | SRC_INLINE << 8 {
            return None;
        }
        let (flags, len) = (head >> 16 & 0xff, (head >> 24) as usize);
        let has_data = flags & HAS_DATA != 0;
        if flags & !HAS_DATA != 0 || len > write_room(has_data) {
            return None;
        }
        let (key, addr) = (slot.word(1), slot.word(2));
        Some(Self {
            place: RmaIov { addr, len, key },
            data: has_data.then(|| slot.word(3)),
            word: if has_data { 4 } else { 3 },
        })
    }
}

#[inline]
fn put_places(slot: &mut Slot<'_>, places: &RmaSegments) {
    match places.only() {
        Some(place) => {
            slot.put(1, place.key);
            slot.put(2, place.addr);
        }
        None => slot.put(1, places.all().len() as u64),
    }
}

/// Asks for the bytes of `places`, whose list, if it is needed, lies at `offset` of the inject pool.
pub(crate) fn commit_read(mut slot: Slot<'_>, places: &RmaSegments, offset: usize, msg_id: u32) {
    put_places(&mut slot, places);
    slot.put(3, places.len() as u64);
    slot.put(4, u64::from(msg_id));
    slot.put(5, offset as u64);
    let lists = if places.only().is_some() { 0 } else { LISTS };
    slot.commit(READ | lists << 16);
}

/// Answers with bytes. `payload` holds them in whole words.
pub(crate) fn commit_result(mut slot: Slot<'_>, msg_id: u32, payload: &[u64], len: usize) {
    debug_assert!(len <= RESULT_MAX);
    slot.put(1, u64::from(msg_id));
    for (word, &bytes) in payload.iter().enumerate() {
        slot.put(2 + word, bytes);
    }
    slot.commit(RESULT | (len as u32) << 24);
}

/// Answers that `len` bytes come in segments of this number.
pub(crate) fn commit_stream(mut slot: Slot<'_>, msg_id: u32, len: usize, stream: u32) {
    slot.put(1, u64::from(msg_id));
    slot.put(2, len as u64);
    slot.put(3, u64::from(stream));
    slot.commit(RESULT | SRC_IOV << 8);
}

/// Answers that there are no bytes, and why.
pub(crate) fn commit_failure(mut slot: Slot<'_>, msg_id: u32, errno: Errno) {
    let errno = u64::from(errno.as_raw() as u32);
    slot.put(1, u64::from(msg_id) | errno << 32);
    slot.commit(RESULT);
}

/// Tells of a write of `len` bytes that took place without the peer, with the data that comes with
/// it: the usual notice.
#[inline(always)]
pub(crate) fn commit_told(mut slot: Slot<'_>, data: u64, len: u64) {
    slot.put(1, WROTE);
    slot.put(2, data);
    slot.put(3, len);
    slot.commit(TOLD);
}

/// The data and the length of a usual notice, if the command is one.
#[inline(always)]
pub(crate) fn told(slot: &Received<'_>) -> Option<(u64, usize)> {
    if slot.head() != TOLD || slot.word(1) != WROTE {
        return None;
    }
    let len = length(slot.word(3)).ok()?;
    Some((slot.word(2), len))
}

/// Tells of what took place without the peer.
pub(crate) fn commit_notice(mut slot: Slot<'_>, notice: Notice) {
    slot.put(1, u64::from(notice.wrote));
    slot.put(2, notice.data.unwrap_or(0));
    slot.put(3, notice.len as u64);
    let data = if notice.data.is_some() { HAS_DATA } else { 0 };
    slot.commit(NOTIFY | data << 16);
}

/// Reads a command that is neither a [`Small`] one nor a [`Notice`]. What lies in the inject pool is passed.
pub(crate) fn parse(slot: &Received<'_>, inbox: &mut Pool<'_>) -> Result<OneSided, Nonsense> {
    let head = slot.head();
    let flags = head >> 16 & 0xff;
    match head & 0xff {
        WRITE if head >> 8 & 0xff == SRC_INLINE => Err(Nonsense("an inline write")),
        WRITE => write(slot, inbox, head, flags).map(OneSided::Write),
        READ if flags & !LISTS == 0 => read(slot, inbox, flags).map(OneSided::Read),
        RESULT if flags == 0 => answer(slot, head).map(OneSided::Result),
        READ | RESULT => Err(Nonsense("unknown flags")),
        _ => Err(Nonsense("unknown op")),
    }
}

/// The payloads of a peer's commands.
pub(crate) type Pool<'a> = inject::Passage<'a>;

fn write(
    slot: &Received<'_>,
    pool: &mut Pool<'_>,
    head: u32,
    flags: u32,
) -> Result<Write, Nonsense> {
    if flags & !(HAS_DATA | ACK | LISTS) != 0 {
        return Err(Nonsense("unknown flags"));
    }
    let data = (flags & HAS_DATA != 0).then(|| slot.word(3));
    let named = named(slot, flags)?;
    let len = length(slot.word(4))?;
    let (offset, word) = (slot.word(5), slot.word(6));
    match head >> 8 & 0xff {
        SRC_INJECT => {
            let at = pool.pass(offset, named.list_len() + len)?;
            Ok(Write {
                places: named.places(pool, at, len)?,
                data,
                body: Body::Inject {
                    at: at + named.list_len(),
                    ack: (flags & ACK != 0).then_some(word as u32),
                },
            })
        }
        SRC_IOV => {
            let count = (word >> 32) as usize;
            if !(1..=IOV_LIMIT).contains(&count) {
                return Err(Nonsense("number of pieces"));
            }
            let at = pool.pass(offset, named.list_len() + count * ENTRY)?;
            Ok(Write {
                places: named.places(pool, at, len)?,
                data,
                body: Body::Iov {
                    msg_id: word as u32,
                    eager: u32::try_from(slot.word(7)).map_err(|_| Nonsense("segments"))?,
                    pieces: Pieces::get(pool.bytes(), at + named.list_len(), count, len)?,
                },
            })
        }
        _ => Err(Nonsense("unknown op_src")),
    }
}

fn read(slot: &Received<'_>, pool: &mut Pool<'_>, flags: u32) -> Result<Read, Nonsense> {
    let named = named(slot, flags)?;
    let len = length(slot.word(3))?;
    let msg_id = slot.word(4) as u32;
    let at = match named {
        Named::One { .. } => 0,
        Named::List { .. } => pool.pass(slot.word(5), named.list_len())?,
    };
    let places = named.places(pool, at, len)?;
    Ok(Read { places, msg_id })
}

fn answer(slot: &Received<'_>, head: u32) -> Result<Answer, Nonsense> {
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
            len: length(slot.word(2))?,
            stream: slot.word(3) as u32,
        },
        _ => return Err(Nonsense("a result of no kind")),
    };
    let msg_id = word as u32;
    Ok(Answer { msg_id, outcome })
}

impl Notice {
    /// The notice, if the command is one.
    #[inline]
    pub(crate) fn parse(slot: &Received<'_>) -> Result<Option<Self>, Nonsense> {
        let head = slot.head();
        let flags = head >> 16 & 0xff;
        if head & 0xff != NOTIFY {
            return Ok(None);
        }
        if flags & !HAS_DATA != 0 {
            return Err(Nonsense("unknown flags"));
        }
        let data = slot.word(2);
        Ok(Some(Self {
            wrote: match slot.word(1) {
                0 => false,
                WROTE => true,
                _ => return Err(Nonsense("a notice of nothing")),
            },
            data: (flags & HAS_DATA != 0).then_some(data),
            len: length(slot.word(3))?,
        }))
    }
}

/// What words 1 and 2 name.
#[derive(Clone, Copy)]
enum Named {
    One { key: u64, addr: u64 },
    List { count: usize },
}

fn named(slot: &Received<'_>, flags: u32) -> Result<Named, Nonsense> {
    let first = slot.word(1);
    if flags & LISTS == 0 {
        let addr = slot.word(2);
        return Ok(Named::One { key: first, addr });
    }
    match usize::try_from(first) {
        Ok(count @ 1..=RMA_IOV_LIMIT) => Ok(Named::List { count }),
        _ => Err(Nonsense("number of places")),
    }
}

impl Named {
    fn list_len(self) -> usize {
        match self {
            Self::One { .. } => 0,
            Self::List { count } => count * ENTRY,
        }
    }

    fn places(self, pool: &Pool<'_>, at: usize, len: usize) -> Result<RmaSegments, Nonsense> {
        match self {
            Self::One { key, addr } => Ok(RmaSegments::one(RmaIov { addr, len, key })),
            Self::List { count } => get_list(pool.bytes(), at, count)
                .ok()
                .filter(|places| places.len() == len)
                .ok_or(Nonsense("places that do not add up")),
        }
    }
}

/// The payload area of an inbox, to parse a command with while its slot is looked at.
pub(crate) fn pool(inbox: &mut Inbox) -> (Option<Received<'_>>, Pool<'_>) {
    let slot = inbox.rx.peek();
    let pool = Pool::new(&mut inbox.walk, &inbox.pool);
    (slot, pool)
}

/// Bytes of the list in the inject pool: none where the command has room for it.
#[inline]
pub(crate) fn list_len(places: &RmaSegments) -> usize {
    match places.all().len() {
        1 => 0,
        count => count * ENTRY,
    }
}

/// Writes the list to the inject pool.
pub(crate) fn put_list(places: &RmaSegments, payload: &Bytes, at: usize) {
    for (index, place) in places.all().iter().enumerate() {
        let words = [place.addr, place.len as u64, place.key];
        put_words(payload, at + index * ENTRY, words);
    }
}

/// Reads a list of `count` out of the inject pool.
///
/// # Errors
/// As [`RmaSegments::new`].
fn get_list(payload: &Bytes, at: usize, count: usize) -> Result<RmaSegments, Errno> {
    const NOWHERE: RmaIov = RmaIov {
        addr: 0,
        len: 0,
        key: 0,
    };
    let mut list = [NOWHERE; RMA_IOV_LIMIT];
    let list = list.get_mut(..count).ok_or(Errno::Inval)?;
    for (index, place) in list.iter_mut().enumerate() {
        let [addr, len, key] = words_at(payload, at + index * ENTRY);
        let len = usize::try_from(len).map_err(|_| Errno::MsgSize)?;
        *place = RmaIov { addr, len, key };
    }
    RmaSegments::new(list)
}
