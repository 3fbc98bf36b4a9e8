//! The kernels of fi_atomic(3), compared with an independent oracle.

#![expect(
    clippy::unwrap_used,
    unsafe_code,
    reason = "tests may use the raw layer, and fail by panicking"
)]

mod oracle;
mod threads;

use std::sync::atomic::AtomicU64;

use oracle::Format;
use selvedge::atomic::{Datatype, Family, Op};
use selvedge::shared::SharedBytes;
use selvedge::{Errno, MrAccess};
use selvedge_kit::atomic::{Args, Kernel, Single, query};

pub(crate) const FAMILIES: [Family; 3] = [Family::Base, Family::Fetch, Family::Compare];

/// The operations that fi_atomic(3) lists for the family and defines for the type, independently of
/// the kernels' table.
fn is_defined(family: Family, datatype: Datatype, op: Op) -> bool {
    let fits_family = match op {
        Op::AtomicRead => family == Family::Fetch,
        Op::Cswap
        | Op::CswapNe
        | Op::CswapLe
        | Op::CswapLt
        | Op::CswapGe
        | Op::CswapGt
        | Op::Mswap => family == Family::Compare,
        _ => family != Family::Compare,
    };
    let fits_type = match op {
        Op::Bor | Op::Band | Op::Bxor | Op::Mswap => {
            matches!(oracle::format(datatype), Format::Integer { .. })
        }
        Op::Min | Op::Max | Op::CswapLe | Op::CswapLt | Op::CswapGe | Op::CswapGt => {
            !matches!(oracle::format(datatype), Format::Complex(_))
        }
        _ => true,
    };
    fits_family && fits_type
}

/// Every combination (family, type, operation).
pub(crate) fn combinations() -> impl Iterator<Item = (Family, Datatype, Op)> {
    FAMILIES.into_iter().flat_map(|family| {
        Datatype::ALL.iter().flat_map(move |&datatype| {
            let ops = Op::ALL.iter();
            ops.map(move |&op| (family, datatype, op))
        })
    })
}

#[test]
fn the_supported_operations_are_those_of_the_man_page() {
    for (family, datatype, op) in combinations() {
        let is_supported = query(family, datatype, op).is_ok();
        let expected = datatype != Datatype::LongDoubleComplex && is_defined(family, datatype, op);
        assert_eq!(is_supported, expected, "{family:?} {datatype:?} {op:?}");
    }
    let refused = query(Family::Base, Datatype::LongDoubleComplex, Op::Sum);
    assert_eq!(refused.unwrap_err(), Errno::OpNotSupp);
}

/// Runs a kernel on one element. Returns the target after the operation, and the reported earlier
/// value.
fn run(kernel: &Kernel, target: u128, compare: u128, operand: u128) -> (u128, Option<u128>) {
    #[repr(align(16))]
    struct Memory([u8; 16]);
    let size = kernel.size();
    let mut memory = Memory(target.to_le_bytes());
    let (operand, compare) = (operand.to_le_bytes(), compare.to_le_bytes());
    let mut result = [0; 16];
    let args = Args {
        operand: &operand[..size],
        compare: &compare[..size],
        result: &mut result[..size],
    };
    // SAFETY: no other code accesses the memory.
    let target = unsafe { SharedBytes::new(memory.0.as_mut_ptr(), size) };
    kernel.apply(target, args).unwrap();
    let old = kernel.has_result().then(|| u128::from_le_bytes(result));
    (u128::from_le_bytes(memory.0), old)
}

#[test]
fn every_operation_on_every_type_has_the_result_of_the_oracle() {
    for (family, datatype, op) in combinations() {
        let Ok(kernel) = query(family, datatype, op) else {
            continue;
        };
        let samples = oracle::samples(datatype);
        let compares = if kernel.has_compare() {
            &samples[..]
        } else {
            &samples[..1]
        };
        let mut changed = false;
        for &target in &samples {
            for (&compare, &operand) in compares
                .iter()
                .flat_map(|c| samples.iter().map(move |o| (c, o)))
            {
                let (after, old) = run(&kernel, target, compare, operand);
                let case = format!("{kernel:?}: {target:#x} {compare:#x} {operand:#x}");
                assert!(old.is_none_or(|old| old == target), "{case} had {old:?}");
                let expected = oracle::apply(datatype, op, target, compare, operand);
                assert!(
                    oracle::is_same(datatype, after, expected),
                    "{case} is {after:#x}, should be {expected:#x}"
                );
                changed |= !oracle::is_same(datatype, after, target);
            }
        }
        assert_eq!(
            changed,
            op != Op::AtomicRead,
            "whether {kernel:?} changes any sample"
        );
    }
}

#[test]
fn a_single_has_the_result_of_its_kernel() {
    let mut singles = 0;
    for (family, datatype, op) in combinations() {
        let Some(single) = Single::of(family, datatype, op) else {
            continue;
        };
        singles += 1;
        let kernel = query(family, datatype, op).unwrap();
        assert_eq!(single.family(), family);
        assert_eq!(single.has_operand(), kernel.has_operand(), "{kernel:?}");
        assert_eq!(single.writes(), kernel.writes(), "{kernel:?}");
        assert_eq!(single.access(), kernel.access(), "{kernel:?}");
        let samples = oracle::samples(datatype);
        for &target in &samples {
            for (&compare, &operand) in samples
                .iter()
                .flat_map(|c| samples.iter().map(move |o| (c, o)))
            {
                let word = AtomicU64::new(target as u64);
                let old = single.apply(&word, operand as u64, compare as u64);
                assert_eq!(u128::from(old), target, "{kernel:?}");
                let (after, _) = run(&kernel, target, compare, operand);
                assert_eq!(
                    u128::from(word.into_inner()),
                    after,
                    "{kernel:?}: {target:#x}"
                );
            }
        }
    }
    // For each of two types: six operations with two families, and two operations with one family.
    assert_eq!(singles, 2 * (2 * 6 + 2));
}

/// Any two operations of a type differ on some sample, so that a confusion of the two is detected.
#[test]
fn the_samples_distinguish_all_operations() {
    for &datatype in Datatype::ALL {
        let samples = oracle::samples(datatype);
        let ops = Op::ALL
            .iter()
            .filter(|op| FAMILIES.iter().any(|f| is_defined(*f, datatype, **op)));
        let outcomes: Vec<Vec<u128>> = ops
            .map(|&op| {
                let pairs = samples
                    .iter()
                    .flat_map(|&t| samples.iter().map(move |&o| (t, o)));
                pairs
                    .map(|(t, o)| oracle::apply(datatype, op, t, samples[3], o))
                    .collect()
            })
            .collect();
        for (index, outcome) in outcomes.iter().enumerate() {
            assert!(
                !outcomes[..index].contains(outcome),
                "{datatype:?}: number {index}"
            );
        }
    }
}

#[test]
fn a_vector_is_changed_element_by_element_and_no_byte_beyond() {
    let kernel = query(Family::Fetch, Datatype::Uint32, Op::Sum).unwrap();
    let mut memory = [1_u32, 2, 3, u32::MAX, 5];
    let operand: Vec<u8> = [10_u32, 20, 30]
        .iter()
        .flat_map(|n| n.to_ne_bytes())
        .collect();
    let mut result = [0; 12];
    let args = Args {
        operand: &operand,
        compare: &[],
        result: &mut result,
    };
    // SAFETY: no other code accesses the array.
    let all = unsafe { SharedBytes::new(memory.as_mut_ptr().cast(), 20) };
    kernel.apply(all.part(4, 12), args).unwrap();
    assert_eq!(memory, [1, 12, 23, 29, 5]);
    let earlier: Vec<u32> = result
        .as_chunks()
        .0
        .iter()
        .map(|b| u32::from_ne_bytes(*b))
        .collect();
    assert_eq!(earlier, [2, 3, u32::MAX]);
}

#[test]
fn an_unaligned_target_is_refused_with_its_address_and_unchanged() {
    #[repr(align(16))]
    struct Memory([u8; 32]);
    for (family, datatype, op) in combinations() {
        let Ok(kernel) = query(family, datatype, op) else {
            continue;
        };
        if kernel.size() == 1 {
            continue;
        }
        let mut memory = Memory([7; 32]);
        let (ones, mut result) = ([1; 16], [0; 16]);
        let unaligned = memory.0[kernel.size() / 2..].as_mut_ptr();
        let args = Args {
            operand: &ones,
            compare: &ones,
            result: &mut result,
        };
        // SAFETY: an element is inside the array, which no other code accesses.
        let target = unsafe { SharedBytes::new(unaligned, kernel.size()) };
        let refused = kernel.apply(target, args).unwrap_err();
        assert_eq!(refused.addr, unaligned.addr() as u64);
        assert!(
            refused
                .to_string()
                .contains(&format!("{:#x}", unaligned.addr())),
            "{refused}"
        );
        assert_eq!(memory.0, [7; 32]);
    }
}

#[test]
fn fetching_requires_read_access_and_changing_requires_write_access() {
    let access = |family, op| query(family, Datatype::Int64, op).unwrap().access();
    let both = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
    assert_eq!(access(Family::Base, Op::Sum), MrAccess::REMOTE_WRITE);
    assert_eq!(access(Family::Fetch, Op::AtomicRead), MrAccess::REMOTE_READ);
    assert_eq!(access(Family::Fetch, Op::AtomicWrite), both);
    assert_eq!(access(Family::Compare, Op::Cswap), both);
}
