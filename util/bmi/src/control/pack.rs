//! Packing for methods without list support: segments are gathered into one buffer before a send
//! and scattered after a receive.

#![expect(unsafe_code, reason = "copies from and to the application's memory")]

use std::collections::TryReserveError;

use selvedge::{Iov, IovMut};

use crate::support::ops::Retained;
use crate::{Buffer, Code, Result};

/// A buffer with the packed segments of a send.
#[derive(Debug)]
pub(super) struct Packed {
    bytes: Vec<u8>,
    /// Owner of the original segments.
    retained: Option<Box<dyn Retained>>,
}

impl Packed {
    /// Packs the `size` bytes of `segments`.
    ///
    /// # Safety
    /// The segments are readable during the call.
    pub(super) unsafe fn gather(segments: &[Iov], size: usize) -> Result<Self> {
        let mut bytes = reserve(size)?;
        for segment in segments.iter().filter(|segment| segment.len > 0) {
            // SAFETY: the caller guarantees that the segment is readable now.
            let part =
                unsafe { std::slice::from_raw_parts(segment.base.cast::<u8>(), segment.len) };
            bytes.extend_from_slice(part);
        }
        Ok(Self {
            bytes,
            retained: None,
        })
    }

    pub(super) fn segment(&self) -> Iov {
        Iov::new(&self.bytes)
    }

    /// Also retains the owner of the original segments.
    pub(super) fn with(mut self, retained: Option<Box<dyn Retained>>) -> Self {
        self.retained = retained;
        self
    }
}

impl Retained for Packed {
    fn received(&mut self, _len: usize) {}

    fn into_buffers(self: Box<Self>) -> Vec<Buffer> {
        self.retained
            .map_or_else(Vec::new, |retained| retained.into_buffers())
    }
}

/// A buffer that receives a message before it is scattered into a segment list.
#[derive(Debug)]
pub(super) struct Unpacked {
    bytes: Vec<u8>,
    segments: Vec<IovMut>,
    /// Owner of the segments.
    retained: Option<Box<dyn Retained>>,
}

impl Unpacked {
    /// Allocates a buffer of `size` bytes.
    ///
    /// # Safety
    /// The segments stay valid, and no other code reads or writes them, until this value is
    /// dropped.
    pub(super) unsafe fn new(segments: &[IovMut], size: usize) -> Result<Self> {
        let mut bytes = reserve(size)?;
        bytes.resize(size, 0);
        Ok(Self {
            bytes,
            segments: segments.to_vec(),
            retained: None,
        })
    }

    pub(super) fn segment(&mut self) -> IovMut {
        IovMut::new(&mut self.bytes)
    }

    /// Also retains the owner of the segments.
    pub(super) fn with(mut self, retained: Option<Box<dyn Retained>>) -> Self {
        self.retained = retained;
        self
    }
}

impl Retained for Unpacked {
    fn received(&mut self, len: usize) {
        let mut rest = &self.bytes[..len.min(self.bytes.len())];
        for segment in self.segments.iter().filter(|segment| segment.len > 0) {
            let (part, others) = rest.split_at(segment.len.min(rest.len()));
            // SAFETY: the caller of `new` guarantees that the segment is valid and exclusive.
            // `part` is no longer than the segment and lies in a separate buffer.
            unsafe {
                segment
                    .base
                    .cast::<u8>()
                    .copy_from_nonoverlapping(part.as_ptr(), part.len())
            };
            rest = others;
        }
        if let Some(retained) = &mut self.retained {
            retained.received(len);
        }
    }

    fn into_buffers(self: Box<Self>) -> Vec<Buffer> {
        self.retained
            .map_or_else(Vec::new, |retained| retained.into_buffers())
    }
}

fn reserve(size: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let no_memory = |_: TryReserveError| Code::ENOMEM;
    bytes.try_reserve_exact(size).map_err(no_memory)?;
    Ok(bytes)
}
