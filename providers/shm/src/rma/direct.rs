//! Direct one-sided operations: loads and stores of this process on a peer's special memory.
//!
//! A direct operation needs no command, no system call and no progress of the owner. The initiator
//! checks key, bounds and rights against the owner's key table and copies the bytes before the post
//! returns. The result of the lookup is cached as a [`MappedRegion`], which is valid until the
//! entry of the key table changes.
//!
//! The check precedes the copy and is not repeated after the copy. If the owner frees the block
//! meanwhile, the block stays mapped in this process until this process unmaps it, and its pages
//! are never reused. A read then returns the block's last content, as if it had preceded the free.
//! A write is lost, as if it had followed the free.
//!
//! A region with a counter is not accessed directly: the owner executes the operation, and counts
//! it.

use selvedge::rma::RmaIov;
use selvedge_kit::copy::{RxBuf, TxBuf};

use super::remote_memory::MappedRegion;
use crate::peers::peer::Peer;
use crate::smr::bytes::Span;
use crate::smr::keys::{Kind, RIGHT_READ, RIGHT_WRITE};
use crate::transfers::cmd::IOV_LIMIT;

/// A range of mapped special memory.
#[derive(Clone, Debug)]
pub(crate) struct MappedRange {
    pub(crate) span: Span,
    /// The offset of the first byte in the span.
    pub(crate) offset: usize,
}

impl Peer {
    /// Whether this process has mapped any special memory of the peer.
    #[inline]
    pub(crate) fn has_mapped_blocks(&self) -> bool {
        !self.blocks.is_empty()
    }

    /// Copies `buf` to the peer's memory if all segments are mapped special memory that may be
    /// written. Otherwise returns `false` without effect.
    #[inline(always)]
    pub(crate) fn write_directly(&mut self, buf: &TxBuf, rma_iov: &[RmaIov]) -> bool {
        if let [segment] = rma_iov
            && let Some((span, offset)) = self.mapped_regions.find(segment, RIGHT_WRITE)
            && segment.len == buf.len()
        {
            return put(span, offset, buf);
        }
        self.write_segments(buf, rma_iov)
    }

    /// Copies the peer's memory to `buf` if all segments are mapped special memory that may be
    /// read. Otherwise returns `false` without effect.
    #[inline(always)]
    pub(crate) fn read_directly(&mut self, buf: &mut RxBuf, rma_iov: &[RmaIov]) -> bool {
        if let [segment] = rma_iov
            && let Some((span, offset)) = self.mapped_regions.find(segment, RIGHT_READ)
            && segment.len == buf.len()
        {
            return get(span, offset, buf);
        }
        self.read_segments(buf, rma_iov)
    }

    /// Finds a segment of the peer's memory in its mapping, if the segment is special memory and
    /// grants `rights`. Returns the mapped span and the segment's offset in the span.
    #[inline]
    pub(crate) fn find_mapped(&mut self, segment: &RmaIov, rights: u32) -> Option<(&Span, usize)> {
        if self.mapped_regions.find(segment, rights).is_none() {
            self.cache_region(segment, rights)?;
        }
        self.mapped_regions.find(segment, rights)
    }

    /// As [`Self::find_mapped`], with a copy of the span.
    #[inline]
    pub(crate) fn mapped_range(&mut self, segment: &RmaIov, rights: u32) -> Option<MappedRange> {
        let (span, offset) = self.find_mapped(segment, rights)?;
        let span = span.clone();
        Some(MappedRange { span, offset })
    }

    /// [`Self::write_directly`] for several segments, or for one that is not cached.
    #[inline(never)]
    fn write_segments(&mut self, buf: &TxBuf, rma_iov: &[RmaIov]) -> bool {
        let Some(ranges) = self.mapped_ranges(rma_iov, buf.len(), RIGHT_WRITE) else {
            return false;
        };
        let mut copied = 0;
        for (range, segment) in ranges.iter().flatten().zip(rma_iov) {
            let mut offset = range.offset;
            for part in buf.segments(copied, segment.len) {
                let len = part.len();
                if !range.span.put(offset, part) {
                    return false;
                }
                offset += len;
            }
            copied += segment.len;
        }
        true
    }

    /// [`Self::read_directly`] for several segments, or for one that is not cached.
    #[inline(never)]
    fn read_segments(&mut self, buf: &mut RxBuf, rma_iov: &[RmaIov]) -> bool {
        let Some(ranges) = self.mapped_ranges(rma_iov, buf.len(), RIGHT_READ) else {
            return false;
        };
        let mut copied = 0;
        for (range, segment) in ranges.iter().flatten().zip(rma_iov) {
            let mut offset = range.offset;
            for part in buf.segments(copied, segment.len) {
                let len = part.len();
                if !range.span.get(offset, part) {
                    return false;
                }
                offset += len;
            }
            copied += segment.len;
        }
        true
    }

    /// Finds the mapped ranges of all segments, if their lengths add up to `len`.
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

    /// Looks a region up in the peer's key table, and caches its mapping.
    #[cold]
    fn cache_region(&mut self, segment: &RmaIov, rights: u32) -> Option<()> {
        let grant = self.keys.check(segment, rights).ok()?;
        let entry = &grant.entry;
        if entry.kind != Kind::Special || entry.is_counted() {
            return None;
        }
        let (bytes, offset) = self.blocks.find(entry.block, entry.memory, entry.len)?;
        let span = bytes.span(offset, usize::try_from(entry.len).ok()?)?;
        // The entry's rights and the mapping's protection come from two messages of the peer. Only
        // rights that both grant apply.
        let granted = if span.is_writable() {
            entry.rights
        } else {
            entry.rights & !RIGHT_WRITE
        };
        if granted & rights != rights {
            return None;
        }
        let region = MappedRegion {
            key: entry.key,
            start: entry.start,
            rights: granted,
            span,
            version: self.keys.entry_version(&grant)?,
        };
        self.mapped_regions.keep(region);
        Some(())
    }
}

#[inline(always)]
fn put(span: &Span, offset: usize, buf: &TxBuf) -> bool {
    match buf.len() {
        8 => span.put_word(offset, buf.word()),
        _ => put_long(span, offset, buf),
    }
}

#[inline(never)]
fn put_long(span: &Span, mut offset: usize, buf: &TxBuf) -> bool {
    buf.segments(0, buf.len()).all(|part| {
        let start = offset;
        offset += part.len();
        span.put(start, part)
    })
}

#[inline(always)]
fn get(span: &Span, offset: usize, buf: &mut RxBuf) -> bool {
    if buf.len() == 8
        && let Some(word) = span.word(offset)
    {
        buf.write_word(word);
        return true;
    }
    get_long(span, offset, buf)
}

#[inline(never)]
fn get_long(span: &Span, mut offset: usize, buf: &mut RxBuf) -> bool {
    let len = buf.len();
    buf.segments(0, len).all(|part| {
        let start = offset;
        offset += part.len();
        span.get(start, part)
    })
}
