//! The expected results of atomics (fi_atomic(3)), computed with the numbers of the machine.

use selvedge::atomic::{Datatype, Family, Op};

/// The families that an operation belongs to.
pub fn families(op: Op) -> &'static [Family] {
    match op {
        Op::AtomicRead => &[Family::Fetch],
        Op::Cswap
        | Op::CswapNe
        | Op::CswapLe
        | Op::CswapLt
        | Op::CswapGe
        | Op::CswapGt
        | Op::Mswap => &[Family::Compare],
        _ => &[Family::Base, Family::Fetch],
    }
}

/// Computes the new value of one element from the old value, the operand and the comparand; `None`
/// for an invalid operation.
pub type Oracle = fn(Op, &[u8], &[u8], &[u8]) -> Option<Vec<u8>>;

/// Defines the oracle of one number type: the operations that all number types share, and the
/// others.
macro_rules! number {
    ($name:ident $kind:ty, $zero:literal $one:literal, $old:ident $operand:ident $compare:ident
     $($pattern:pat => $new:expr),+) => {
        fn $name(op: Op, old: &[u8], operand: &[u8], compare: &[u8]) -> Option<Vec<u8>> {
            let read = |bytes: &[u8]| bytes.try_into().map_or($zero, <$kind>::from_ne_bytes);
            let ($old, $operand, $compare) = (read(old), read(operand), read(compare));
            let truth = |is_so: bool| if is_so { $one } else { $zero };
            let swapped = |is_so: bool| if is_so { $operand } else { $old };
            let new: $kind = match op {
                Op::Min => swapped($operand < $old),
                Op::Max => swapped($operand > $old),
                Op::Lor => truth($old != $zero || $operand != $zero),
                Op::Land => truth($old != $zero && $operand != $zero),
                Op::Lxor => truth(($old != $zero) != ($operand != $zero)),
                Op::AtomicRead => $old,
                Op::AtomicWrite => $operand,
                Op::Cswap => swapped($compare == $old),
                Op::CswapNe => swapped($compare != $old),
                Op::CswapLe => swapped($compare <= $old),
                Op::CswapLt => swapped($compare < $old),
                Op::CswapGe => swapped($compare >= $old),
                Op::CswapGt => swapped($compare > $old),
                $($pattern => $new),+
            };
            Some(new.to_ne_bytes().to_vec())
        }
    };
}

macro_rules! integers {
    ($($name:ident $kind:ty),+) => { $(number! {
        $name $kind, 0 1, old operand compare
        Op::Sum => old.wrapping_add(operand),
        Op::Diff => old.wrapping_sub(operand),
        Op::Prod => old.wrapping_mul(operand),
        Op::Bor => old | operand,
        Op::Band => old & operand,
        Op::Bxor => old ^ operand,
        Op::Mswap => (operand & compare) | (old & !compare)
    })+ };
}

macro_rules! floats {
    ($($name:ident $kind:ty),+) => { $(number! {
        $name $kind, 0.0 1.0, old operand compare
        Op::Sum => old + operand,
        Op::Diff => old - operand,
        Op::Prod => old * operand,
        Op::Bor | Op::Band | Op::Bxor | Op::Mswap => return None
    })+ };
}

integers!(int8 i8, uint8 u8, int16 i16, uint16 u16, int32 i32, uint32 u32, int64 i64, uint64 u64, int128 i128, uint128 u128);
floats!(float f32, double f64);

/// The oracle of a data type, if the machine has the type.
pub fn oracle(datatype: Datatype) -> Option<Oracle> {
    Some(match datatype {
        Datatype::Int8 => int8,
        Datatype::Uint8 => uint8,
        Datatype::Int16 => int16,
        Datatype::Uint16 => uint16,
        Datatype::Int32 => int32,
        Datatype::Uint32 => uint32,
        Datatype::Int64 => int64,
        Datatype::Uint64 => uint64,
        Datatype::Int128 => int128,
        Datatype::Uint128 => uint128,
        Datatype::Float => float,
        Datatype::Double => double,
        _ => return None,
    })
}
