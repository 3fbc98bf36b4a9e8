//! Memory that the application lends to an operation.

#![expect(unsafe_code, reason = "a value that carries a promise of the caller")]

use selvedge::Iov;

/// Bytes that stay unchanged until the operation's local bell has rung, or that only the operation
/// accesses until then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Local {
    address: u64,
    len: u64,
}

impl Local {
    /// Describes bytes from `address` on.
    ///
    /// # Safety
    /// The bytes are valid, for reads or writes as the operation needs, until the operation is
    /// complete. Until then they stay unchanged, or are accessed by the operation only.
    pub(crate) unsafe fn new(address: *const u8, len: usize) -> Self {
        Self {
            address: address.expose_provenance() as u64,
            len: len as u64,
        }
    }

    pub(crate) fn address(self) -> u64 {
        self.address
    }

    pub(crate) fn len(self) -> u64 {
        self.len
    }

    pub(crate) fn iov(self) -> Iov {
        let first = std::ptr::with_exposed_provenance(self.address as usize);
        Iov::from_raw(first, self.len as usize)
    }

    /// The bytes, to be copied at once.
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        let first = std::ptr::with_exposed_provenance(self.address as usize);
        // SAFETY: the caller of `new` guarantees that the bytes are valid and unchanged.
        unsafe { std::slice::from_raw_parts(first, self.len as usize) }
    }

    /// Copies `bytes` into the memory.
    pub(crate) fn fill(self, bytes: &[u8]) {
        let len = bytes.len().min(self.len as usize);
        let first = std::ptr::with_exposed_provenance_mut::<u8>(self.address as usize);
        // SAFETY: the caller of `new` guarantees exclusive access to the bytes, which do not lie in
        // a receive buffer.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), first, len) };
    }
}
