//! Kernels and the owner's own instructions on one word at the same time: no change is lost.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;

use selvedge::atomic::{Datatype, Family, Op};
use selvedge::shared::SharedBytes;
use selvedge_kit::atomic::{Args, query};

/// Enough rounds for both threads to run at the same time, on a loaded machine.
const ROUNDS: u32 = 200_000;

#[repr(align(16))]
struct Cell(std::cell::UnsafeCell<[u8; 16]>);

// SAFETY: the tests access the cell by atomics alone while threads share it.
unsafe impl Sync for Cell {}

/// Two threads each add one to a target of this type, [`ROUNDS`] times.
fn add_ones(datatype: Datatype, one: u128, cell: &Cell) {
    let start = &Barrier::new(2);
    thread::scope(|scope| {
        for family in [Family::Base, Family::Fetch] {
            scope.spawn(move || {
                start.wait();
                let kernel = query(family, datatype, Op::Sum).unwrap();
                let (operand, mut result) = (one.to_le_bytes(), [0; 16]);
                for _ in 0..ROUNDS {
                    let args = Args {
                        operand: &operand,
                        compare: &[],
                        result: &mut result,
                    };
                    // SAFETY: the cell is large enough, and only such kernels change its bytes.
                    let all = unsafe { SharedBytes::new(cell.0.get().cast(), 16) };
                    kernel.apply(all.part(0, kernel.size()), args).unwrap();
                }
            });
        }
    });
}

#[test]
fn sums_of_two_threads_are_exact_for_words_of_every_size() {
    let sum = u128::from(2 * ROUNDS);
    for (datatype, one, expected) in [
        (Datatype::Uint8, 1, sum & 0xff),
        (Datatype::Uint16, 1, sum & 0xffff),
        (Datatype::Int32, 1, sum),
        (Datatype::Uint64, 1, sum),
        (Datatype::Uint128, 1 << 64 | 1, sum << 64 | sum),
        (
            Datatype::Float,
            u128::from(1_f32.to_bits()),
            u128::from((sum as f32).to_bits()),
        ),
        (
            Datatype::Double,
            u128::from(1_f64.to_bits()),
            u128::from((sum as f64).to_bits()),
        ),
    ] {
        let cell = Cell([0; 16].into());
        add_ones(datatype, one, &cell);
        assert_eq!(
            u128::from_le_bytes(cell.0.into_inner()),
            expected,
            "{datatype:?}"
        );
    }
}

#[test]
fn both_parts_of_a_complex_number_change_together() {
    let one = u128::from(1_f64.to_bits()) << 64 | u128::from((-1_f64).to_bits());
    let cell = Cell([0; 16].into());
    add_ones(Datatype::DoubleComplex, one, &cell);
    let bits = u128::from_le_bytes(cell.0.into_inner());
    let (re, im) = (
        f64::from_bits(bits as u64),
        f64::from_bits((bits >> 64) as u64),
    );
    assert_eq!((re, im), (-f64::from(2 * ROUNDS), f64::from(2 * ROUNDS)));
}

#[test]
fn kernels_and_the_owners_own_instructions_lose_no_change() {
    let cell = AtomicU64::new(0);
    let kernel = query(Family::Fetch, Datatype::Uint64, Op::Sum).unwrap();
    let start = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            start.wait();
            for _ in 0..ROUNDS {
                cell.fetch_add(1, Ordering::Relaxed);
            }
        });
        scope.spawn(|| {
            start.wait();
            let mut result = [0; 8];
            for _ in 0..ROUNDS {
                let args = Args {
                    operand: &1_u64.to_ne_bytes(),
                    compare: &[],
                    result: &mut result,
                };
                // SAFETY: the cell is a granule, and changed by atomics of its size alone.
                let target = unsafe { SharedBytes::new(cell.as_ptr().cast(), 8) };
                kernel.apply(target, args).unwrap();
            }
        });
    });
    assert_eq!(cell.into_inner(), u64::from(2 * ROUNDS));
}

#[test]
fn a_compare_and_swap_lock_excludes_threads() {
    let (lock, inside) = (AtomicU32::new(0), AtomicU32::new(0));
    let kernel = query(Family::Compare, Datatype::Uint32, Op::Cswap).unwrap();
    let swap = |expected: u32, new: u32| {
        let mut result = [0; 4];
        let args = Args {
            operand: &new.to_ne_bytes(),
            compare: &expected.to_ne_bytes(),
            result: &mut result,
        };
        // SAFETY: the lock is a granule, and changed by atomics of its size alone.
        let target = unsafe { SharedBytes::new(lock.as_ptr().cast(), 4) };
        kernel.apply(target, args).unwrap();
        u32::from_ne_bytes(result) == expected
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..ROUNDS / 100 {
                    while !swap(0, 1) {
                        thread::yield_now();
                    }
                    let count = inside.load(Ordering::Relaxed);
                    inside.store(count + 1, Ordering::Relaxed);
                    assert!(swap(1, 0), "the lock was held");
                }
            });
        }
    });
    assert_eq!(inside.into_inner(), ROUNDS / 100 * 2);
}
