//! Lists for methods that cannot take them: the pieces are packed into one buffer before they are
//! sent, and unpacked after they have arrived.

#![expect(unsafe_code, reason = "copies from and to the application's memory")]

use std::collections::TryReserveError;

use selvedge::{Iov, IovMut};

use crate::support::ops::Keep;
use crate::{Buffer, Code, Result};

/// A list that was packed to be sent.
#[derive(Debug)]
pub(super) struct Packed {
    bytes: Vec<u8>,
    /// Where the pieces came from.
    kept: Option<Box<dyn Keep>>,
}

impl Packed {
    /// Packs `size` bytes of `pieces`.
    ///
    /// # Safety
    /// The pieces may be read during the call.
    pub(super) unsafe fn gather(pieces: &[Iov], size: usize) -> Result<Self> {
        let mut bytes = reserve(size)?;
        for piece in pieces.iter().filter(|piece| piece.len > 0) {
            // SAFETY: the caller promises that the piece may be read now.
            let part = unsafe { std::slice::from_raw_parts(piece.base.cast::<u8>(), piece.len) };
            bytes.extend_from_slice(part);
        }
        Ok(Self { bytes, kept: None })
    }

    pub(super) fn piece(&self) -> Iov {
        Iov::new(&self.bytes)
    }

    /// Keeps what the pieces lie in along.
    pub(super) fn with(mut self, kept: Option<Box<dyn Keep>>) -> Self {
        self.kept = kept;
        self
    }
}

impl Keep for Packed {
    fn arrived(&mut self, _len: usize) {}

    fn into_buffers(self: Box<Self>) -> Vec<Buffer> {
        self.kept.map_or_else(Vec::new, |kept| kept.into_buffers())
    }
}

/// Room for a message that is to be unpacked into a list.
#[derive(Debug)]
pub(super) struct Unpacked {
    bytes: Vec<u8>,
    pieces: Vec<IovMut>,
    /// What the pieces lie in.
    kept: Option<Box<dyn Keep>>,
}

impl Unpacked {
    /// Room for `size` bytes.
    ///
    /// # Safety
    /// The pieces stay valid, and nobody else reads or writes them, until this value is dropped.
    pub(super) unsafe fn room(pieces: &[IovMut], size: usize) -> Result<Self> {
        let mut bytes = reserve(size)?;
        bytes.resize(size, 0);
        Ok(Self {
            bytes,
            pieces: pieces.to_vec(),
            kept: None,
        })
    }

    pub(super) fn piece(&mut self) -> IovMut {
        IovMut::new(&mut self.bytes)
    }

    /// Keeps what the pieces lie in along.
    pub(super) fn with(mut self, kept: Option<Box<dyn Keep>>) -> Self {
        self.kept = kept;
        self
    }
}

impl Keep for Unpacked {
    fn arrived(&mut self, len: usize) {
        let mut rest = &self.bytes[..len.min(self.bytes.len())];
        for piece in self.pieces.iter().filter(|piece| piece.len > 0) {
            let (part, others) = rest.split_at(piece.len.min(rest.len()));
            // SAFETY: whoever made this value promises that the piece is valid and nobody else's;
            // `part` is no longer than it, and lies in a buffer of its own.
            unsafe {
                piece
                    .base
                    .cast::<u8>()
                    .copy_from_nonoverlapping(part.as_ptr(), part.len())
            };
            rest = others;
        }
        if let Some(kept) = &mut self.kept {
            kept.arrived(len);
        }
    }

    fn into_buffers(self: Box<Self>) -> Vec<Buffer> {
        self.kept.map_or_else(Vec::new, |kept| kept.into_buffers())
    }
}

fn reserve(size: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let refused = |_: TryReserveError| Code::ENOMEM;
    bytes.try_reserve_exact(size).map_err(refused)?;
    Ok(bytes)
}
