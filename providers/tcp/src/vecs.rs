//! Lists of stretches of memory, for system calls that send from them or receive into them.

#![expect(unsafe_code, reason = "a header that is all zeros")]

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use selvedge_kit::copy::Shared;
use selvedge_kit::mr::Regions;

/// Stretches of memory that one system call takes.
pub(crate) const VECS: usize = 64;

/// A list of stretches of memory for one system call: bytes to send, or places for what comes.
pub(crate) struct Vecs<'a> {
    list: [libc::iovec; VECS],
    count: usize,
    bytes: usize,
    memory: PhantomData<&'a mut [u8]>,
}

/// Stretches that are filled with what comes.
pub(crate) struct Room<'a>(pub(crate) Vecs<'a>);

/// Stretches that are sent.
pub(crate) struct Load<'a>(pub(crate) Vecs<'a>);

impl Vecs<'_> {
    const fn new() -> Self {
        const EMPTY: libc::iovec = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        Self {
            list: [EMPTY; VECS],
            count: 0,
            bytes: 0,
            memory: PhantomData,
        }
    }

    fn push(&mut self, base: *mut u8, len: usize) -> bool {
        let Some(place) = self.list.get_mut(self.count) else {
            return false;
        };
        *place = libc::iovec {
            iov_base: base.cast(),
            iov_len: len,
        };
        self.count += 1;
        self.bytes += len;
        true
    }

    /// The stretches so far.
    pub(crate) fn list(&self) -> &[libc::iovec] {
        &self.list[..self.count]
    }

    /// What a system call takes; good as long as the list is.
    pub(crate) fn header(&mut self) -> libc::msghdr {
        // SAFETY: all zeros are a header without address, memory and control data.
        let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        header.msg_iov = self.list.as_mut_ptr();
        header.msg_iovlen = self.count as _;
        header
    }
}

impl<'a> Load<'a> {
    pub(crate) const fn new() -> Self {
        Self(Vecs::new())
    }

    /// Adds bytes; whether there was room for one more stretch.
    pub(crate) fn push(&mut self, bytes: &'a [u8]) -> bool {
        self.0.push(bytes.as_ptr().cast_mut(), bytes.len())
    }

    /// Adds registered memory, which stays that as long as the regions are looked at.
    pub(crate) fn push_shared(&mut self, part: Shared, _held: &'a Regions<'_>) -> bool {
        self.0.push(part.as_ptr(), part.len())
    }

    /// Bytes of all.
    pub(crate) const fn len(&self) -> usize {
        self.0.bytes
    }
}

impl<'a> Room<'a> {
    pub(crate) const fn new() -> Self {
        Self(Vecs::new())
    }

    /// Adds memory; whether there was room for one more stretch.
    pub(crate) fn push(&mut self, memory: &'a mut [MaybeUninit<u8>]) -> bool {
        self.0.push(memory.as_mut_ptr().cast(), memory.len())
    }

    /// Adds memory that may be read at any time.
    pub(crate) fn push_bytes(&mut self, memory: &'a mut [u8]) -> bool {
        self.0.push(memory.as_mut_ptr(), memory.len())
    }

    /// Adds registered memory, which stays that as long as the regions are looked at.
    pub(crate) fn push_shared(&mut self, part: Shared, _held: &'a Regions<'_>) -> bool {
        self.0.push(part.as_ptr(), part.len())
    }

    /// Bytes of all.
    pub(crate) const fn len(&self) -> usize {
        self.0.bytes
    }
}
