//! Special memory: memory of this context that others access by loads and stores.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use selvedge::owned::SharedRegion;

use crate::Result;
use crate::core::Core;

/// Memory of this context that other contexts put into and get from directly.
///
/// Puts and gets may name any address in it. When an initiator first names such an address, this
/// context announces to it that the memory is special. The memory is never lent as a slice, because
/// other contexts may write it at any time.
pub struct Special {
    core: Rc<Core>,
    region: Option<Arc<SharedRegion>>,
}

impl Special {
    pub(crate) fn new(core: Rc<Core>, region: Arc<SharedRegion>) -> Self {
        Self {
            core,
            region: Some(region),
        }
    }

    /// Returns the remote address of the byte at `offset`.
    pub fn address(&self, offset: usize) -> u64 {
        self.base().wrapping_add(offset).expose_provenance() as u64
    }

    /// Returns a pointer to the first byte.
    pub fn base(&self) -> *mut u8 {
        self.region().base()
    }

    /// Returns the length in bytes, which is never 0.
    #[expect(
        clippy::len_without_is_empty,
        reason = "there is no empty special memory"
    )]
    pub fn len(&self) -> usize {
        self.region().len()
    }

    /// Copies `bytes` into the memory at `offset`.
    ///
    /// # Errors
    /// [`crate::Error::BadPointer`] when the bytes are not within the memory. Nothing is copied
    /// then.
    pub fn copy_from(&self, offset: usize, bytes: &[u8]) -> Result {
        let copied = self.region().copy_from(offset, bytes);
        copied.map_err(|_| self.outside(offset, bytes.len()))
    }

    /// Copies bytes of the memory from `offset` on into `bytes`.
    ///
    /// # Errors
    /// As [`Self::copy_from`].
    pub fn copy_to(&self, offset: usize, bytes: &mut [u8]) -> Result {
        let copied = self.region().copy_to(offset, bytes);
        copied.map_err(|_| self.outside(offset, bytes.len()))
    }

    fn outside(&self, offset: usize, len: usize) -> crate::Error {
        crate::Error::BadPointer {
            context: self.core.mycontext(),
            address: self.address(offset),
            len: len as u64,
            operation: "access to special memory",
        }
    }

    fn region(&self) -> &SharedRegion {
        self.region.as_ref().expect("there until it is dropped")
    }
}

impl Drop for Special {
    fn drop(&mut self) {
        if let Some(region) = self.region.take() {
            self.core.free(region);
        }
    }
}

impl fmt::Debug for Special {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} bytes of special memory at {:#x}",
            self.len(),
            self.address(0)
        )
    }
}
