//! Commands of messages: the words of a slot of the command queue (`smr_cmd`).
//!
//! ```text
//! word 0   commit stamp (upper half) | op, op_src, flags, inline length (one byte each)
//! word 1   tag
//! inline   word 2: data, if the flag HAS_DATA is set; then the payload
//! inject   word 2: data, 3: size, 4: offset into the inject pool, 5: msg_id
//! iov      word 2: data, 3: size, 4: msg_id | count << 32, 5: address, or the offset of the list,
//!          6: number of eager bounce segments, 7: the block of special memory that holds the only
//!          segment, or 0; with the flag LENT, the sender lends this segment
//! ```
//!
//! A peer writes the slot: the parser loads every word once, and later code uses only the parsed
//! values.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use selvedge_kit::srx::{Envelope, Kind, Source};

use crate::smr::cmd_queue::{Received, SLOT_WORDS, Slot};

/// The maximum number of segments of a message.
pub(crate) const IOV_LIMIT: usize = 4;
/// The longest payload, in bytes, of a command without remote data. With data it is 8 bytes
/// shorter.
pub(crate) const INLINE_MAX: usize = (SLOT_WORDS - 2) * 8;

/// The largest op number of messages. Larger numbers are one-sided operations, atomics and their
/// responses.
pub(crate) const OP_LAST_MESSAGE: u32 = 1;
pub(crate) const OP_ATOMIC: u32 = 4;
pub(crate) const OP_FETCH_ATOMIC: u32 = 5;
pub(crate) const OP_COMPARE_ATOMIC: u32 = 6;
/// The response to any atomic.
pub(crate) const OP_ATOMIC_RESULT: u32 = 9;

/// Flag: the command carries remote data.
pub(crate) const HAS_DATA: u32 = 1;
/// Flag: the sender requests an acknowledgement of the receive.
pub(crate) const ACK: u32 = 2;

/// Flag: the sender lends the only segment of its memory.
pub(crate) const LENT: u32 = 8;

/// `op_src`: the payload is inside the command.
pub(crate) const SRC_INLINE: u32 = 0;
/// `op_src`: the payload is in the inject pool.
pub(crate) const SRC_INJECT: u32 = 1;
/// `op_src`: the payload is in the sender's memory.
pub(crate) const SRC_IOV: u32 = 2;

/// The fields that commands of messages have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) tag: u64,
    pub(crate) data: Option<u64>,
}

/// A parsed command of a peer.
#[derive(Debug)]
pub(crate) struct Cmd {
    pub(crate) kind: Kind,
    pub(crate) env: Envelope,
    pub(crate) body: Body,
}

/// The location of a message's bytes (`op_src`).
#[derive(Debug)]
pub(crate) enum Body {
    /// Inside the command, from this word on.
    Inline { word: usize },
    /// In the inject pool. The receiver responds to the `msg_id` `ack`, if it is present.
    Inject { offset: u64, ack: Option<u32> },
    /// In the sender's memory.
    Iov(Rts),
}

/// The RTS (ready to send) of a message that is still in the sender's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rts {
    pub(crate) msg_id: u32,
    /// The number of segments.
    pub(crate) count: u32,
    /// The address of the only segment, or the offset of the list in the inject pool.
    pub(crate) addr_or_offset: u64,
    /// The number of eager bounce segments: the sender fills them without a request.
    pub(crate) eager: u32,
    /// The block of special memory that holds the only segment; 0 for none.
    pub(crate) block: u64,
    /// Whether the sender lends the only segment, which is in special memory.
    pub(crate) is_lent: bool,
}

/// A violation of the protocol by a peer, with a description for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProtocolError(pub(crate) &'static str);

/// Builds the command's half of a slot's word 0.
#[inline(always)]
pub(crate) const fn head(op: u32, op_src: u32, flags: u32, len: u32) -> u32 {
    op | op_src << 8 | flags << 16 | len << 24
}

/// Returns the longest payload, in bytes, that fits into a command with or without remote data.
#[inline]
pub(crate) const fn inline_room(has_data: bool) -> usize {
    INLINE_MAX - if has_data { 8 } else { 0 }
}

impl Header {
    #[inline]
    fn head(&self, op_src: u32, more_flags: u32, len: u32) -> u32 {
        let op = match self.kind {
            Kind::Msg => 0,
            Kind::Tagged => 1,
        };
        let flags = more_flags | if self.data.is_some() { HAS_DATA } else { 0 };
        head(op, op_src, flags, len)
    }

    /// Commits a message of `len` bytes inside the command. `fill` gets the slot and the index of
    /// the first payload word, and stores the bytes from this word on.
    #[inline(always)]
    pub(crate) fn commit_inline(
        &self,
        mut slot: Slot<'_>,
        len: usize,
        fill: impl FnOnce(&mut Slot<'_>, usize),
    ) {
        debug_assert!(len <= inline_room(self.data.is_some()));
        slot.put(1, self.tag);
        let mut word = 2;
        if let Some(data) = self.data {
            slot.put(2, data);
            word = 3;
        }
        fill(&mut slot, word);
        slot.commit(self.head(SRC_INLINE, 0, len as u32));
    }

    /// Commits a message of `len` bytes at `offset` of the inject pool.
    pub(crate) fn commit_inject(
        &self,
        mut slot: Slot<'_>,
        offset: usize,
        len: usize,
        ack: Option<u32>,
    ) {
        self.put_fields(&mut slot, len as u64);
        slot.put(4, offset as u64);
        slot.put(5, u64::from(ack.unwrap_or(0)));
        slot.commit(self.head(SRC_INJECT, if ack.is_some() { ACK } else { 0 }, 0));
    }

    /// Commits the RTS of a message of `len` bytes.
    pub(crate) fn commit_iov(&self, mut slot: Slot<'_>, len: usize, rts: Rts) {
        self.put_fields(&mut slot, len as u64);
        slot.put(4, u64::from(rts.msg_id) | u64::from(rts.count) << 32);
        slot.put(5, rts.addr_or_offset);
        slot.put(6, u64::from(rts.eager));
        slot.put(7, rts.block);
        slot.commit(self.head(SRC_IOV, if rts.is_lent { LENT } else { 0 }, 0));
    }

    /// Writes the words that commands with a payload outside of the command have in common.
    fn put_fields(&self, slot: &mut Slot<'_>, len: u64) {
        slot.put(1, self.tag);
        slot.put(2, self.data.unwrap_or(0));
        slot.put(3, len);
    }
}

/// Returns the op number of a command. It is a message up to [`OP_LAST_MESSAGE`].
#[inline(always)]
pub(crate) fn op(slot: &Received<'_>) -> u32 {
    slot.head() & 0xff
}

/// Whether the command has the flag of lent messages.
#[inline(always)]
pub(crate) fn is_lent(slot: &Received<'_>) -> bool {
    slot.head() & LENT << 16 != 0
}

/// Parses the kind and length of an inline message without remote data, which the fast path takes.
/// The tag is in word 1, and the payload begins at word [`INLINE_PAYLOAD_WORD`]. `None` for another
/// command.
#[inline(always)]
pub(crate) fn parse_inline_message(slot: &Received<'_>) -> Option<(Kind, usize)> {
    let head = slot.head();
    let len = (head >> 24) as usize;
    if head & 0x00ff_fffe != 0 || len > INLINE_MAX {
        return None;
    }
    Some((message_kind(head), len))
}

/// As [`parse_inline_message`], for a message with remote data. The data are in word 2, and the
/// payload begins at word [`INLINE_PAYLOAD_WORD_WITH_DATA`].
#[inline(always)]
pub(crate) fn parse_inline_message_with_data(slot: &Received<'_>) -> Option<(Kind, usize, u64)> {
    let head = slot.head();
    let len = (head >> 24) as usize;
    if head & 0x00ff_fffe != HAS_DATA << 16 || len > inline_room(true) {
        return None;
    }
    Some((message_kind(head), len, slot.word(2)))
}

/// A message in the inject pool without acknowledgement.
#[derive(Debug)]
pub(crate) struct PooledMessage {
    pub(crate) kind: Kind,
    pub(crate) len: usize,
    pub(crate) data: Option<u64>,
    pub(crate) offset: u64,
}

/// Parses a message in the inject pool without acknowledgement: as [`parse_inline_message`], for
/// longer messages, with or without remote data.
#[inline(always)]
pub(crate) fn parse_inject_message(slot: &Received<'_>) -> Option<PooledMessage> {
    let head = slot.head();
    let has_data = head & HAS_DATA << 16 != 0;
    if head & 0x00fe_fffe != SRC_INJECT << 8 {
        return None;
    }
    Some(PooledMessage {
        kind: message_kind(head),
        len: parse_len(slot.word(3)).ok()?,
        data: has_data.then(|| slot.word(2)),
        offset: slot.word(4),
    })
}

#[inline(always)]
fn message_kind(head: u32) -> Kind {
    match head & 1 {
        0 => Kind::Msg,
        _ => Kind::Tagged,
    }
}

/// The word at which the payload of an inline message without remote data begins.
pub(crate) const INLINE_PAYLOAD_WORD: usize = 2;
/// The word at which the payload of an inline message with remote data begins.
pub(crate) const INLINE_PAYLOAD_WORD_WITH_DATA: usize = 3;

const _: () = assert!(SRC_INLINE == 0, "parse_inline_message relies on it");

/// Parses a message command of peer `src`.
#[inline]
pub(crate) fn parse(slot: &Received<'_>, src: Source) -> Result<Cmd, ProtocolError> {
    let head = slot.head();
    let kind = match op(slot) {
        0 => Kind::Msg,
        1 => Kind::Tagged,
        _ => return Err(ProtocolError("unknown op")),
    };
    let flags = head >> 16 & 0xff;
    if flags & !(HAS_DATA | ACK | LENT) != 0 {
        return Err(ProtocolError("unknown flags"));
    }
    let has_data = flags & HAS_DATA != 0;
    // An untagged receive matches only tag 0.
    let tag = match kind {
        Kind::Msg => 0,
        Kind::Tagged => slot.word(1),
    };
    let data = if has_data { slot.word(2) } else { 0 };
    let (len, body) = match head >> 8 & 0xff {
        SRC_INLINE => parse_inline_body(head, has_data)?,
        SRC_INJECT => parse_inject_body(slot, flags & ACK != 0)?,
        SRC_IOV => parse_iov_body(slot, flags & LENT != 0)?,
        _ => return Err(ProtocolError("unknown op_src")),
    };
    if flags & LENT != 0 && !matches!(body, Body::Iov(_)) {
        return Err(ProtocolError(
            "a lent message that is in the command or the pool",
        ));
    }
    let env = Envelope {
        src,
        tag,
        len,
        data,
        has_data,
    };
    Ok(Cmd { kind, env, body })
}

#[inline]
fn parse_inline_body(head: u32, has_data: bool) -> Result<(usize, Body), ProtocolError> {
    let len = (head >> 24) as usize;
    if len > inline_room(has_data) {
        return Err(ProtocolError("inline length beyond the command"));
    }
    let word = if has_data { 3 } else { 2 };
    Ok((len, Body::Inline { word }))
}

fn parse_inject_body(slot: &Received<'_>, ack: bool) -> Result<(usize, Body), ProtocolError> {
    let len = parse_len(slot.word(3))?;
    let offset = slot.word(4);
    let ack = ack.then(|| slot.word(5) as u32);
    Ok((len, Body::Inject { offset, ack }))
}

fn parse_iov_body(slot: &Received<'_>, is_lent: bool) -> Result<(usize, Body), ProtocolError> {
    let len = parse_len(slot.word(3))?;
    let word = slot.word(4);
    let (msg_id, count) = (word as u32, (word >> 32) as u32);
    if !(1..=IOV_LIMIT as u32).contains(&count) {
        return Err(ProtocolError("number of segments out of range"));
    }
    let rts = Rts {
        msg_id,
        count,
        addr_or_offset: slot.word(5),
        eager: u32::try_from(slot.word(6))
            .map_err(|_| ProtocolError("number of bounce segments out of range"))?,
        block: slot.word(7),
        is_lent,
    };
    if is_lent && (len == 0 || count != 1 || rts.eager != 0 || rts.block == 0) {
        return Err(ProtocolError(
            "a lent message that is not one segment of special memory",
        ));
    }
    Ok((len, Body::Iov(rts)))
}

/// Parses a length in bytes.
///
/// # Errors
/// [`ProtocolError`] for a length that no memory can have.
pub(crate) fn parse_len(word: u64) -> Result<usize, ProtocolError> {
    usize::try_from(word)
        .ok()
        .filter(|&len| len <= isize::MAX as usize)
        .ok_or(ProtocolError("message length out of range"))
}

#[cfg(test)]
mod tests {
    use selvedge_testkit::fuzz::fuzz;

    use super::*;
    use crate::rma;

    /// An input is the eight words of a slot, in the byte order of this machine.
    #[test]
    fn commands_of_any_bytes_are_parsed_or_refused() {
        let corpus = include_str!("../../corpus/commands.txt");
        fuzz("commands", corpus, |input| {
            let (words, _) = input.as_chunks();
            let words: [[u8; 8]; SLOT_WORDS] = words.get(..SLOT_WORDS)?.try_into().ok()?;
            Some(Received::with(words.map(u64::from_ne_bytes), |slot| {
                let one_sided = rma::cmd::InlineWrite::parse(&slot).is_some();
                let notification =
                    rma::cmd::Notification::parse(&slot).map(|notification| notification.is_some());
                let message = match parse(&slot, Source(0)) {
                    Ok(Cmd { body, env, .. }) => {
                        if let Body::Inline { .. } = body {
                            assert!(env.len <= INLINE_MAX);
                        }
                        let kind = std::mem::discriminant(&body);
                        format!("{kind:?} {}", env.has_data)
                    }
                    Err(ProtocolError(violation)) => violation.to_owned(),
                };
                (one_sided, format!("{notification:?}"), message)
            }))
        });
    }
}
