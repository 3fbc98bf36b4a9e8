//! The target side of one-sided operations: writes, reads and atomics of peers on registered
//! memory.
//!
//! Key, rights and bounds are checked before any byte is transferred, and again for each step of a
//! large transfer. A denied access gets an error response if the peer supports error responses;
//! otherwise the denied access ends the connection.

use selvedge::atomic::{Datatype, Family, Op, RmaIoc};
use selvedge::cq::Entry;
use selvedge::rma::RmaIov;
use selvedge::{CompletionFlags, Context, Errno, FiAddr, MrAccess};
use selvedge_kit::Ep;
use selvedge_kit::atomic::{Args, Kernel, query};
use selvedge_kit::mr::{Keys, Regions};
use selvedge_kit::segments::RmaSegments;

use crate::config::LARGEST_INJECT;
use crate::connection::outgoing::Outgoing;
use crate::socket::vecs::RecvVecs;
use crate::wire::ProtocolError;
use crate::wire::frame::Header;

/// The largest read response, in bytes, that is copied when the request arrives.
const COPY_MAX: usize = 16 << 10;

/// A write whose data are arriving.
#[derive(Debug)]
pub(crate) struct IncomingWrite {
    segments: RmaSegments,
    data: Option<u64>,
    number: Option<u64>,
    /// The error of a denied access, found at the start or at a later step. The data of a denied
    /// write are discarded.
    pub(crate) denied: Option<Errno>,
}

/// An atomic whose operands are arriving.
#[derive(Debug)]
pub(crate) struct IncomingAtomic {
    kernel: Kernel,
    targets: Vec<RmaIoc>,
    data: Option<u64>,
    pub(crate) operands: Vec<u8>,
}

impl IncomingWrite {
    /// Appends the target memory of `len` bytes from offset `offset`, up to the first segment that
    /// denies the write.
    pub(crate) fn push_segments<'a>(
        &mut self,
        vecs: &mut RecvVecs<'a>,
        regions: &'a Regions<'_>,
        offset: usize,
        len: usize,
    ) {
        for segment in self.segments.clip(offset, len) {
            match regions.locate(&segment, MrAccess::REMOTE_WRITE) {
                Ok(memory) => vecs.push_shared(memory, regions),
                Err(denied) => {
                    self.denied = Some(denied.errno());
                    return;
                }
            };
        }
    }

    /// Writes bytes at offset `offset`.
    pub(crate) fn store(&mut self, keys: &Keys, offset: usize, bytes: &[u8]) {
        if self.denied.is_some() {
            return;
        }
        let regions = keys.regions();
        let mut rest = bytes;
        for segment in self.segments.clip(offset, bytes.len()) {
            let (chunk, tail) = rest.split_at(segment.len);
            rest = tail;
            match regions.locate(&segment, MrAccess::REMOTE_WRITE) {
                Ok(memory) => memory.write(chunk),
                Err(denied) => {
                    self.denied = Some(denied.errno());
                    return;
                }
            }
        }
    }
}

/// Checks that all segments allow the access.
fn check_access(
    regions: &Regions<'_>,
    segments: &RmaSegments,
    rights: MrAccess,
) -> Result<(), Errno> {
    let mut all = segments.all().iter();
    all.try_for_each(|segment| match regions.locate(segment, rights) {
        Ok(_) => Ok(()),
        Err(denied) => Err(denied.errno()),
    })
}

/// The protocol error for a peer without error responses.
fn access_error(errno: Errno) -> ProtocolError {
    ProtocolError(match errno {
        Errno::KeyRejected => "an access with an unregistered key",
        Errno::Acces => "an access without the right",
        _ => "an access beyond the region",
    })
}

/// Starts a write of a peer.
///
/// # Errors
/// When the peer may not write there and does not support error responses.
pub(crate) fn begin_write(
    keys: &Keys,
    segments: RmaSegments,
    data: Option<u64>,
    number: Option<u64>,
    has_extensions: bool,
) -> Result<IncomingWrite, ProtocolError> {
    let denied = check_access(&keys.regions(), &segments, MrAccess::REMOTE_WRITE).err();
    if let Some(errno) = denied.filter(|_| !has_extensions) {
        return Err(access_error(errno));
    }
    Ok(IncomingWrite {
        segments,
        data,
        number,
        denied,
    })
}

/// The registered memory of an endpoint, accessed by one peer.
pub(crate) struct OneSided<'a> {
    pub(crate) ep: &'a Ep,
    pub(crate) keys: &'a Keys,
    /// The peer's index in the address vector.
    pub(crate) src: FiAddr,
    /// The connection with the peer, for responses.
    pub(crate) outgoing: &'a mut Outgoing,
}

impl OneSided<'_> {
    /// Completes a write whose data have arrived.
    ///
    /// # Errors
    /// When the peer may not write and does not support error responses.
    pub(crate) fn finish_write(&mut self, write: &IncomingWrite) -> Result<(), ProtocolError> {
        if let (Some(errno), false) = (write.denied, self.outgoing.negotiated.has_extensions()) {
            return Err(access_error(errno));
        }
        self.outgoing.queue_ack(write.number, write.denied);
        if write.denied.is_none() {
            let len = write.segments.len();
            self.ep.peer_wrote(len);
            let segments = write.segments.all().iter();
            let segments = segments.map(|segment| (segment.key, segment.len));
            self.keys.count(segments, MrAccess::REMOTE_WRITE);
            let flags = CompletionFlags::RMA | CompletionFlags::REMOTE_WRITE;
            self.report(write.data, flags, len);
        }
        Ok(())
    }

    /// Reports a peer's access with remote CQ data to the application.
    fn report(&self, data: Option<u64>, flags: CompletionFlags, len: usize) {
        let Some(data) = data else {
            return;
        };
        let entry = Entry {
            context: Context::default(),
            flags: flags | CompletionFlags::REMOTE_CQ_DATA,
            len,
            data,
            ..Entry::default()
        };
        self.ep.rx_cq.push(entry, self.src);
    }

    /// Executes a read of a peer.
    ///
    /// # Errors
    /// When the peer may not read there and does not support error responses.
    pub(crate) fn read(&mut self, segments: RmaSegments) -> Result<(), ProtocolError> {
        let regions = self.keys.regions();
        let negotiated = self.outgoing.negotiated;
        if let Err(errno) = check_access(&regions, &segments, MrAccess::REMOTE_READ) {
            if !negotiated.has_extensions() {
                return Err(access_error(errno));
            }
            let status = errno.as_raw().unsigned_abs();
            self.outgoing
                .queue_response(&Header::ReadError { status }, &[]);
            return Ok(());
        }
        let len = segments.len();
        let read: Vec<_> = segments.all().iter().map(|it| (it.key, it.len)).collect();
        if len > COPY_MAX {
            self.outgoing.tx.queue_read_response(
                negotiated.order,
                segments,
                negotiated.has_extensions(),
            );
        } else {
            let header = Header::ReadResponse {
                len,
                is_checked: false,
            };
            self.outgoing
                .tx
                .queue_copied(&header, negotiated.order, |out| {
                    for segment in segments.clip(0, len) {
                        let start = out.len();
                        out.resize(start + segment.len, 0);
                        if let Ok(memory) = regions.locate(&segment, MrAccess::REMOTE_READ) {
                            memory.read_into(&mut out[start..]);
                        }
                    }
                });
        }
        self.outgoing.note_response();
        self.ep.peer_read(len);
        drop(regions);
        self.keys.count(read.into_iter(), MrAccess::REMOTE_READ);
        Ok(())
    }

    /// Executes an atomic whose operands have arrived.
    pub(crate) fn apply_atomic(&mut self, atomic: &IncomingAtomic) {
        let outcome = atomic.apply(self.keys);
        let (status, values) = match &outcome {
            Ok(values) => (0, &values[..]),
            Err(errno) => (errno.as_raw().unsigned_abs(), &[][..]),
        };
        let len = values.len();
        self.outgoing
            .queue_response(&Header::AtomicResult { status, len }, values);
        if outcome.is_ok() {
            let len = atomic.len();
            let is_read = atomic.kernel.has_result();
            let direction = if is_read {
                CompletionFlags::REMOTE_READ
            } else {
                CompletionFlags::REMOTE_WRITE
            };
            if is_read {
                self.ep.peer_read(len)
            } else {
                self.ep.peer_wrote(len)
            }
            let size = atomic.kernel.size();
            let targets = atomic.targets.iter();
            let targets = targets.map(|target| (target.key, target.count * size));
            self.keys.count(targets, atomic.kernel.access());
            self.report(atomic.data, CompletionFlags::ATOMIC | direction, len);
        }
    }
}

impl IncomingAtomic {
    /// Creates a peer's atomic whose operands have `len` bytes.
    ///
    /// # Errors
    /// When the operation does not exist, or `len` is not the length that the targets require.
    pub(crate) fn new(
        operation: u64,
        data: Option<u64>,
        targets: Vec<RmaIoc>,
        len: usize,
    ) -> Result<Self, ProtocolError> {
        let kernel =
            decode_operation(operation).ok_or(ProtocolError("an atomic that does not exist"))?;
        let count = targets.iter().map(|target| target.count);
        let count = count.fold(0_usize, usize::saturating_add);
        let operand_len = count.saturating_mul(kernel.size());
        let operand_count = usize::from(kernel.has_operand()) + usize::from(kernel.has_compare());
        if operand_len.saturating_mul(operand_count) != len || operand_len > LARGEST_INJECT {
            return Err(ProtocolError(
                "an atomic whose operands and targets differ in length",
            ));
        }
        Ok(Self {
            kernel,
            targets,
            data,
            operands: Vec::with_capacity(len),
        })
    }

    fn len(&self) -> usize {
        let count: usize = self.targets.iter().map(|target| target.count).sum();
        count * self.kernel.size()
    }

    /// Updates all targets or none. Returns the fetched values of a fetching atomic.
    fn apply(&self, keys: &Keys) -> Result<Vec<u8>, Errno> {
        let regions = keys.regions();
        let size = self.kernel.size();
        let mut memories = Vec::with_capacity(self.targets.len());
        for target in &self.targets {
            let segment = RmaIov {
                addr: target.addr,
                len: target.count * size,
                key: target.key,
            };
            let memory = regions.locate(&segment, self.kernel.access());
            let memory = memory.map_err(|denied| denied.errno())?;
            let addr = memory.as_ptr().addr() as u64;
            self.kernel.check(addr).map_err(|_| Errno::Inval)?;
            memories.push(memory);
        }
        let (operand, compare) = if self.kernel.has_operand() {
            self.operands.split_at(self.len())
        } else {
            (&[][..], &self.operands[..])
        };
        let result_len = if self.kernel.has_result() {
            self.len()
        } else {
            0
        };
        let mut result = vec![0; result_len];
        let mut done = 0;
        for memory in memories {
            let range = done..done + memory.len();
            done = range.end;
            let args = Args {
                operand: operand.get(range.clone()).unwrap_or_default(),
                compare: compare.get(range.clone()).unwrap_or_default(),
                result: result.get_mut(range).unwrap_or_default(),
            };
            self.kernel.apply(memory, args).map_err(|_| Errno::Inval)?;
        }
        Ok(result)
    }
}

/// Encodes an atomic operation as a word.
pub(crate) fn encode_operation(kernel: &Kernel) -> u64 {
    let family = match kernel.family() {
        Family::Base => 0,
        Family::Fetch => 1,
        Family::Compare => 2,
    };
    family << 32 | (kernel.datatype() as u64) << 16 | kernel.op() as u64
}

/// Decodes a word into an atomic operation.
fn decode_operation(word: u64) -> Option<Kernel> {
    let family = match word >> 32 {
        0 => Family::Base,
        1 => Family::Fetch,
        2 => Family::Compare,
        _ => return None,
    };
    let datatype = Datatype::from_raw((word >> 16 & 0xffff) as u32)?;
    let op = Op::from_raw((word & 0xffff) as u32)?;
    query(family, datatype, op).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atomic_operations_round_trip_and_other_words_are_rejected() {
        let kernel_of = |family| query(family, Datatype::Uint64, Op::Sum).unwrap();
        for family in [Family::Base, Family::Fetch] {
            let word = encode_operation(&kernel_of(family));
            let decoded = decode_operation(word).unwrap();
            assert_eq!((decoded.family(), decoded.op()), (family, Op::Sum));
        }
        for word in [u64::MAX, 3 << 32, 0xffff, 0xffff_0000] {
            assert!(decode_operation(word).is_none(), "{word:#x}");
        }
    }
}
