//! Changes of operations by a defect.
//!
//! Changed bytes and lists are copies that are never freed, because the process ends soon.

#![expect(unsafe_code, reason = "reads the memory that a post names")]

use selvedge::atomic::{AtomicMsg, IocMut, RmaIoc, Target};
use selvedge::rma::RmaIov;
use selvedge::{FiAddr, Iov, Op, TagMatch, atomic, msg, tagged};

use super::kind::Defect;

/// The mask of the lower half of a word, which the defects of tags and remote data keep.
const LOW: u64 = 0xffff_ffff;

impl Defect {
    /// Returns the operation that the defect posts instead of `op`.
    ///
    /// # Safety
    /// As [`Op::post`].
    pub(super) unsafe fn changed<'a>(self, mut op: Op<'a>) -> Op<'a> {
        match (self, &mut op) {
            (Self::FlipsBit | Self::FlipsBitOfLarge | Self::CutsOff, Op::Send(msg)) => {
                // SAFETY: passed on from the caller.
                (msg.iov, msg.desc) = (unsafe { self.with_damaged_bytes(msg.iov) }, &[]);
            }
            (Self::FlipsBit | Self::FlipsBitOfLarge | Self::CutsOff, Op::TaggedSend(msg)) => {
                // SAFETY: as above.
                (msg.iov, msg.desc) = (unsafe { self.with_damaged_bytes(msg.iov) }, &[]);
            }
            (Self::FlipsBit, Op::Write(msg)) => {
                // SAFETY: as above.
                (msg.iov, msg.desc) = (unsafe { self.with_damaged_bytes(msg.iov) }, &[]);
            }
            (Self::FlipsBit, Op::Inject { buf, .. } | Op::TaggedInject { buf, .. }) => {
                *buf = with_flipped_bit(buf);
            }
            (Self::HalvesTags, Op::TaggedSend(msg)) => msg.tag &= LOW,
            (Self::HalvesTags, Op::TaggedInject { tag, .. }) => *tag &= LOW,
            (Self::HalvesData, Op::Send(msg)) => msg.data &= LOW,
            (Self::HalvesData, Op::TaggedSend(msg)) => msg.data &= LOW,
            (Self::HalvesData, Op::Write(msg)) => msg.data &= LOW,
            (Self::HalvesData, Op::Inject { data, .. } | Op::TaggedInject { data, .. }) => {
                *data = data.map(|data| data & LOW);
            }
            (Self::SwapsSegments, Op::Send(msg)) => msg.iov = reversed(msg.iov),
            (Self::SwapsSegments, Op::Recv(msg)) => msg.iov = reversed(msg.iov),
            (Self::SwapsSegments, Op::TaggedSend(msg)) => msg.iov = reversed(msg.iov),
            (Self::SwapsSegments, Op::TaggedRecv(msg)) => msg.iov = reversed(msg.iov),
            (Self::SwapsSegments, Op::Read(msg)) => msg.iov = reversed(msg.iov),
            (Self::SwapsSegments, Op::Write(msg)) => msg.iov = reversed(msg.iov),
            (Self::IgnoresIgnoreBits, Op::TaggedRecv(msg)) => msg.tag.ignore = 0,
            (Self::IgnoresTags, Op::TaggedRecv(msg)) => msg.tag = TagMatch::ANY,
            (Self::IgnoresSource, Op::Recv(msg)) => msg.src = FiAddr::UNSPEC,
            (Self::IgnoresSource, Op::TaggedRecv(msg)) => msg.src = FiAddr::UNSPEC,
            // The mask clears the bits that name a context. No test has so many peers that an index
            // uses these bits.
            (Self::WrongContext, Op::Send(msg)) => msg.dest.0 &= u64::MAX >> 16,
            (Self::WrongContext, Op::TaggedSend(msg)) => msg.dest.0 &= u64::MAX >> 16,
            (Self::WrongAddress, Op::Read(msg)) => msg.rma_iov = shifted(msg.rma_iov),
            (Self::WrongAddress, Op::Write(msg)) => msg.rma_iov = shifted(msg.rma_iov),
            (Self::WrongAddress, Op::InjectWrite { addr, .. }) => *addr += 1,
            (Self::NoRemoteData, Op::InjectWrite { data, .. }) => *data = None,
            (Self::OtherAtomics | Self::OtherAtomicsOfOne, op) => self.change_atomic(op),
            (Self::OtherCollectives, Op::Collective(msg)) => {
                msg.op = match msg.op {
                    atomic::Op::Sum => atomic::Op::Bxor,
                    op => similar(op),
                };
            }
            (Self::WrongRoot, Op::Collective(msg)) if msg.coll.has_root() => msg.root = FiAddr(0),
            _ => {}
        }
        op
    }

    fn change_atomic(self, op: &mut Op<'_>) {
        let (op, count) = match op {
            Op::Atomic(msg) | Op::FetchAtomic(msg, _) | Op::CompareAtomic(msg, ..) => {
                let count: usize = msg.rma_iov.iter().map(|target| target.count).sum();
                (&mut msg.op, count)
            }
            Op::InjectAtomic { buf, target } => {
                let count = buf.len() / target.datatype.size();
                (&mut target.op, count)
            }
            _ => return,
        };
        if self == Self::OtherAtomics || count == 1 {
            *op = similar(*op);
        }
    }

    /// Returns a copy of the bytes with the defect, in one segment.
    unsafe fn with_damaged_bytes(self, iov: &[Iov]) -> &'static [Iov] {
        // SAFETY: passed on from the caller.
        let bytes = unsafe { leaked_copy(iov) };
        let bytes = match self {
            Self::CutsOff => &bytes[..bytes.len().saturating_sub(1)],
            Self::FlipsBitOfLarge if bytes.len() <= 4096 => bytes,
            _ => with_flipped_bit(bytes),
        };
        vec![Iov::new(bytes)].leak()
    }
}

/// Returns a send of `bytes` with the other fields of `op`, which is a send.
pub(super) fn send_of(op: &Op<'_>, bytes: &'static [u8]) -> Op<'static> {
    let (iov, desc): (&'static [Iov], _) = (vec![Iov::new(bytes)].leak(), &[]);
    match *op {
        Op::TaggedSend(tagged::SendMsg {
            dest,
            tag,
            context,
            data,
            ..
        }) => Op::TaggedSend(tagged::SendMsg {
            iov,
            desc,
            dest,
            tag,
            context,
            data,
        }),
        Op::Send(msg::SendMsg { data, .. }) => Op::Send(msg::SendMsg {
            iov,
            desc,
            dest: op.peer(),
            context: op.context(),
            data,
        }),
        _ => unreachable!("{op:?} is not a send"),
    }
}

/// Returns the segments of a send, and none for other operations.
pub(super) fn segments<'a>(op: &Op<'a>) -> &'a [Iov] {
    match op {
        Op::Send(msg) => msg.iov,
        Op::TaggedSend(msg) => msg.iov,
        _ => &[],
    }
}

/// Returns a copy of the bytes of the segments that is never freed.
///
/// # Safety
/// The segments are valid for reads.
pub(super) unsafe fn leaked_copy(iov: &[Iov]) -> &'static [u8] {
    let mut bytes = Vec::new();
    for segment in iov.iter().filter(|segment| segment.len > 0) {
        // SAFETY: the caller's promise.
        bytes.extend_from_slice(unsafe {
            std::slice::from_raw_parts(segment.base.cast(), segment.len)
        });
    }
    bytes.leak()
}

/// Returns the bytes of a list of one segment, borrowed for longer than the application promises to
/// keep them; no bytes for a longer list.
///
/// # Safety
/// The bytes stay valid as long as the result is used.
pub(super) unsafe fn extended_borrow(iov: &[Iov]) -> &'static [u8] {
    match iov {
        // SAFETY: the caller's promise.
        [segment] => unsafe { std::slice::from_raw_parts(segment.base.cast(), segment.len) },
        _ => &[],
    }
}

fn with_flipped_bit(bytes: &[u8]) -> &'static [u8] {
    let mut bytes = bytes.to_vec();
    if let Some(last) = bytes.last_mut() {
        *last ^= 0x10;
    }
    bytes.leak()
}

fn reversed<T: Clone>(segments: &[T]) -> &'static [T] {
    let mut segments = segments.to_vec();
    segments.reverse();
    segments.leak()
}

/// The same segments, one byte further on.
fn shifted(segments: &[RmaIov]) -> &'static [RmaIov] {
    let mut segments = segments.to_vec();
    segments.iter_mut().for_each(|segment| segment.addr += 1);
    segments.leak()
}

/// Returns a list with the element counts of `result`, in memory that no test reads. An element has
/// `size` bytes.
pub(super) fn unread_memory(result: &[IocMut], size: usize) -> &'static [IocMut] {
    let replaced = result.iter().map(|ioc| {
        let memory: &'static mut [u128] = vec![0; (ioc.count * size).div_ceil(16)].leak();
        IocMut::from_raw(memory.as_mut_ptr().cast(), ioc.count)
    });
    replaced.collect::<Vec<_>>().leak()
}

/// Returns one inject for each local segment of an atomic with one target, and none for an atomic
/// with more targets.
///
/// # Safety
/// As for a post of `msg`.
pub(super) unsafe fn as_injects(msg: &AtomicMsg<'_>) -> Vec<Op<'static>> {
    let [RmaIoc { addr, key, .. }] = *msg.rma_iov else {
        return Vec::new();
    };
    let (dest, datatype, op) = (msg.dest, msg.datatype, msg.op);
    let target = Target {
        dest,
        addr,
        key,
        datatype,
        op,
    };
    let segments = msg.iov.iter().map(|ioc| {
        let iov = [Iov::from_raw(ioc.addr, ioc.count * datatype.size())];
        // SAFETY: passed on from the caller.
        let buf = unsafe { leaked_copy(&iov) };
        Op::InjectAtomic { buf, target }
    });
    segments.collect()
}

/// Returns an operation that has the same effect as `op` on equal operands or on zeros, and another
/// effect otherwise.
fn similar(op: atomic::Op) -> atomic::Op {
    use atomic::Op;
    match op {
        Op::Min => Op::Max,
        Op::Max => Op::Min,
        Op::Sum => Op::AtomicWrite,
        Op::Prod => Op::Sum,
        Op::Lor => Op::Land,
        Op::Land => Op::Lor,
        Op::Bor => Op::Bxor,
        Op::Band => Op::Bor,
        Op::Lxor => Op::Lor,
        Op::Bxor => Op::Bor,
        Op::AtomicRead => Op::AtomicRead,
        Op::AtomicWrite => Op::Sum,
        Op::Cswap => Op::CswapNe,
        Op::CswapNe => Op::Cswap,
        Op::CswapLe => Op::CswapLt,
        Op::CswapLt => Op::CswapLe,
        Op::CswapGe => Op::CswapGt,
        Op::CswapGt => Op::CswapGe,
        Op::Mswap => Op::Cswap,
        Op::Diff => Op::Sum,
    }
}
