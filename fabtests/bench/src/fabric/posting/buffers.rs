//! The buffers of an endpoint, and the rights to use them.

use selvedge::Domain;

use crate::measure::buffer::Pages;

/// The buffers of an endpoint.
#[derive(Debug)]
pub(in crate::fabric) struct EndpointBuffers {
    pub(super) rx: Pages,
    pub(super) tx: Pages,
    /// Whether a run has begun and has not returned all its buffers.
    pub(super) running: bool,
}

/// The right to use one receive buffer.
#[derive(Debug)]
pub(in crate::fabric) struct RxSlot(pub(super) usize);

impl RxSlot {
    /// Index of the receive buffer.
    #[inline]
    pub(in crate::fabric) fn index(&self) -> usize {
        self.0
    }
}

/// The right to use one send buffer.
#[derive(Debug)]
pub(in crate::fabric) struct TxSlot(pub(super) usize);

impl EndpointBuffers {
    /// Allocates `len` bytes of send buffers and twice as many bytes of receive buffers.
    ///
    /// # Errors
    /// When memory cannot be allocated.
    pub(in crate::fabric) fn new(len: usize) -> anyhow::Result<Self> {
        Ok(Self::from_memory(Pages::new(2 * len)?, Pages::new(len)?))
    }

    /// As [`Self::new`], in memory that the domain allocates.
    ///
    /// # Errors
    /// When memory cannot be allocated.
    pub(in crate::fabric) fn special(domain: &dyn Domain, len: usize) -> anyhow::Result<Self> {
        let rx = Pages::special(domain, 2 * len)?;
        Ok(Self::from_memory(rx, Pages::special(domain, len)?))
    }

    /// As [`Self::new`], in the shared heap.
    ///
    /// # Errors
    /// When the heap has no room.
    pub(in crate::fabric) fn heap(len: usize) -> anyhow::Result<Self> {
        Ok(Self::from_memory(Pages::heap(2 * len)?, Pages::heap(len)?))
    }

    fn from_memory(rx: Pages, tx: Pages) -> Self {
        let running = false;
        Self { rx, tx, running }
    }
}
