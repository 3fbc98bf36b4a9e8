//! Frames: a header of 16 bytes and a few words, and a payload.
//!
//! [`Head`] is everything that a header says. [`length`] reads how long one is, [`Head::parse`] reads
//! it, and the payload follows. Lengths are checked against each other here; whether a frame makes
//! sense at its place is the reader's business.

use selvedge::atomic::RmaIoc;
use selvedge::rma::RmaIov;
use selvedge_kit::segments::{RMA_IOV_LIMIT, RmaSegments};
use selvedge_kit::srx::Kind;

use super::{Nonsense, Order, byte_at, bytes_at};

/// Bytes that every header has.
pub(crate) const BASE: usize = 16;
/// The longest header; libfabric's own end at 120.
pub(crate) const HEADER_MAX: usize = 128;
const HEADER_MAX_STOCK: usize = 120;
/// Headers are as long as a multiple of this.
pub(crate) const UNIT: usize = 8;
const VERSION: u8 = 3;

const OP_MSG: u8 = 0;
const OP_TAGGED: u8 = 1;
const OP_READ_REQUEST: u8 = 2;
const OP_READ_RESPONSE: u8 = 3;
const OP_WRITE: u8 = 4;
const OP_OFFER: u8 = 5;
const OP_CLEAR: u8 = 6;
const OP_DATA: u8 = 7;
// Between Selvedge endpoints.
const OP_ANSWER: u8 = 0x80;
const OP_REFUSED: u8 = 0x81;
const OP_ATOMIC: u8 = 0x82;
const OP_RESULT: u8 = 0x83;
const OP_READ_END: u8 = 0x84;

/// The `op_data` of a message that is an acknowledgement.
const ACK: u8 = 2;
/// The `op_data` of a read response that a [`Head::ReadEnd`] follows, between Selvedge endpoints.
const CHECKED: u8 = 1;

const FLAG_DATA: u16 = 1;
const FLAG_DELIVERY: u16 = 1 << 2;
const FLAG_COMMIT: u16 = 1 << 3;
/// Between Selvedge endpoints: answer when a receive has the message.
const FLAG_RECEIVED: u16 = 1 << 4;

/// When a message is to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Never,
    /// When its bytes have arrived, which is all that libfabric knows.
    Arrived,
    /// When a receive has them.
    Received,
}

/// What a header says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Head {
    /// A message, whose bytes follow.
    Message {
        kind: Kind,
        tag: u64,
        data: Option<u64>,
        wish: Wish,
        len: usize,
    },
    /// The oldest frame that wants an answer has been received.
    Ack,
    ReadRequest {
        places: RmaSegments,
    },
    /// Answers the oldest read. A read that `is_checked` is complete with the [`Head::ReadEnd`] that
    /// follows the bytes.
    ReadResponse {
        len: usize,
        is_checked: bool,
    },
    /// Says whether the memory of the read response before it was there to the end.
    ReadEnd {
        status: u32,
    },
    Write {
        places: RmaSegments,
        data: Option<u64>,
        wants_answer: bool,
    },
    /// A tagged message whose bytes are to be asked for.
    Offer {
        id: u8,
        tag: u64,
        data: Option<u64>,
        wants_answer: bool,
        len: usize,
    },
    /// The bytes of an offer may come.
    Clear {
        id: u8,
    },
    /// The bytes of an offer.
    Data {
        id: u8,
        wants_answer: bool,
        len: usize,
    },
    /// What became of a frame that wants an answer, by its number among those of the connection.
    Answer {
        number: u64,
        status: u32,
    },
    /// Answers the oldest read: it may not.
    Refused {
        status: u32,
    },
    Atomic {
        what: u64,
        data: Option<u64>,
        targets: Vec<RmaIoc>,
        len: usize,
    },
    /// Answers the oldest atomic.
    Outcome {
        status: u32,
        len: usize,
    },
}

/// The length of the header that begins with these [`BASE`] bytes.
///
/// # Errors
/// When no header has this length, or the frame would end before it.
pub(crate) fn length(base: &[u8], order: Order) -> Result<usize, Nonsense> {
    let [op, len] = [1, 6].map(|at| byte_at(base, at));
    let len = usize::from(len);
    let most = match op {
        OP_ATOMIC => HEADER_MAX,
        _ => HEADER_MAX_STOCK,
    };
    if !(BASE..=most).contains(&len) || !len.is_multiple_of(8) {
        return Err(Nonsense("a header of an impossible length"));
    }
    match order.u64(bytes_at(base, 8)) < len as u64 {
        true => Err(Nonsense("a frame shorter than its header")),
        false => Ok(len),
    }
}

/// The words behind the base of a header, read one after the other.
struct Words<'a> {
    rest: &'a [u8],
    order: Order,
}

impl Words<'_> {
    fn next(&mut self) -> Result<u64, Nonsense> {
        let (word, rest) = self
            .rest
            .split_first_chunk()
            .ok_or(Nonsense("a header that is too short for what it says"))?;
        self.rest = rest;
        Ok(self.order.u64(*word))
    }

    fn next_len(&mut self) -> Result<usize, Nonsense> {
        checked(self.next()?)
    }

    fn places(&mut self, count: u8, is_empty_fine: bool) -> Result<RmaSegments, Nonsense> {
        let count = usize::from(count);
        let mut list = [NOWHERE; RMA_IOV_LIMIT];
        let Some(list) = list.get_mut(..count) else {
            return Err(Nonsense("a list of too many places"));
        };
        for place in &mut *list {
            place.addr = self.next()?;
            place.len = self.next_len()?;
            place.key = self.next()?;
        }
        if list.is_empty() && is_empty_fine {
            return Ok(RmaSegments::one(NOWHERE));
        }
        RmaSegments::new(list).map_err(|_| Nonsense("a list of places that cannot be counted"))
    }

    fn targets(&mut self, count: u8) -> Result<Vec<RmaIoc>, Nonsense> {
        if !(1..=RMA_IOV_LIMIT).contains(&usize::from(count)) {
            return Err(Nonsense("a list of too many targets"));
        }
        let mut target = || {
            Ok(RmaIoc {
                addr: self.next()?,
                count: self.next_len()?,
                key: self.next()?,
            })
        };
        (0..count).map(|_| target()).collect()
    }
}

const NOWHERE: RmaIov = RmaIov {
    addr: 0,
    len: 0,
    key: 0,
};

fn checked(len: u64) -> Result<usize, Nonsense> {
    let len = usize::try_from(len).ok();
    len.filter(|&len| len <= isize::MAX as usize)
        .ok_or(Nonsense("a length beyond all memory"))
}

impl Head {
    /// Reads a header of the length that [`length`] has given. `knows` says whether the peer may use
    /// what libfabric does not have.
    ///
    /// # Errors
    /// What of it is nonsense.
    pub(crate) fn parse(header: &[u8], order: Order, knows: bool) -> Result<Self, Nonsense> {
        let [op, op_data, count] = [1, 4, 5].map(|at| byte_at(header, at));
        let flags = order.u16(bytes_at(header, 2));
        let len = order.u64(bytes_at(header, 8));
        let len = len.checked_sub(header.len() as u64);
        let len = checked(len.ok_or(Nonsense("a frame shorter than its header"))?)?;
        let mut words = Words {
            rest: header.get(BASE..).unwrap_or_default(),
            order,
        };
        let wants_answer = flags & (FLAG_DELIVERY | FLAG_COMMIT) != 0;
        let wish = match wants_answer {
            false => Wish::Never,
            true if knows && flags & FLAG_RECEIVED != 0 => Wish::Received,
            true => Wish::Arrived,
        };
        let mut data = || {
            let has_data = flags & FLAG_DATA != 0;
            has_data.then(|| words.next()).transpose()
        };
        let head = match op {
            OP_MSG if op_data == ACK => Self::Ack,
            OP_MSG => Self::Message {
                kind: Kind::Msg,
                data: data()?,
                tag: 0,
                wish,
                len,
            },
            OP_TAGGED => Self::Message {
                kind: Kind::Tagged,
                data: data()?,
                tag: words.next()?,
                wish,
                len,
            },
            OP_READ_REQUEST => Self::ReadRequest {
                places: words.places(count, true)?,
            },
            OP_READ_RESPONSE => Self::ReadResponse {
                len,
                is_checked: knows && op_data == CHECKED,
            },
            OP_WRITE => Self::Write {
                data: data()?,
                places: words.places(count, len == 0)?,
                wants_answer,
            },
            OP_OFFER => Self::Offer {
                id: op_data,
                data: data()?,
                tag: words.next()?,
                len: words.next_len()?,
                wants_answer,
            },
            OP_CLEAR => Self::Clear { id: op_data },
            OP_DATA => Self::Data {
                id: op_data,
                wants_answer,
                len,
            },
            OP_ANSWER if knows => Self::Answer {
                number: words.next()?,
                status: status(words.next()?)?,
            },
            OP_READ_END if knows => Self::ReadEnd {
                status: status(words.next()?)?,
            },
            OP_REFUSED if knows => Self::Refused {
                status: status(words.next()?)?,
            },
            OP_ATOMIC if knows => Self::Atomic {
                data: data()?,
                what: words.next()?,
                targets: words.targets(count)?,
                len,
            },
            OP_RESULT if knows => Self::Outcome {
                status: status(words.next()?)?,
                len,
            },
            _ => return Err(Nonsense("a frame of no known kind")),
        };
        match head.payload() == len {
            true => Ok(head),
            false => Err(Nonsense("a payload of another length than its header says")),
        }
    }

    /// Bytes that follow the header.
    pub(crate) fn payload(&self) -> usize {
        match self {
            Self::Message { len, .. }
            | Self::ReadResponse { len, .. }
            | Self::Data { len, .. }
            | Self::Atomic { len, .. }
            | Self::Outcome { len, .. } => *len,
            Self::Write { places, .. } => places.len(),
            Self::Ack
            | Self::ReadRequest { .. }
            | Self::Offer { .. }
            | Self::Clear { .. }
            | Self::Answer { .. }
            | Self::ReadEnd { .. }
            | Self::Refused { .. } => 0,
        }
    }

    /// Whether the other end owes an answer for this frame.
    pub(crate) fn wants_answer(&self) -> bool {
        match self {
            Self::Message { wish, .. } => *wish != Wish::Never,
            Self::Write { wants_answer, .. } | Self::Data { wants_answer, .. } => *wants_answer,
            _ => false,
        }
    }

    /// Adds the header to `out`. `number` counts the frames of this direction: builds of libfabric
    /// for debugging look at it.
    #[expect(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        reason = "our own frame, whose base was just added"
    )]
    pub(crate) fn encode(&self, order: Order, number: u8, out: &mut Vec<u8>) {
        let start = out.len();
        let (op, op_data, count) = self.codes();
        out.extend([VERSION, op]);
        out.extend(order.put_u16(self.flags()));
        out.extend([op_data, count, 0, number]);
        out.extend([0; 8]);
        let mut put = |word: u64| out.extend(order.put_u64(word));
        match self {
            Self::Message {
                kind, tag, data, ..
            } => {
                data.iter().for_each(|&word| put(word));
                if *kind == Kind::Tagged {
                    put(*tag);
                }
            }
            Self::Offer { tag, data, len, .. } => {
                data.iter().for_each(|&word| put(word));
                put(*tag);
                put(*len as u64);
            }
            Self::ReadRequest { places } => put_places(places, put),
            Self::Write { places, data, .. } => {
                data.iter().for_each(|&word| put(word));
                put_places(places, put);
            }
            Self::Answer { number, status } => {
                put(*number);
                put(u64::from(*status));
            }
            Self::Refused { status } | Self::ReadEnd { status } | Self::Outcome { status, .. } => {
                put(u64::from(*status));
            }
            Self::Atomic {
                what,
                data,
                targets,
                ..
            } => {
                data.iter().for_each(|&word| put(word));
                put(*what);
                for target in targets {
                    [target.addr, target.count as u64, target.key]
                        .into_iter()
                        .for_each(&mut put);
                }
            }
            Self::Ack | Self::ReadResponse { .. } | Self::Clear { .. } | Self::Data { .. } => {}
        }
        let len = out.len() - start;
        out[start + 6] = u8::try_from(len).unwrap_or(u8::MAX);
        let size = (len + self.payload()) as u64;
        out[start + 8..start + 16].copy_from_slice(&order.put_u64(size));
    }

    /// The operation, and the two fields whose meaning depends on it.
    fn codes(&self) -> (u8, u8, u8) {
        match self {
            Self::Message {
                kind: Kind::Msg, ..
            } => (OP_MSG, 0, 0),
            Self::Message { .. } => (OP_TAGGED, 0, 0),
            Self::Ack => (OP_MSG, ACK, 0),
            Self::ReadRequest { places } => (OP_READ_REQUEST, 0, places.all().len() as u8),
            Self::ReadResponse { is_checked, .. } => {
                let checked = if *is_checked { CHECKED } else { 0 };
                (OP_READ_RESPONSE, checked, 0)
            }
            Self::ReadEnd { .. } => (OP_READ_END, 0, 0),
            Self::Write { places, .. } => (OP_WRITE, 0, places.all().len() as u8),
            Self::Offer { id, .. } => (OP_OFFER, *id, 0),
            Self::Clear { id } => (OP_CLEAR, *id, 0),
            Self::Data { id, .. } => (OP_DATA, *id, 0),
            Self::Answer { .. } => (OP_ANSWER, 0, 0),
            Self::Refused { .. } => (OP_REFUSED, 0, 0),
            Self::Atomic { targets, .. } => (OP_ATOMIC, 0, targets.len() as u8),
            Self::Outcome { .. } => (OP_RESULT, 0, 0),
        }
    }

    fn flags(&self) -> u16 {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let (data, wants_answer) = match self {
            Self::Message { data, wish, .. } => {
                let received = flag(*wish == Wish::Received, FLAG_RECEIVED);
                let data = flag(data.is_some(), FLAG_DATA);
                return data | received | flag(*wish != Wish::Never, FLAG_DELIVERY);
            }
            Self::Write {
                data, wants_answer, ..
            }
            | Self::Offer {
                data, wants_answer, ..
            } => (data.is_some(), *wants_answer),
            Self::Data { wants_answer, .. } => (false, *wants_answer),
            Self::Atomic { data, .. } => (data.is_some(), false),
            _ => (false, false),
        };
        flag(data, FLAG_DATA) | flag(wants_answer, FLAG_DELIVERY)
    }
}

/// Has an encoded header of `base` bytes end in so many zeros more, or fewer if it would be too long.
/// Readers skip what a header does not need; a libfabric has been seen to do so in messages and writes,
/// and others are left as they are unless the peer `knows` more.
#[expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "our own header, which has its base"
)]
pub(crate) fn pad(header: &mut Vec<u8>, base: usize, by: usize, order: Order, knows: bool) {
    let is_read_by_all = matches!(header[1], OP_MSG | OP_TAGGED | OP_WRITE);
    let fits = base + by <= HEADER_MAX_STOCK && (is_read_by_all || knows);
    let len = if fits { base + by } else { base };
    let size = order.u64(bytes_at(header, 8)) - header.len() as u64 + len as u64;
    header.resize(len, 0);
    header[6] = len as u8;
    header[8..16].copy_from_slice(&order.put_u64(size));
}

fn put_places(places: &RmaSegments, mut put: impl FnMut(u64)) {
    for place in places.all() {
        put(place.addr);
        put(place.len as u64);
        put(place.key);
    }
}

fn status(word: u64) -> Result<u32, Nonsense> {
    u32::try_from(word).map_err(|_| Nonsense("a status that is no error number"))
}

#[cfg(test)]
mod tests;
