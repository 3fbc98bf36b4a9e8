//! Into: where the bytes of an offered message go.

use std::mem::MaybeUninit;
use std::sync::Arc;

use selvedge::cq::Entry;
use selvedge::shared::SharedBytes;
use selvedge::{CompletionFlags, Errno, FiAddr, Result};
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
use crate::smr::keys::{Denied, RIGHT_WRITE};

/// The target of a message that its sender has offered.
#[derive(Debug)]
pub(crate) enum Into {
    /// A receive.
    Receive(Posted, Envelope),
    /// Registered memory of ours: a peer writes.
    Memory(Memory),
    /// The buffer of an operation of ours, which waited for the peer's answer.
    Answer(Box<Op>),
}

/// Registered memory that a peer writes.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) domain: Arc<Shared>,
    pub(crate) places: RmaSegments,
    pub(crate) arrival: Arrival,
    /// Why it may not any more: what comes then goes nowhere.
    pub(crate) denied: Option<Denied>,
}

/// A stretch of the target.
#[derive(Debug)]
pub(crate) enum To<'a> {
    Private(&'a mut [MaybeUninit<u8>]),
    Shared(SharedBytes),
}

impl Into {
    /// Bytes of a message of `len` that it takes.
    pub(crate) fn takes(&self, len: usize) -> usize {
        match self {
            Self::Receive(posted, _) => len.min(posted.buf.len()),
            Self::Memory(_) | Self::Answer(_) => len,
        }
    }

    /// Does something with each stretch of the target that the bytes from `offset` on, `len` at
    /// most, fall into.
    ///
    /// # Errors
    /// Those of `each`. Memory that may not be written any more is passed over.
    pub(crate) fn stretches(
        &mut self,
        offset: usize,
        len: usize,
        each: &mut dyn FnMut(To<'_>) -> Result,
    ) -> Result {
        match self {
            Self::Receive(posted, _) => private(&mut posted.buf, offset, len, each),
            Self::Memory(memory) => memory.stretches(offset, len, each),
            Self::Answer(op) => match &mut op.body {
                OpBody::Asked { buf } => private(buf, offset, len, each),
                _ => Ok(()),
            },
        }
    }

    /// Why the bytes that came were not wanted, if they were not.
    pub(crate) fn refusal(&self) -> Option<Errno> {
        match self {
            Self::Memory(memory) => memory.denied.map(Denied::errno),
            Self::Receive(..) | Self::Answer(_) => None,
        }
    }

    /// All bytes are there.
    pub(crate) fn finish(self, name: &Name, ep: &Ep, src: FiAddr) {
        match self {
            Self::Receive(posted, env) => {
                let fits = env.len.min(posted.buf.len());
                matching::report(name, ep, src, posted, &env, fits, &mut Sink::none());
            }
            Self::Memory(memory) if memory.denied.is_some() => {}
            Self::Memory(memory) => {
                memory.domain.keys.count_write(memory.places.all());
                memory.arrival.report(ep, src, &mut Sink::none());
            }
            Self::Answer(op) => op.succeed(ep),
        }
    }

    /// The bytes will not come.
    pub(crate) fn fail(self, ep: &Ep, errno: Errno, src: FiAddr, detail: String) {
        match self {
            Self::Receive(posted, _) => ep.rx_failed(posted, errno, src, detail),
            Self::Memory(_) => {
                log::info!(target: "selvedge::shm::ep_data", "a write is not complete: {detail}");
            }
            Self::Answer(op) => op.fail(ep, errno, src, detail),
        }
    }
}

fn private(
    buf: &mut RxBuf,
    offset: usize,
    len: usize,
    each: &mut dyn FnMut(To<'_>) -> Result,
) -> Result {
    buf.segments(offset, len)
        .try_for_each(|piece| each(To::Private(piece)))
}

impl Memory {
    /// Looks each stretch up anew: the region may be gone meanwhile. It is not, as long as the
    /// regions are looked at.
    fn stretches(
        &mut self,
        offset: usize,
        len: usize,
        each: &mut dyn FnMut(To<'_>) -> Result,
    ) -> Result {
        if self.denied.is_some() {
            return Ok(());
        }
        let regions = self.domain.keys.regions();
        for piece in self.places.clip(offset, len) {
            match regions.locate(&piece, RIGHT_WRITE) {
                Ok(shared) => each(To::Shared(shared))?,
                Err(denied) => {
                    self.denied = Some(denied);
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

impl To<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Private(bytes) => bytes.len(),
            Self::Shared(shared) => shared.len(),
        }
    }

    /// The `len` bytes from `at` on.
    pub(crate) fn part(&mut self, at: usize, len: usize) -> To<'_> {
        match self {
            Self::Private(bytes) => To::Private(&mut bytes[at..at + len]),
            Self::Shared(shared) => To::Shared(shared.part(at, len)),
        }
    }

    /// Fills it with bytes of a mapping from `at` on.
    pub(crate) fn copy_from(self, bytes: &Bytes, at: usize) {
        match self {
            Self::Private(to) => drop(bytes.copy_out(at, to)),
            Self::Shared(to) => bytes.copy_to(at, to),
        }
    }
}

/// What is to be said of a write once its bytes are there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) data: Option<u64>,
    pub(crate) len: usize,
}

impl Arrival {
    /// Counts it, and reports it if it came with data.
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
