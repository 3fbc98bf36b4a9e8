//! `SendVecs` and `RecvVecs`: lists of memory segments (iovec). System calls send from the segments
//! and receive into them, and TLS sessions copy from and to them.

#![expect(unsafe_code, reason = "memory that is not a slice")]

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use selvedge::shared::{Margins, SharedBytes};
use selvedge_kit::mr::Regions;

/// The maximum number of segments of one system call.
pub(crate) const VECS: usize = 64;

/// A list of memory segments for one system call: bytes to send, or buffers to receive into.
pub(crate) struct Vecs<'a> {
    list: [libc::iovec; VECS],
    /// For each segment of registered memory, the margins around it inside its region.
    shared: [Option<Margins>; VECS],
    count: usize,
    bytes: usize,
    memory: PhantomData<&'a mut [u8]>,
}

/// Segments to receive into.
pub(crate) struct RecvVecs<'a>(pub(crate) Vecs<'a>);

/// Segments to send.
pub(crate) struct SendVecs<'a>(pub(crate) Vecs<'a>);

impl Vecs<'_> {
    const fn new() -> Self {
        const EMPTY: libc::iovec = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        Self {
            list: [EMPTY; VECS],
            shared: [None; VECS],
            count: 0,
            bytes: 0,
            memory: PhantomData,
        }
    }

    fn push(&mut self, base: *mut u8, len: usize) -> bool {
        self.push_segment(base, len, None)
    }

    fn push_shared(&mut self, memory: SharedBytes) -> bool {
        self.push_segment(memory.as_ptr(), memory.len(), Some(memory.margins()))
    }

    fn push_segment(&mut self, base: *mut u8, len: usize, shared: Option<Margins>) -> bool {
        let Some(entry) = self.list.get_mut(self.count) else {
            return false;
        };
        self.shared[self.count] = shared;
        *entry = libc::iovec {
            iov_base: base.cast(),
            iov_len: len,
        };
        self.count += 1;
        self.bytes += len;
        true
    }

    /// Iterates the `len` bytes from offset `offset`, or as many as exist, as segments.
    fn segments(&self, offset: usize, len: usize) -> impl Iterator<Item = Segment> {
        let (mut skip, mut remaining) = (offset, len);
        let all = self.list().iter().zip(&self.shared);
        all.map_while(move |(segment, shared)| {
            let skipped = skip.min(segment.iov_len);
            let len = remaining.min(segment.iov_len - skipped);
            skip -= skipped;
            remaining -= len;
            (len > 0 || remaining > 0).then(|| Segment::new(segment, *shared, skipped, len))
        })
    }

    /// Returns the segments in use.
    pub(crate) fn list(&self) -> &[libc::iovec] {
        &self.list[..self.count]
    }

    /// Returns the message header for a system call. The header points to the list, and is valid as
    /// long as the list.
    pub(crate) fn header(&mut self) -> libc::msghdr {
        // SAFETY: all zeros are a header without address, memory and control data.
        let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        header.msg_iov = self.list.as_mut_ptr();
        header.msg_iovlen = self.count as _;
        header
    }
}

/// A part of a list entry.
enum Segment {
    Private(*mut u8, usize),
    Shared(SharedBytes),
}

impl Segment {
    /// Returns `len` bytes of an entry after the first `skipped` bytes.
    fn new(entry: &libc::iovec, shared: Option<Margins>, skipped: usize, len: usize) -> Self {
        let first: *mut u8 = entry.iov_base.cast();
        match shared {
            // SAFETY: `push_shared` made the entry from a `SharedBytes` with these margins, and the
            // list borrows the regions.
            Some(margins) => Self::Shared(
                unsafe { SharedBytes::within(first, entry.iov_len, margins) }.part(skipped, len),
            ),
            None => Self::Private(first.wrapping_add(skipped), len),
        }
    }

    const fn len(&self) -> usize {
        match self {
            Self::Private(_, len) => *len,
            Self::Shared(memory) => memory.len(),
        }
    }
}

impl<'a> SendVecs<'a> {
    pub(crate) const fn new() -> Self {
        Self(Vecs::new())
    }

    /// Adds bytes. Returns false when the list is full.
    pub(crate) fn push(&mut self, bytes: &'a [u8]) -> bool {
        self.0.push(bytes.as_ptr().cast_mut(), bytes.len())
    }

    /// Adds registered memory, which stays registered while `_held` is borrowed. Returns false when
    /// the list is full.
    pub(crate) fn push_shared(&mut self, memory: SharedBytes, _held: &'a Regions<'_>) -> bool {
        self.0.push_shared(memory)
    }

    /// The total number of bytes.
    pub(crate) const fn len(&self) -> usize {
        self.0.bytes
    }
}

impl SendVecs<'_> {
    /// Fills `out` with the bytes from offset `offset`.
    pub(crate) fn copy(&self, offset: usize, out: &mut [u8]) {
        let mut out = out;
        for src in self.0.segments(offset, out.len()) {
            let (dest, rest) = std::mem::take(&mut out).split_at_mut(src.len());
            out = rest;
            match src {
                Segment::Shared(src) => src.read_into(dest),
                // SAFETY: `SendVecs` borrows the memory that its list names, and `dest` has the
                // same length.
                Segment::Private(src, len) => unsafe { src.copy_to(dest.as_mut_ptr(), len) },
            }
        }
    }
}

impl RecvVecs<'_> {
    /// Copies bytes into the segments from offset `offset`. The segments must be long enough.
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) {
        let mut bytes = bytes;
        for dest in self.0.segments(offset, bytes.len()) {
            let (src, rest) = bytes.split_at(dest.len());
            bytes = rest;
            match dest {
                Segment::Shared(dest) => dest.write(src),
                // SAFETY: `RecvVecs` borrows the memory that its list names exclusively. `src` has
                // the same length, and is memory of a TLS session.
                Segment::Private(dest, len) => unsafe { dest.copy_from(src.as_ptr(), len) },
            }
        }
    }
}

impl<'a> RecvVecs<'a> {
    pub(crate) const fn new() -> Self {
        Self(Vecs::new())
    }

    /// Adds uninitialised memory. Returns false when the list is full.
    pub(crate) fn push(&mut self, memory: &'a mut [MaybeUninit<u8>]) -> bool {
        self.0.push(memory.as_mut_ptr().cast(), memory.len())
    }

    /// Adds initialised memory. Returns false when the list is full.
    pub(crate) fn push_bytes(&mut self, memory: &'a mut [u8]) -> bool {
        self.0.push(memory.as_mut_ptr(), memory.len())
    }

    /// Adds registered memory, which stays registered while `_held` is borrowed. Returns false when
    /// the list is full.
    pub(crate) fn push_shared(&mut self, memory: SharedBytes, _held: &'a Regions<'_>) -> bool {
        self.0.push_shared(memory)
    }

    /// The total number of bytes.
    pub(crate) const fn len(&self) -> usize {
        self.0.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registered_memory_is_filled_and_sent_like_private_memory() {
        let keys = selvedge_kit::mr::Keys::new(selvedge::MrMode::empty());
        let regions = keys.regions();
        let words = [const { std::sync::atomic::AtomicU64::new(0) }; 4];
        // SAFETY: the words are reached through this region and by atomics of their size.
        let region = unsafe { SharedBytes::new(words.as_ptr().cast_mut().cast(), 29) };
        let bytes: Vec<u8> = (1..=20).collect();
        for offset in 0..9 {
            let (mut before, mut after) = ([0; 3], [0; 4]);
            let mut vecs = RecvVecs::new();
            assert!(vecs.push_bytes(&mut before));
            assert!(vecs.push_shared(region.part(offset, 13), &regions));
            assert!(vecs.push_bytes(&mut after));
            vecs.write(0, &bytes);
            let mut written = [0; 13];
            region.part(offset, 13).read_into(&mut written);
            assert_eq!([&before[..], &written, &after].concat(), bytes);

            let mut vecs = SendVecs::new();
            assert!(vecs.push(&before) && vecs.push_shared(region.part(offset, 13), &regions));
            let mut out = [0; 14];
            vecs.copy(1, &mut out);
            assert_eq!(out, bytes[1..15]);
        }
    }

    #[test]
    fn bytes_are_copied_out_of_and_into_segments_at_every_offset() {
        let bytes: Vec<u8> = (0..40).collect();
        let cuts = [&bytes[..7], &[], &bytes[7..8], &bytes[8..40]];
        for offset in 0..40 {
            for end in offset..=40 {
                let mut vecs = SendVecs::new();
                assert!(cuts.iter().all(|cut| vecs.push(cut)));
                let mut out = vec![0; end - offset];
                vecs.copy(offset, &mut out);
                assert_eq!(out, bytes[offset..end]);

                let (mut first, mut second, mut third) = ([0; 9], [0; 0], [0; 31]);
                let mut vecs = RecvVecs::new();
                assert!(vecs.push_bytes(&mut first) && vecs.push_bytes(&mut second));
                assert!(vecs.push_bytes(&mut third));
                vecs.write(offset, &out);
                let whole = [&first[..], &third].concat();
                assert_eq!(whole[offset..end], out);
                let untouched = whole[..offset].iter().chain(&whole[end..]);
                assert!(untouched.copied().all(|byte| byte == 0));
            }
        }
    }
}
