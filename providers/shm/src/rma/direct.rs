//! Direct: one-sided operations on special memory, by loads and stores of this process.
//!
//! No command, no system call, and no help of the owner: key, bounds and rights are checked against
//! its table, then the bytes are copied where they belong, all before the post returns. What was
//! looked up is kept as a *window* onto the region, and believed as long as the table's row is the
//! one that it was made from.
//!
//! The check comes before the copy and not behind it: a block that is freed meanwhile is mapped
//! here until we let go of it, and never used for anything else. What is read from it then is what
//! it held, and what is written is lost, as if the operation had come before, or after, the end.
//!
//! A region that its owner counts is not for this: the owner does what is asked, and counts.

use selvedge::rma::RmaIov;
use selvedge_kit::copy::{RxBuf, TxBuf};

use super::remote_memory::MappedRegion;
use crate::peers::peer::Peer;
use crate::smr::bytes::Span;
use crate::smr::keys::{Kind, RIGHT_READ, RIGHT_WRITE};
use crate::transfers::cmd::IOV_LIMIT;

/// Where an access goes.
#[derive(Clone, Debug)]
pub(crate) struct MappedRange {
    pub(crate) span: Span,
    pub(crate) at: usize,
}

impl Peer {
    /// Whether any special memory of the peer's is mapped here.
    #[inline]
    pub(crate) fn has_mapped_blocks(&self) -> bool {
        !self.blocks.is_empty()
    }

    /// Puts a message into the peer's memory at once, if all of it is special, mapped here, and may
    /// be written. `false`, and nothing has happened, if it has to go another way or is not allowed.
    #[inline(always)]
    pub(crate) fn write_directly(&mut self, buf: &TxBuf, rma_iov: &[RmaIov]) -> bool {
        if let [segment] = rma_iov
            && let Some((span, at)) = self.mapped_regions.find(segment, RIGHT_WRITE)
            && segment.len == buf.len()
        {
            return put(span, at, buf);
        }
        self.write_segments(buf, rma_iov)
    }

    /// Gets a message out of the peer's memory at once, likewise.
    #[inline(always)]
    pub(crate) fn read_directly(&mut self, buf: &mut RxBuf, rma_iov: &[RmaIov]) -> bool {
        if let [segment] = rma_iov
            && let Some((span, at)) = self.mapped_regions.find(segment, RIGHT_READ)
            && segment.len == buf.len()
        {
            return get(span, at, buf);
        }
        self.read_segments(buf, rma_iov)
    }

    /// Where a piece of the peer's memory is mapped here, if it is special and may be used like
    /// this.
    #[inline]
    pub(crate) fn find_mapped(&mut self, segment: &RmaIov, rights: u32) -> Option<(&Span, usize)> {
        if self.mapped_regions.find(segment, rights).is_none() {
            self.cache_region(segment, rights)?;
        }
        self.mapped_regions.find(segment, rights)
    }

    /// The same, to keep.
    #[inline]
    pub(crate) fn mapped_range(&mut self, segment: &RmaIov, rights: u32) -> Option<MappedRange> {
        let (span, at) = self.find_mapped(segment, rights)?;
        let span = span.clone();
        Some(MappedRange { span, at })
    }

    #[inline(never)]
    fn write_segments(&mut self, buf: &TxBuf, rma_iov: &[RmaIov]) -> bool {
        let Some(ranges) = self.mapped_ranges(rma_iov, buf.len(), RIGHT_WRITE) else {
            return false;
        };
        let mut done = 0;
        for (range, segment) in ranges.iter().flatten().zip(rma_iov) {
            let mut at = range.at;
            for part in buf.segments(done, segment.len) {
                let len = part.len();
                if !range.span.put(at, part) {
                    return false;
                }
                at += len;
            }
            done += segment.len;
        }
        true
    }

    #[inline(never)]
    fn read_segments(&mut self, buf: &mut RxBuf, rma_iov: &[RmaIov]) -> bool {
        let Some(ranges) = self.mapped_ranges(rma_iov, buf.len(), RIGHT_READ) else {
            return false;
        };
        let mut done = 0;
        for (range, segment) in ranges.iter().flatten().zip(rma_iov) {
            let mut at = range.at;
            for part in buf.segments(done, segment.len) {
                let len = part.len();
                if !range.span.get(at, part) {
                    return false;
                }
                at += len;
            }
            done += segment.len;
        }
        true
    }

    /// Where all pieces are, if they are as long as the message.
    fn mapped_ranges(
        &mut self,
        rma_iov: &[RmaIov],
        len: usize,
        rights: u32,
    ) -> Option<[Option<MappedRange>; IOV_LIMIT]> {
        let mut ranges = [const { None }; IOV_LIMIT];
        let mut sum = 0_usize;
        if !(1..=IOV_LIMIT).contains(&rma_iov.len()) {
            return None;
        }
        for (range, segment) in ranges.iter_mut().zip(rma_iov) {
            sum = sum.checked_add(segment.len)?;
            *range = Some(self.mapped_range(segment, rights)?);
        }
        (sum == len).then_some(ranges)
    }

    /// Looks a region up, and keeps the window onto it.
    #[cold]
    fn cache_region(&mut self, segment: &RmaIov, rights: u32) -> Option<()> {
        let grant = self.keys.check(segment, rights).ok()?;
        let row = &grant.row;
        if row.kind != Kind::Special || row.is_counted() {
            return None;
        }
        let (bytes, at) = self.blocks.find(row.block, row.memory, row.len)?;
        let span = bytes.span(at, usize::try_from(row.len).ok()?)?;
        // The row is one word of the peer, how the block is mapped another: the lesser one counts.
        let usable = match span.is_writable() {
            true => row.rights,
            false => row.rights & !RIGHT_WRITE,
        };
        if usable & rights != rights {
            return None;
        }
        let region = MappedRegion {
            key: row.key,
            start: row.start,
            rights: usable,
            span,
            row: self.keys.entry_version(&grant)?,
        };
        self.mapped_regions.keep(region);
        Some(())
    }
}

#[inline(always)]
fn put(span: &Span, at: usize, buf: &TxBuf) -> bool {
    match buf.len() {
        8 => span.put_word(at, buf.word()),
        _ => put_long(span, at, buf),
    }
}

#[inline(never)]
fn put_long(span: &Span, mut at: usize, buf: &TxBuf) -> bool {
    buf.segments(0, buf.len()).all(|part| {
        let begin = at;
        at += part.len();
        span.put(begin, part)
    })
}

#[inline(always)]
fn get(span: &Span, at: usize, buf: &mut RxBuf) -> bool {
    if buf.len() == 8
        && let Some(word) = span.word(at)
    {
        buf.write_word(word);
        return true;
    }
    get_long(span, at, buf)
}

#[inline(never)]
fn get_long(span: &Span, mut at: usize, buf: &mut RxBuf) -> bool {
    let len = buf.len();
    buf.segments(0, len).all(|part| {
        let begin = at;
        at += part.len();
        span.get(begin, part)
    })
}
