//! Atomics as instructions of this processor: the operations of fi_atomic(3) on memory that this
//! process has mapped.
//!
//! A [`Kernel`] is one operation on one type. There is a kernel if and only if the operation can be
//! carried out: [`query`] and the execution use the same table. The provider transfers the
//! operands, checks the rights and finds the memory.
//!
//! # What an operation does
//!
//! Each element is changed by one atomic access of the processor, so that no change is lost between
//! kernels, other processes and the owner's own atomics. Integers of 8 bytes use a native
//! read-modify-write where there is one, and a compare-exchange loop for the other operations.
//! Smaller elements are changed in the granule around them, which is what the owner loads and
//! stores ([`selvedge::shared`]). Elements of a vector are changed one after the other; the vector
//! as a whole is not atomic.
//!
//! - Integers wrap around.
//! - Floating-point numbers are added and multiplied with one rounding, to the nearest and ties to
//!   even. The product of complex numbers is `(ac - bd, ad + bc)`, each step rounded.
//! - Numbers compare as in C: `-0` equals `+0`, and a NaN equals no number, is less than no number,
//!   and is true. So [`Op::Min`] and [`Op::Max`] leave the target as it is if either number is a
//!   NaN, [`Op::Cswap`] swaps `-0` for a compared `+0` and never a NaN, and [`Op::CswapNe`] always
//!   swaps a NaN. A target that an operation leaves keeps its bits.
//! - Which NaN results from a calculation is unspecified.
//! - [`Datatype::Float8E4m3`] and [`Datatype::Float8E5m2`] are those of arXiv 2209.05433 (OCP FP8):
//!   the former has no infinity, and a result that is too large becomes a NaN.
//! - [`Datatype::LongDouble`] is the C compiler's for this processor: 80 bits in 16 bytes on
//!   x86-64, IEEE binary128 on others. Its unused bytes are no part of the value; after a
//!   calculation they are 0.
//!
//! # Unsupported types
//!
//! Types of 16 bytes where the processor has no atomics of that size (detected at run time), and
//! [`Datatype::LongDoubleComplex`], for whose 32 bytes no processor has any. Bitwise operations on
//! other types than integers, and comparisons by order of complex numbers, are not defined.

mod complex;
mod number;
mod single;
mod soft;
mod word;

use std::fmt;

use selvedge::atomic::{Attr, Datatype, Family, Op};
use selvedge::shared::SharedBytes;
use selvedge::{CompletionFlags, Errno, MrAccess};

pub use single::Single;

use complex::Complex;
use number::Number;
use soft::{Bfloat16, E4m3, E5m2, Float16};
use word::Vector;

/// One operation on one type, which can be carried out.
#[derive(Clone, Copy)]
pub struct Kernel {
    family: Family,
    datatype: Datatype,
    op: Op,
    run: Run,
}

type Run = fn(Family, Op, Vector<'_>);

/// The private operands of an operation: as many elements in each slice as are changed, in any
/// alignment.
#[derive(Debug)]
pub struct Args<'a> {
    /// The operands; [`Op::AtomicRead`] ignores them.
    pub operand: &'a [u8],
    /// The values that [`Family::Compare`] compares with; empty otherwise.
    pub compare: &'a [u8],
    /// The destination of the earlier values; empty for [`Family::Base`].
    pub result: &'a mut [u8],
}

/// A target whose address is not aligned to its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unaligned {
    /// The address.
    pub addr: u64,
    /// The required alignment.
    pub align: usize,
}

/// The attributes of an operation (fi_query_atomic(3)), where a message has room for `room` bytes
/// of operands.
///
/// # Errors
/// [`Errno::OpNotSupp`] if it is not supported.
pub fn attr(room: usize, family: Family, datatype: Datatype, op: Op) -> Result<Attr, Errno> {
    query(family, datatype, op).map(|kernel| Attr {
        count: kernel.max_count(room),
        size: kernel.size(),
    })
}

/// The kernel of an operation (fi_query_atomic(3)).
///
/// # Errors
/// [`Errno::OpNotSupp`] if it is not supported.
pub fn query(family: Family, datatype: Datatype, op: Op) -> Result<Kernel, Errno> {
    let entry = entry(datatype).ok_or(Errno::OpNotSupp)?;
    if !(entry.supports)(family, op) {
        return Err(Errno::OpNotSupp);
    }
    Ok(Kernel {
        family,
        datatype,
        op,
        run: entry.run,
    })
}

impl Kernel {
    /// Size of an element in bytes, and the alignment of its address.
    #[inline]
    pub const fn size(&self) -> usize {
        self.datatype.size()
    }

    /// The largest number of elements whose operands, and values to compare with, take up to `room`
    /// bytes.
    pub fn max_count(&self, room: usize) -> usize {
        let values = if self.has_compare() { 2 } else { 1 };
        room / values / self.size()
    }

    /// Checks that operands of `len` bytes may be posted where `room` bytes are available.
    ///
    /// # Errors
    /// [`Errno::Inval`] for no operands; [`Errno::MsgSize`] for more than fit.
    #[inline]
    pub fn check_len(&self, len: usize, room: usize) -> selvedge::Result {
        match len {
            0 => Err(Errno::Inval),
            _ if len > self.max_count(room) * self.size() => Err(Errno::MsgSize),
            _ => Ok(()),
        }
    }

    /// The family of the operation.
    #[inline]
    pub const fn family(&self) -> Family {
        self.family
    }

    /// The type of the elements.
    #[inline]
    pub const fn datatype(&self) -> Datatype {
        self.datatype
    }

    /// The operation.
    #[inline]
    pub const fn op(&self) -> Op {
        self.op
    }

    /// The flags of the operation's completion at the initiator.
    #[inline]
    pub fn sent(&self) -> CompletionFlags {
        let direction = if self.has_result() {
            CompletionFlags::READ
        } else {
            CompletionFlags::WRITE
        };
        CompletionFlags::ATOMIC.union(direction)
    }

    /// Whether the operation returns the earlier values.
    #[inline]
    pub fn has_result(&self) -> bool {
        self.family != Family::Base
    }

    /// Whether the operation has values to compare with.
    #[inline]
    pub fn has_compare(&self) -> bool {
        self.family == Family::Compare
    }

    /// Whether the operation has operands.
    #[inline]
    pub fn has_operand(&self) -> bool {
        self.op != Op::AtomicRead
    }

    /// Whether the target has to be mapped for writing: a word of 16 bytes may be read by an
    /// instruction that could write it.
    #[inline]
    pub fn writes(&self) -> bool {
        self.op != Op::AtomicRead || self.size() == 16
    }

    /// The rights over the target that the operation requires (fi_atomic(3): a fetch is a read).
    #[inline]
    pub fn access(&self) -> MrAccess {
        access(self.family, self.op == Op::AtomicRead)
    }

    /// Checks that elements may be at this address.
    ///
    /// # Errors
    /// [`Unaligned`], with the address and the required alignment.
    #[inline]
    pub fn check(&self, addr: u64) -> Result<(), Unaligned> {
        let align = self.size();
        if addr.is_multiple_of(align as u64) {
            return Ok(());
        }
        Err(Unaligned { addr, align })
    }

    /// Changes the elements of `target`, one after the other; other code may access them at the
    /// same time. If [`Self::writes`] is `false`, memory that is valid for reads is enough.
    ///
    /// # Errors
    /// [`Unaligned`], before any element is accessed.
    ///
    /// # Panics
    /// If `args` have fewer elements than the target.
    #[inline]
    pub fn apply(&self, target: SharedBytes, args: Args<'_>) -> Result<(), Unaligned> {
        self.check(target.as_ptr().addr() as u64)?;
        let Args {
            operand,
            compare,
            result,
        } = args;
        let len = target.len() / self.size() * self.size();
        let vector = Vector {
            target: target.part(0, len),
            operand: &operand[..if self.has_operand() { len } else { 0 }],
            compare: &compare[..if self.has_compare() { len } else { 0 }],
            result: self.has_result().then(|| &mut result[..len]),
        };
        (self.run)(self.family, self.op, vector);
        Ok(())
    }
}

/// The rights over the target that an operation requires.
#[inline(always)]
const fn access(family: Family, only_reads: bool) -> MrAccess {
    match family {
        Family::Base => MrAccess::REMOTE_WRITE,
        _ if only_reads => MrAccess::REMOTE_READ,
        _ => MrAccess::REMOTE_READ.union(MrAccess::REMOTE_WRITE),
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Kernel({:?} {:?} {:?})",
            self.family, self.op, self.datatype
        )
    }
}

impl fmt::Display for Unaligned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { addr, align } = self;
        write!(f, "atomic target {addr:#x} is no multiple of {align}")
    }
}

/// The table entry of a type.
struct Entry {
    supports: fn(Family, Op) -> bool,
    run: Run,
}

fn entry(datatype: Datatype) -> Option<Entry> {
    if datatype.size() == 16 && !word::has_16_bytes() {
        return None;
    }
    Some(match datatype {
        Datatype::Int8 => entry_of::<i8>(),
        Datatype::Uint8 => entry_of::<u8>(),
        Datatype::Int16 => entry_of::<i16>(),
        Datatype::Uint16 => entry_of::<u16>(),
        Datatype::Int32 => entry_of::<i32>(),
        Datatype::Uint32 => entry_of::<u32>(),
        Datatype::Int64 => entry_of::<i64>(),
        Datatype::Uint64 => entry_of::<u64>(),
        Datatype::Int128 => entry_of::<i128>(),
        Datatype::Uint128 => entry_of::<u128>(),
        Datatype::Float => entry_of::<f32>(),
        Datatype::Double => entry_of::<f64>(),
        Datatype::FloatComplex => entry_of::<Complex<f32>>(),
        Datatype::DoubleComplex => entry_of::<Complex<f64>>(),
        Datatype::Float16 => entry_of::<Float16>(),
        Datatype::Bfloat16 => entry_of::<Bfloat16>(),
        Datatype::Float8E4m3 => entry_of::<E4m3>(),
        Datatype::Float8E5m2 => entry_of::<E5m2>(),
        Datatype::LongDouble => return long_double(),
        Datatype::LongDoubleComplex => return None,
    })
}

/// The entry of C's `long double`; `None` on processors with another format of the type.
const fn long_double() -> Option<Entry> {
    cfg_select! {
        all(target_os = "linux", target_arch = "x86_64") => Some(entry_of::<soft::X87>()),
        all(target_os = "linux", any(target_arch = "aarch64", target_arch = "riscv64")) => {
            Some(entry_of::<soft::Binary128>())
        }
        _ => None,
    }
}

const fn entry_of<N: Number>() -> Entry {
    Entry {
        supports: |family, op| number::plan::<N>(family, op).is_some(),
        run: number::run::<N>,
    }
}
