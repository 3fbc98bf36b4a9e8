//! `Destination`: the memory that receives the bytes of a large transfer.

use std::mem::MaybeUninit;
use std::sync::Arc;

use selvedge::cq::Entry;
use selvedge::shared::SharedBytes;
use selvedge::{CompletionFlags, Errno, FiAddr, MrAccess, Result};
use selvedge_kit::Ep;
use selvedge_kit::copy::RxBuf;
use selvedge_kit::cq::Sink;
use selvedge_kit::segments::RmaSegments;
use selvedge_kit::srx::{Envelope, Posted};

use crate::matching;
use crate::peers::name::Name;
use crate::peers::ops::{Op, OpBody};
use crate::provider::shared::Shared;
use crate::smr::bytes::Bytes;
use crate::smr::keys::Denied;

/// The destination of a large transfer, and the completion that follows it.
#[derive(Debug)]
pub(crate) enum Destination {
    /// A matched receive.
    Receive(Posted, Envelope),
    /// Registered memory of this process, which a peer writes.
    Memory(Memory),
    /// The buffer of a read of this endpoint, whose response has arrived.
    Read(Box<Op>),
}

/// Registered memory that a peer writes.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) domain: Arc<Shared>,
    pub(crate) segments: RmaSegments,
    pub(crate) remote_write: RemoteWrite,
    /// The reason why the peer may not write any more, if there is one. Later bytes are discarded.
    pub(crate) denied: Option<Denied>,
}

/// A contiguous part of the destination.
#[derive(Debug)]
pub(crate) enum DestinationSlice<'a> {
    Private(&'a mut [MaybeUninit<u8>]),
    Shared(SharedBytes),
}

impl Destination {
    /// Returns the number of bytes of a message of `len` bytes that fit into the destination.
    pub(crate) fn accepted_len(&self, len: usize) -> usize {
        match self {
            Self::Receive(posted, _) => len.min(posted.buf.len()),
            Self::Memory(_) | Self::Read(_) => len,
        }
    }

    /// Calls `each` with the contiguous parts of the destination from `offset` on, up to `len`
    /// bytes in total. Skips memory that may not be written any more.
    ///
    /// # Errors
    /// Those of `each`.
    pub(crate) fn for_each_slice(
        &mut self,
        offset: usize,
        len: usize,
        each: &mut dyn FnMut(DestinationSlice<'_>) -> Result,
    ) -> Result {
        match self {
            Self::Receive(posted, _) => for_each_private_slice(&mut posted.buf, offset, len, each),
            Self::Memory(memory) => memory.for_each_slice(offset, len, each),
            Self::Read(op) => match &mut op.body {
                OpBody::Requested { buf } => for_each_private_slice(buf, offset, len, each),
                _ => Ok(()),
            },
        }
    }

    /// Returns the error of a denied write; `None` for any other transfer.
    pub(crate) fn denial(&self) -> Option<Errno> {
        match self {
            Self::Memory(memory) => memory.denied.map(Denied::errno),
            Self::Receive(..) | Self::Read(_) => None,
        }
    }

    /// Reports the transfer after its last byte.
    pub(crate) fn finish(self, name: &Name, ep: &Ep, src: FiAddr) {
        match self {
            Self::Receive(posted, env) => {
                let fits = env.len.min(posted.buf.len());
                matching::report(name, ep, src, posted, &env, fits, &mut Sink::none());
            }
            Self::Memory(memory) if memory.denied.is_some() => {}
            Self::Memory(memory) => {
                let keys = &memory.domain.keys;
                keys.count_segments(memory.segments.all(), MrAccess::REMOTE_WRITE);
                memory.remote_write.report(ep, src, &mut Sink::none());
            }
            Self::Read(op) => op.succeed(ep),
        }
    }

    /// Releases the destination and reports the failure of the transfer.
    pub(crate) fn fail(self, ep: &Ep, errno: Errno, src: FiAddr, detail: String) {
        match self {
            Self::Receive(posted, _) => ep.rx_failed(posted, errno, src, detail),
            Self::Memory(_) => {
                log::info!(target: "selvedge::shm::ep_data", "a write of a peer failed: {detail}");
            }
            Self::Read(op) => op.fail(ep, errno, src, detail),
        }
    }
}

/// [`Destination::for_each_slice`] for a private buffer.
fn for_each_private_slice(
    buf: &mut RxBuf,
    offset: usize,
    len: usize,
    each: &mut dyn FnMut(DestinationSlice<'_>) -> Result,
) -> Result {
    buf.segments(offset, len)
        .try_for_each(|segment| each(DestinationSlice::Private(segment)))
}

impl Memory {
    /// [`Destination::for_each_slice`] for registered memory. Looks the region up again for each
    /// part, because it may be withdrawn between two steps. The guard `regions` keeps it registered
    /// during one step.
    fn for_each_slice(
        &mut self,
        offset: usize,
        len: usize,
        each: &mut dyn FnMut(DestinationSlice<'_>) -> Result,
    ) -> Result {
        if self.denied.is_some() {
            return Ok(());
        }
        let regions = self.domain.keys.regions();
        for segment in self.segments.clip(offset, len) {
            match regions.locate(&segment, MrAccess::REMOTE_WRITE) {
                Ok(shared) => each(DestinationSlice::Shared(shared))?,
                Err(denied) => {
                    self.denied = Some(denied);
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

impl DestinationSlice<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Private(bytes) => bytes.len(),
            Self::Shared(shared) => shared.len(),
        }
    }

    /// Returns the `len` bytes from `offset` on.
    pub(crate) fn part(&mut self, offset: usize, len: usize) -> DestinationSlice<'_> {
        match self {
            Self::Private(bytes) => DestinationSlice::Private(&mut bytes[offset..offset + len]),
            Self::Shared(shared) => DestinationSlice::Shared(shared.part(offset, len)),
        }
    }

    /// Fills the slice with bytes of a mapping from `offset` on.
    pub(crate) fn copy_from(self, bytes: &Bytes, offset: usize) {
        match self {
            Self::Private(to) => drop(bytes.copy_out(offset, to)),
            Self::Shared(to) => bytes.copy_to(offset, to),
        }
    }
}

/// A finished write of a peer, which the target counts and reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteWrite {
    pub(crate) data: Option<u64>,
    pub(crate) len: usize,
}

impl RemoteWrite {
    /// Counts the write, and reports it if it carries remote data.
    #[inline]
    pub(crate) fn report(self, ep: &Ep, src: FiAddr, sink: &mut Sink<'_>) {
        ep.peer_wrote(self.len);
        let Some(data) = self.data else { return };
        let entry = Entry {
            flags: CompletionFlags::RMA
                | CompletionFlags::REMOTE_WRITE
                | CompletionFlags::REMOTE_CQ_DATA,
            len: self.len,
            data,
            ..Entry::default()
        };
        sink.push(&ep.rx_cq, entry, src);
    }
}
