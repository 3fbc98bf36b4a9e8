//! `SmallFrame`: a short frame in memory of its own.

use crate::wire::HEADER;

/// The length of the longest message in memory of its own, in bytes. A longer one is in a buffer of
/// a pool: a pool costs several atomic exchanges, which take as long as a copy of so many bytes.
const SMALL_MAX: usize = 512;
/// The alignment of headers and messages, on which values of plain data rely.
const ALIGN: usize = 32;
/// The length of the longest [`SmallFrame`], in bytes.
pub(crate) const SMALL_FRAME_MAX: usize = HEADER + SMALL_MAX;

/// A header, or the room for one, and a message of up to 512 bytes.
pub(crate) struct SmallFrame {
    memory: Vec<u8>,
    /// The offset of the header, at which the address is aligned.
    start: usize,
}

impl SmallFrame {
    /// A frame with room for a header and a copy of `bytes`; `None` for too many bytes.
    pub(crate) fn with_message(bytes: &[u8]) -> Option<Self> {
        let mut frame = Self::empty(bytes.len())?;
        frame.memory.resize(frame.start + HEADER, 0);
        frame.memory.extend_from_slice(bytes);
        Some(frame)
    }

    /// A frame with room for a header and `len` zeros; `None` for too many bytes.
    pub(crate) fn zeroed(len: usize) -> Option<Self> {
        let mut frame = Self::empty(len)?;
        frame.memory.resize(frame.start + HEADER + len, 0);
        Some(frame)
    }

    /// A copy of a frame that has arrived; `None` for a long one.
    pub(crate) fn copied(frame: &[u8]) -> Option<Self> {
        let mut small = Self::empty(frame.len().checked_sub(HEADER)?)?;
        small.memory.extend_from_slice(frame);
        Some(small)
    }

    /// Memory for a message of `len` bytes, of which only those before the header exist. It has the
    /// capacity for the rest, and so it keeps its address.
    fn empty(len: usize) -> Option<Self> {
        if len > SMALL_MAX {
            return None;
        }
        let mut memory: Vec<u8> = Vec::with_capacity(ALIGN + HEADER + len);
        let start = memory.as_ptr().align_offset(ALIGN).min(ALIGN);
        memory.resize(start, 0);
        Some(Self { memory, start })
    }

    /// The header and the message.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.memory.get(self.start..).unwrap_or_default()
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.get_mut(self.start..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_message_is_aligned_as_one_in_a_pool() {
        for len in 0..=SMALL_MAX {
            let message: Vec<u8> = (0..len).map(|index| index as u8).collect();
            let frame = SmallFrame::with_message(&message).unwrap();
            assert!(frame.bytes().as_ptr().addr().is_multiple_of(ALIGN));
            assert_eq!(frame.bytes()[HEADER..], message);
            let copy = SmallFrame::copied(frame.bytes()).unwrap();
            assert!(copy.bytes().as_ptr().addr().is_multiple_of(ALIGN));
            assert_eq!(copy.bytes(), frame.bytes());
            let zeroed = SmallFrame::zeroed(len).unwrap();
            assert_eq!(zeroed.bytes(), vec![0; HEADER + len]);
        }
        assert!(SmallFrame::zeroed(SMALL_MAX + 1).is_none());
        assert!(SmallFrame::copied(&[0; HEADER - 1]).is_none());
    }
}
