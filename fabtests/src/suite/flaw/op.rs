//! Operations with a defect.
//!
//! Bytes and lists that a defect changes are copies that are never freed: a mutant lives for a moment.

#![expect(unsafe_code, reason = "reads the memory that a post names")]

use selvedge::atomic::{AtomicMsg, IocMut, RmaIoc, Target};
use selvedge::rma::RmaIov;
use selvedge::{FiAddr, Iov, Op, TagMatch, atomic, msg, tagged};

use super::Flaw;

/// The half of a word that is left of it.
const LOW: u64 = 0xffff_ffff;

impl Flaw {
    /// The operation that is carried out in the place of `op`.
    ///
    /// # Safety
    /// As [`Op::post`].
    pub(super) unsafe fn changed<'a>(self, mut op: Op<'a>) -> Op<'a> {
        match (self, &mut op) {
            (Self::FlipsBit | Self::FlipsBitOfLarge | Self::CutsOff, Op::Send(msg)) => {
                // SAFETY: passed on from the caller.
                (msg.iov, msg.desc) = (unsafe { self.spoiled(msg.iov) }, &[]);
            }
            (Self::FlipsBit | Self::FlipsBitOfLarge | Self::CutsOff, Op::TaggedSend(msg)) => {
                // SAFETY: as above.
                (msg.iov, msg.desc) = (unsafe { self.spoiled(msg.iov) }, &[]);
            }
            (Self::FlipsBit, Op::Write(msg)) => {
                // SAFETY: as above.
                (msg.iov, msg.desc) = (unsafe { self.spoiled(msg.iov) }, &[]);
            }
            (Self::FlipsBit, Op::Inject { buf, .. } | Op::TaggedInject { buf, .. }) => {
                *buf = flipped(buf);
            }
            (Self::HalvesTags, Op::TaggedSend(msg)) => msg.tag &= LOW,
            (Self::HalvesTags, Op::TaggedInject { tag, .. }) => *tag &= LOW,
            (Self::HalvesData, Op::Send(msg)) => msg.data &= LOW,
            (Self::HalvesData, Op::TaggedSend(msg)) => msg.data &= LOW,
            (Self::HalvesData, Op::Write(msg)) => msg.data &= LOW,
            (Self::HalvesData, Op::Inject { data, .. } | Op::TaggedInject { data, .. }) => {
                *data = data.map(|data| data & LOW);
            }
            (Self::SwapsPieces, Op::Send(msg)) => msg.iov = reversed(msg.iov),
            (Self::SwapsPieces, Op::Recv(msg)) => msg.iov = reversed(msg.iov),
            (Self::SwapsPieces, Op::TaggedSend(msg)) => msg.iov = reversed(msg.iov),
            (Self::SwapsPieces, Op::TaggedRecv(msg)) => msg.iov = reversed(msg.iov),
            (Self::SwapsPieces, Op::Read(msg)) => msg.iov = reversed(msg.iov),
            (Self::SwapsPieces, Op::Write(msg)) => msg.iov = reversed(msg.iov),
            (Self::IgnoresIgnore, Op::TaggedRecv(msg)) => msg.tag.ignore = 0,
            (Self::IgnoresTags, Op::TaggedRecv(msg)) => msg.tag = TagMatch::ANY,
            (Self::IgnoresSource, Op::Recv(msg)) => msg.src = FiAddr::UNSPEC,
            (Self::IgnoresSource, Op::TaggedRecv(msg)) => msg.src = FiAddr::UNSPEC,
            // As many bits for contexts as no test has peers.
            (Self::WrongContext, Op::Send(msg)) => msg.dest.0 &= u64::MAX >> 16,
            (Self::WrongContext, Op::TaggedSend(msg)) => msg.dest.0 &= u64::MAX >> 16,
            (Self::WrongAddress, Op::Read(msg)) => msg.rma_iov = further(msg.rma_iov),
            (Self::WrongAddress, Op::Write(msg)) => msg.rma_iov = further(msg.rma_iov),
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

    /// The bytes with a defect, in one piece.
    unsafe fn spoiled(self, iov: &[Iov]) -> &'static [Iov] {
        // SAFETY: passed on from the caller.
        let bytes = unsafe { copied(iov) };
        let bytes = match self {
            Self::CutsOff => &bytes[..bytes.len().saturating_sub(1)],
            Self::FlipsBitOfLarge if bytes.len() <= 4096 => bytes,
            _ => flipped(bytes),
        };
        vec![Iov::new(bytes)].leak()
    }
}

/// The send of these bytes in the place of a send's own.
pub(super) fn sending(op: &Op<'_>, bytes: &'static [u8]) -> Op<'static> {
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
        _ => unreachable!("{op:?} is no send"),
    }
}

/// The pieces of what a send sends.
pub(super) fn pieces<'a>(op: &Op<'a>) -> &'a [Iov] {
    match op {
        Op::Send(msg) => msg.iov,
        Op::TaggedSend(msg) => msg.iov,
        _ => &[],
    }
}

/// A copy that is never freed.
///
/// # Safety
/// The pieces may be read.
pub(super) unsafe fn copied(iov: &[Iov]) -> &'static [u8] {
    let mut bytes = Vec::new();
    for piece in iov.iter().filter(|piece| piece.len > 0) {
        // SAFETY: the caller's promise.
        bytes
            .extend_from_slice(unsafe { std::slice::from_raw_parts(piece.base.cast(), piece.len) });
    }
    bytes.leak()
}

/// The caller's own bytes, for longer than it lends them.
///
/// # Safety
/// The caller keeps them all the same.
pub(super) unsafe fn lent(iov: &[Iov]) -> &'static [u8] {
    match iov {
        // SAFETY: the caller's promise.
        [piece] => unsafe { std::slice::from_raw_parts(piece.base.cast(), piece.len) },
        _ => &[],
    }
}

fn flipped(bytes: &[u8]) -> &'static [u8] {
    let mut bytes = bytes.to_vec();
    if let Some(last) = bytes.last_mut() {
        *last ^= 0x10;
    }
    bytes.leak()
}

fn reversed<T: Clone>(pieces: &[T]) -> &'static [T] {
    let mut pieces = pieces.to_vec();
    pieces.reverse();
    pieces.leak()
}

/// One byte further on.
fn further(places: &[RmaIov]) -> &'static [RmaIov] {
    let mut places = places.to_vec();
    places.iter_mut().for_each(|place| place.addr += 1);
    places.leak()
}

/// Memory as large as `result`, for what nobody is to see.
pub(super) fn elsewhere(result: &[IocMut], size: usize) -> &'static [IocMut] {
    let moved = result.iter().map(|ioc| {
        let room: &'static mut [u128] = vec![0; (ioc.count * size).div_ceil(16)].leak();
        IocMut::from_raw(room.as_mut_ptr().cast(), ioc.count)
    });
    moved.collect::<Vec<_>>().leak()
}

/// An atomic as injects.
///
/// # Safety
/// As posting it.
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
    let pieces = msg.iov.iter().map(|ioc| {
        let iov = [Iov::from_raw(ioc.addr, ioc.count * datatype.size())];
        // SAFETY: passed on from the caller.
        let buf = unsafe { copied(&iov) };
        Op::InjectAtomic { buf, target }
    });
    pieces.collect()
}

/// An operation that does the same to equal operands, or to zeros, and not otherwise.
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
