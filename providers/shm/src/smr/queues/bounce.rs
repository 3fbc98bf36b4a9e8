//! Bounce memory: segments through which a large message is copied in and out again.
//!
//! The producer owns the segments. It announces each filled segment through a ring of
//! announcements, which is separate from the command queue, so large and small messages do not
//! delay each other. The consumer may keep a segment. It returns segments by number, in any order,
//! through the response queue.
//!
//! # Examples
//!
//! ```
//! use std::mem::MaybeUninit;
//!
//! use selvedge_shm::smr::bounce::{BounceReceiver, BounceSender, Shape};
//!
//! let shape = Shape { count: 2, size: 4096 };
//! let mut sender = BounceSender::create(None, shape)?;
//! let fd = sender.memory().fd().try_clone_to_owned().expect("a spare descriptor");
//! let mut receiver = BounceReceiver::attach(fd, shape)?;
//!
//! let copied = sender.fill(7, 5, |segments, at, len| segments.copy_in(at, &b"hello"[..len]));
//! assert_eq!((copied, sender.free()), (5, 1));
//!
//! let filled = receiver.peek().expect("a valid announcement").expect("it was filled");
//! let mut bytes = [MaybeUninit::uninit(); 5];
//! assert_eq!(receiver.bytes().copy_out(receiver.start(filled), &mut bytes), b"hello");
//! receiver.take();
//! assert!(sender.free_segment(filled.segment));
//! # Ok::<(), selvedge::Error>(())
//! ```

use std::os::fd::OwnedFd;

use selvedge::Error;
use selvedge_kit::numa::NodeId;

use crate::smr::memory::bytes::Bytes;
use crate::smr::memory::mapping::{Memory, Writers, map_peer_memory};
use crate::smr::sync::{Ordering, Words, order};

/// The number and the size of the segments of bounce memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The number of segments.
    pub count: usize,
    /// The size of one segment in bytes.
    pub size: usize,
}

/// A filled segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filled {
    /// The `msg_id` of the message whose bytes the segment holds.
    pub msg_id: u32,
    /// The number of the segment.
    pub segment: u32,
    /// The number of bytes of the message in the segment.
    pub len: u32,
}

/// The producer of bounce segments.
#[derive(Debug)]
pub struct BounceSender {
    memory: Memory,
    ring: Words,
    segments: Bytes,
    shape: Shape,
    /// Position of the next announcement.
    head: u64,
    /// Numbers of the free segments.
    free: Vec<u32>,
}

/// The consumer of bounce segments.
#[derive(Debug)]
pub struct BounceReceiver {
    ring: Words,
    segments: Bytes,
    shape: Shape,
    /// Position of the next announcement.
    tail: u64,
}

impl Shape {
    /// Whether the shape is within the limits for peers.
    pub fn is_sane(self) -> bool {
        (1..=1024).contains(&self.count)
            && (64..=16 << 20).contains(&self.size)
            && self.size.is_multiple_of(64)
    }

    /// Returns the number of announcements in the ring: a segment has at most one.
    fn ring_len(self) -> usize {
        self.count.next_power_of_two()
    }

    fn segments_offset(self) -> usize {
        (self.ring_len() * 16).next_multiple_of(4096)
    }

    fn total(self) -> usize {
        (self.segments_offset() + self.count * self.size).next_multiple_of(4096)
    }
}

impl BounceSender {
    /// Creates bounce memory with all segments free, on a NUMA node if one is given and has free
    /// pages.
    ///
    /// # Errors
    /// The system's error when memory is short.
    pub fn create(node: Option<NodeId>, shape: Shape) -> Result<Self, Error> {
        let memory = Memory::create_on(node, shape.total(), Writers::Owner)?;
        memory.mapping().exclude_from_fork();
        let mapping = memory.mapping();
        Ok(Self {
            ring: Words::new(mapping.clone(), 0, shape.ring_len() * 2),
            segments: Bytes::new(
                mapping.clone(),
                shape.segments_offset(),
                shape.count * shape.size,
            ),
            memory,
            shape,
            head: 0,
            free: (0..shape.count as u32).rev().collect(),
        })
    }

    /// Returns the memory to send to the peer.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns the number and the size of the segments.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns the number of free segments.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Fills the next free segment and announces it. `copy` gets the memory, the segment's offset
    /// and the number of bytes to copy: `len`, or the size of a segment if that is less. Returns
    /// this number, or 0 if no segment is free.
    pub fn fill(
        &mut self,
        msg_id: u32,
        len: usize,
        copy: impl FnOnce(&Bytes, usize, usize),
    ) -> usize {
        let Some(segment) = self.free.pop() else {
            return 0;
        };
        let len = len.min(self.shape.size);
        copy(&self.segments, segment as usize * self.shape.size, len);
        self.announce(Filled {
            msg_id,
            segment,
            len: len as u32,
        });
        len
    }

    /// Frees a segment that the peer returns. Returns `false` for a segment that the peer does not
    /// have.
    #[must_use]
    pub fn free_segment(&mut self, segment: u32) -> bool {
        let is_invalid = segment as usize >= self.shape.count || self.free.contains(&segment);
        if !is_invalid {
            self.free.push(segment);
        }
        !is_invalid
    }

    fn announce(&mut self, filled: Filled) {
        let first = (self.head as usize & (self.shape.ring_len() - 1)) * 2;
        let content = u64::from(filled.msg_id) | u64::from(filled.segment) << 32;
        self.ring.word(first + 1).store(content, Ordering::Relaxed);
        let stamp = (self.head + 1) << 32 | u64::from(filled.len);
        self.ring.word(first).store(stamp, order::commit());
        self.head += 1;
    }
}

impl BounceReceiver {
    /// Maps bounce memory that a peer has sent.
    ///
    /// # Errors
    /// [`selvedge::Errno::Proto`] when the shape or the memory is not valid.
    pub fn attach(fd: OwnedFd, shape: Shape) -> Result<Self, Error> {
        if !shape.is_sane() {
            let reason =
                format!("a peer's bounce memory was refused: its shape is out of range: {shape:?}");
            return Err(Error::new(selvedge::Errno::Proto, reason));
        }
        let mapping = map_peer_memory(fd, shape.total(), false)?;
        mapping.exclude_from_fork();
        let len = shape.count * shape.size;
        Ok(Self {
            ring: Words::new(mapping.clone(), 0, shape.ring_len() * 2),
            segments: Bytes::new(mapping, shape.segments_offset(), len),
            shape,
            tail: 0,
        })
    }

    /// Returns the number and the size of the segments.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns the next announcement without consuming it; `None` if there is none.
    ///
    /// # Errors
    /// A description of the defect for a malformed announcement.
    pub fn peek(&self) -> Result<Option<Filled>, &'static str> {
        let first = (self.tail as usize & (self.shape.ring_len() - 1)) * 2;
        let stamp = self.ring.word(first).load(order::observe());
        if (stamp >> 32) as u32 != (self.tail + 1) as u32 {
            return Ok(None);
        }
        let content = self.ring.word(first + 1).load(Ordering::Relaxed);
        let filled = Filled {
            msg_id: content as u32,
            segment: (content >> 32) as u32,
            len: stamp as u32,
        };
        if filled.segment as usize >= self.shape.count || filled.len as usize > self.shape.size {
            return Err("a bounce segment outside the bounce memory");
        }
        Ok(Some(filled))
    }

    /// Consumes the announcement that [`Self::peek`] has returned.
    pub fn take(&mut self) {
        self.tail += 1;
    }

    /// Returns the bytes of all segments. Those of a segment begin at [`Self::start`].
    pub fn bytes(&self) -> &Bytes {
        &self.segments
    }

    /// Returns the offset of a segment.
    pub fn start(&self, filled: Filled) -> usize {
        filled.segment as usize * self.shape.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { count: 3, size: 64 };

    fn memory() -> (BounceSender, BounceReceiver) {
        let sender = BounceSender::create(None, SHAPE).unwrap();
        let fd = sender.memory().fd().try_clone_to_owned().unwrap();
        (sender, BounceReceiver::attach(fd, SHAPE).unwrap())
    }

    fn fill(sender: &mut BounceSender, msg_id: u32) -> usize {
        sender.fill(msg_id, 1000, |_, _, _| {})
    }

    #[test]
    fn segments_are_freed_in_any_order() {
        let (mut sender, mut receiver) = memory();
        let mut held = Vec::new();
        for msg_id in 0..10 {
            assert_eq!(fill(&mut sender, msg_id), SHAPE.size);
            let filled = receiver.peek().unwrap().unwrap();
            assert_eq!((filled.msg_id, filled.len), (msg_id, 64));
            receiver.take();
            held.push(filled.segment);
            if held.len() == 3 {
                assert_eq!(fill(&mut sender, 99), 0, "none is free");
                assert!(sender.free_segment(held.remove(1)));
            }
        }
        assert_eq!(receiver.peek(), Ok(None));
    }

    #[test]
    fn a_segment_is_freed_once() {
        let (mut sender, _) = memory();
        fill(&mut sender, 0);
        assert!(!sender.free_segment(3));
        assert!(!sender.free_segment(u32::MAX));
        assert!(sender.free_segment(0));
        assert!(!sender.free_segment(0), "it is free");
        assert_eq!(sender.free(), 3);
    }

    #[test]
    fn a_segment_outside_the_bounce_memory_is_an_error() {
        for (segment, len) in [(3, 1), (u32::MAX, 1), (0, 65), (0, u32::MAX)] {
            let (mut sender, receiver) = memory();
            sender.announce(Filled {
                msg_id: 0,
                segment,
                len,
            });
            assert!(receiver.peek().is_err());
        }
    }
}
