//! Atomics: their names, and their results on small numbers.

use anyhow::Context as _;
use selvedge::atomic::{Datatype, Op};
use selvedge_testkit::atomics::oracle;
use selvedge_testkit::domain::AtomicCall;

const OPS: [&str; 20] = [
    "min", "max", "sum", "prod", "lor", "land", "bor", "band", "lxor", "bxor", "read", "write",
    "cswap", "cswap_ne", "cswap_le", "cswap_lt", "cswap_ge", "cswap_gt", "mswap", "diff",
];

const TYPES: [&str; 20] = [
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float",
    "double",
    "float_complex",
    "double_complex",
    "long_double",
    "long_double_complex",
    "int128",
    "uint128",
    "float16",
    "bfloat16",
    "float8_e4m3",
    "float8_e5m2",
];

/// The operation with this name.
///
/// # Errors
/// The name is unknown.
pub(in crate::upstream) fn op(name: &str) -> anyhow::Result<Op> {
    let number = number(name, &OPS, "FI_", "atomic_");
    number
        .and_then(Op::from_raw)
        .with_context(|| format!("unknown operation {name:?}"))
}

/// The type with this name.
///
/// # Errors
/// The name is unknown.
pub(in crate::upstream) fn datatype(name: &str) -> anyhow::Result<Datatype> {
    let number = number(name, &TYPES, "FI_", "");
    number
        .and_then(Datatype::from_raw)
        .with_context(|| format!("unknown type {name:?}"))
}

fn number(name: &str, names: &[&str], prefix: &str, infix: &str) -> Option<u32> {
    let upper = name.to_ascii_uppercase();
    let short_name = upper
        .strip_prefix(prefix)
        .unwrap_or(&upper)
        .to_ascii_lowercase();
    let short_name = short_name.strip_prefix(infix).unwrap_or(&short_name);
    let index = names.iter().position(|name| *name == short_name)?;
    u32::try_from(index).ok()
}

/// The name of a call in upstream's tables.
pub(in crate::upstream) fn name(call: AtomicCall) -> String {
    let op = OPS[call.op as usize].to_ascii_uppercase();
    let atomic = match call.op {
        Op::AtomicRead | Op::AtomicWrite => "ATOMIC_",
        _ => "",
    };
    let datatype = TYPES[call.datatype as usize].to_ascii_uppercase();
    format!("FI_{datatype}_FI_{atomic}{op}_lat")
}

/// A `Case` is the value of an element before an operation, and the operands of the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::upstream) struct Case {
    pub(in crate::upstream) target: i64,
    pub(in crate::upstream) operand: i64,
    pub(in crate::upstream) comparand: i64,
}

const fn case(target: i64, operand: i64, comparand: i64) -> Case {
    Case {
        target,
        operand,
        comparand,
    }
}

/// Cases in which different operations have different results. All results of the first four cases
/// are exact in every type.
const CASES: [Case; 5] = [
    case(3, 2, 3),
    case(2, 3, 4),
    case(0, 2, 0),
    case(3, 0, 2),
    case(12, 10, 9),
];

/// The cases of a type.
pub(in crate::upstream) fn cases(datatype: Datatype) -> &'static [Case] {
    if is_integer(datatype) {
        &CASES
    } else {
        &CASES[..4]
    }
}

fn is_integer(datatype: Datatype) -> bool {
    use Datatype::{Int8, Int16, Int32, Int64, Int128, Uint8, Uint16, Uint32, Uint64, Uint128};
    matches!(
        datatype,
        Int8 | Int16 | Int32 | Int64 | Int128 | Uint8 | Uint16 | Uint32 | Uint64 | Uint128
    )
}

/// The result of an operation on an element (fi_atomic(3)).
pub(in crate::upstream) fn expected(op: Op, case: Case) -> i64 {
    let oracle = oracle(Datatype::Int64).expect("64-bit integers have an oracle");
    let [target, operand, comparand] =
        [case.target, case.operand, case.comparand].map(i64::to_ne_bytes);
    let new = oracle(op, &target, &operand, &comparand);
    let new = new.and_then(|new| new.try_into().ok());
    new.map_or(case.target, i64::from_ne_bytes)
}

/// A small number as an element of a type.
pub(in crate::upstream) fn encode(datatype: Datatype, value: i64) -> Vec<u8> {
    let bytes = i128::from(value).to_le_bytes();
    let small = value as f32;
    let mut element = match datatype {
        _ if is_integer(datatype) => bytes[..datatype.size()].to_vec(),
        Datatype::Float | Datatype::FloatComplex => small.to_le_bytes().to_vec(),
        Datatype::Double | Datatype::DoubleComplex => f64::from(small).to_le_bytes().to_vec(),
        Datatype::Float16 => float(value, 15, 10).to_le_bytes()[..2].to_vec(),
        Datatype::Bfloat16 => float(value, 127, 7).to_le_bytes()[..2].to_vec(),
        Datatype::Float8E4m3 => vec![minifloat(value, 7, 3, 0x80)],
        Datatype::Float8E5m2 => vec![minifloat(value, 15, 2, 0x80)],
        _ => extended(value),
    };
    // The imaginary part of a complex number is zero.
    element.resize(datatype.size(), 0);
    element
}

/// A small number in a 16-bit floating-point format: the sign in bit 15, then an exponent with
/// `bias`, then `mantissa` bits of mantissa.
fn float(value: i64, bias: u32, mantissa: u32) -> u16 {
    let sign = if value < 0 { 0x8000 } else { 0 };
    sign | magnitude(value, bias, mantissa) as u16
}

fn minifloat(value: i64, bias: u32, mantissa: u32, sign: u8) -> u8 {
    let sign = if value < 0 { sign } else { 0 };
    sign | magnitude(value, bias, mantissa) as u8
}

fn magnitude(value: i64, bias: u32, mantissa: u32) -> u32 {
    let value = value.unsigned_abs() as u32;
    let Some(exponent) = value.checked_ilog2() else {
        return 0;
    };
    let fraction = (value << mantissa >> exponent) & ((1 << mantissa) - 1);
    (exponent + bias) << mantissa | fraction
}

/// A small number as a `long double`, in the 80-bit format on x86 and in the 128-bit format
/// elsewhere.
fn extended(value: i64) -> Vec<u8> {
    let size = value.unsigned_abs();
    let mut bytes = vec![0; 16];
    let Some(exponent) = size.checked_ilog2() else {
        return bytes;
    };
    let sign = if value < 0 { 0x8000 } else { 0 };
    let head = (16383 + exponent as u16) | sign;
    if cfg!(any(target_arch = "x86_64", target_arch = "x86")) {
        bytes[..8].copy_from_slice(&(size << (63 - exponent)).to_le_bytes());
        bytes[8..10].copy_from_slice(&head.to_le_bytes());
    } else {
        let fraction = u128::from(size) << (112 - exponent) & ((1 << 112) - 1);
        bytes = (u128::from(head) << 112 | fraction).to_le_bytes().to_vec();
    }
    bytes
}

/// Whether each byte of an element belongs to the number rather than to padding. The 16 values
/// repeat over a longer element.
pub(in crate::upstream) fn significant_bytes(datatype: Datatype) -> Vec<bool> {
    let has_padding = matches!(datatype, Datatype::LongDouble | Datatype::LongDoubleComplex)
        && cfg!(any(target_arch = "x86_64", target_arch = "x86"));
    (0..16).map(|at| !has_padding || at < 10).collect()
}

#[cfg(test)]
mod tests {
    use selvedge::atomic::Family;

    use super::*;

    #[test]
    fn names_are_read_and_written() {
        assert_eq!(op("min").unwrap(), Op::Min);
        assert_eq!(op("FI_ATOMIC_READ").unwrap(), Op::AtomicRead);
        assert_eq!(op("cswap_gt").unwrap(), Op::CswapGt);
        assert_eq!(datatype("uint64").unwrap(), Datatype::Uint64);
        assert!(op("minimum").is_err() && datatype("int7").is_err());
        let call = AtomicCall {
            family: Family::Fetch,
            datatype: Datatype::Int8,
            op: Op::AtomicRead,
        };
        assert_eq!(name(call), "FI_INT8_FI_ATOMIC_READ_lat");
    }

    /// Except for reads, every operation changes some element, and no two operations have the same
    /// results.
    #[test]
    fn the_cases_distinguish_every_operation_from_the_others() {
        let results = |op: Op| CASES.map(|case| expected(op, case));
        let before = CASES.map(|case| case.target);
        for &one in Op::ALL {
            assert_eq!(results(one) == before, one == Op::AtomicRead, "{one:?}");
            for &other in Op::ALL {
                assert!(
                    one == other || results(one) != results(other),
                    "{one:?} {other:?}"
                );
            }
        }
    }

    #[test]
    fn small_numbers_in_every_format() {
        assert_eq!(encode(Datatype::Int16, -1), [0xff, 0xff]);
        assert_eq!(encode(Datatype::Float16, 3), 0x4200_u16.to_le_bytes());
        assert_eq!(encode(Datatype::Bfloat16, -1), 0xbf80_u16.to_le_bytes());
        assert_eq!(encode(Datatype::Float8E4m3, 3), [0x44]);
        assert_eq!(encode(Datatype::Float8E5m2, 6), [0x46]);
        assert_eq!(
            encode(Datatype::FloatComplex, 2),
            [0, 0, 0, 0x40, 0, 0, 0, 0]
        );
        assert_eq!(encode(Datatype::LongDouble, 0), [0; 16]);
    }
}
