//! The memory of a collective: the application's buffers, which its post promises, and scratch
//! memory.

#![expect(
    unsafe_code,
    reason = "memory that an endpoint writes while the layer owns it"
)]

use std::ffi::c_void;
use std::{ptr, slice};

use selvedge::shared::SharedBytes;
use selvedge::{Iov, IovMut};

use super::plan::{ALIGN, Buffer, Span, Step};
use crate::atomic::{Args, Kernel};

/// Memory of the layer that receives are posted into. Its last owner frees it.
#[derive(Debug)]
pub(super) struct Scratch {
    words: *mut [u128],
}

impl Scratch {
    pub(super) fn new(len: usize) -> Self {
        let words = vec![0_u128; len.div_ceil(ALIGN)].into_boxed_slice();
        Self {
            words: Box::into_raw(words),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.words.len() * ALIGN
    }

    pub(super) fn shared(&self) -> SharedBytes {
        // SAFETY: the memory exists until `self` is dropped. Each user of a part keeps `self`
        // (`Memory` owns it, joins and notifications keep it until their receives are complete),
        // and only `Memory::operand` makes a reference to it.
        unsafe { SharedBytes::new(self.words.cast(), self.len()) }
    }

    /// The word number `index`.
    pub(super) fn word(&self, index: usize) -> u64 {
        let mut bytes = [0; 8];
        self.shared().part(index * 8, 8).read_into(&mut bytes);
        u64::from_ne_bytes(bytes)
    }

    pub(super) fn set_word(&self, index: usize, word: u64) {
        self.shared().part(index * 8, 8).write(&word.to_ne_bytes());
    }

    /// The bytes of the word number `index`, for a post.
    pub(super) fn word_bytes(&self, index: usize) -> SharedBytes {
        self.shared().part(index * 8, 8)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw`, and no other user is left.
        drop(unsafe { Box::from_raw(self.words) });
    }
}

// SAFETY: `Scratch` owns its memory.
unsafe impl Send for Scratch {}
// SAFETY: as for `SharedBytes`: shared references read and write by copies alone, under the
// engine's lock.
unsafe impl Sync for Scratch {}

/// The application's buffers of one collective.
#[derive(Debug)]
pub(super) struct UserBuffers {
    send: SharedBytes,
    result: SharedBytes,
}

/// The buffers that the spans of a plan refer to: the application's two, and scratch memory.
#[derive(Debug)]
pub(super) struct Memory {
    user_buffers: UserBuffers,
    pub(super) scratch: Scratch,
}

impl UserBuffers {
    /// # Safety
    /// Until the value is dropped, `source_len` bytes from `buf` on are valid for reads, and
    /// `result_len` bytes from `result` on for reads and writes. Meanwhile no other code writes the
    /// former or accesses the latter.
    pub(super) unsafe fn new(
        (buf, source_len): (*const c_void, usize),
        (result, result_len): (*mut c_void, usize),
    ) -> Self {
        // SAFETY: passed on from the caller; no step writes to `Buffer::Send`.
        let send = unsafe { SharedBytes::new(buf.cast_mut().cast(), source_len) };
        // SAFETY: passed on from the caller.
        let result = unsafe { SharedBytes::new(result.cast(), result_len) };
        Self { send, result }
    }

    /// The first word of the source buffer; 0 if the buffer is empty.
    #[inline]
    pub(super) fn word(&self) -> u64 {
        let mut bytes = [0; 8];
        self.send.read_into(&mut bytes[..self.send.len().min(8)]);
        u64::from_ne_bytes(bytes)
    }

    /// Writes a word to the result buffer, unless the buffer is empty.
    #[inline]
    pub(super) fn set_word(&self, word: u64) {
        self.result
            .write(&word.to_ne_bytes()[..self.result.len().min(8)]);
    }
}

impl Memory {
    pub(super) fn new(user_buffers: UserBuffers, scratch: Scratch) -> Self {
        Self {
            user_buffers,
            scratch,
        }
    }

    pub(super) fn part(&self, span: Span) -> SharedBytes {
        let all = match span.buffer {
            Buffer::Send => self.user_buffers.send,
            Buffer::Result => self.user_buffers.result,
            Buffer::Scratch => self.scratch.shared(),
        };
        all.part(span.offset, span.len)
    }

    /// Executes a step. No message into this memory is in progress.
    pub(super) fn step(&self, step: Step, kernel: Option<&Kernel>) {
        match step {
            Step::Copy { source, target } => copy(self.part(source), self.part(target)),
            Step::Reduce { target, operand } => {
                let kernel = kernel.expect("only reductions have such steps");
                let args = Args {
                    operand: self.operand(operand),
                    compare: &[],
                    result: &mut [],
                };
                let done = kernel.apply(self.part(target), args);
                done.expect("elements are aligned in scratch memory");
            }
        }
    }

    /// The bytes of a span as a slice. No step writes them meanwhile: steps have another target.
    fn operand(&self, span: Span) -> &[u8] {
        let part = self.part(span);
        // SAFETY: the bytes are valid, and the only step that runs writes to other bytes.
        unsafe { slice::from_raw_parts(part.as_ptr(), part.len()) }
    }
}

fn copy(source: SharedBytes, target: SharedBytes) {
    assert_eq!(source.len(), target.len());
    // SAFETY: both are valid for `source.len()` bytes. They may overlap, because an application may
    // pass the same memory twice.
    unsafe { ptr::copy(source.as_ptr(), target.as_ptr(), source.len()) };
}

/// The iovec of a send.
pub(super) fn iov(part: SharedBytes) -> Iov {
    Iov::from_raw(part.as_ptr().cast(), part.len())
}

/// The iovec of a receive.
pub(super) fn iov_mut(part: SharedBytes) -> IovMut {
    IovMut::from_raw(part.as_ptr().cast(), part.len())
}
