//! Denied atomics: an error with key and address, and unchanged memory.

use selvedge::atomic::{Datatype, Family, Op};
use selvedge::{Context, Errno, FiAddr, OpFlags};

use crate::pair::{AtomicPair, Call, Kind, RIGHTS, register};

const KEY: u64 = 0x7e57;

#[test]
fn a_wrong_key_address_or_alignment_is_reported_with_key_and_address() {
    let pair = AtomicPair::new();
    let one = 1_u64.to_ne_bytes();
    for kind in Kind::ALL {
        let block = register(&pair.b, kind, 64, RIGHTS, KEY);
        for family in [Family::Base, Family::Fetch] {
            for (key, addr, count, errno) in [
                (KEY + 1, 0, 1, Errno::KeyRejected),
                (u64::MAX, 0, 1, Errno::KeyRejected),
                (KEY, 64, 1, Errno::Fault),
                (KEY, 57, 1, Errno::Fault),
                (KEY, u64::MAX - 7, 1, Errno::Fault),
                (KEY, 4, 1, Errno::Inval),
                (KEY, 1, 1, Errno::Inval),
            ] {
                let result_lens = if family == Family::Base {
                    &[][..]
                } else {
                    &[1]
                };
                let (operands, targets) = ([&one[..]], [(addr, count)]);
                let mut call = pair.sum(family, &block, &operands, result_lens, &targets);
                call.key = key;
                call.post(&pair.a, 5).unwrap();
                let error = pair.wait_at_a().unwrap_err();
                assert_eq!(
                    (error.errno, error.entry.context),
                    (errno, Context(5)),
                    "{error:?}"
                );
                assert_eq!(error.src, pair.to_b);
                for wanted in [format!("{key:#x}"), format!("{addr:#x}")] {
                    assert!(error.detail.contains(&wanted), "{error:?}");
                }
            }
        }
        assert_eq!(block.memory.bytes(), [0; 64]);
    }
}

#[test]
fn when_one_target_of_a_list_is_wrong_none_is_changed() {
    let pair = AtomicPair::new();
    let ones = 1_u64.to_ne_bytes().repeat(3);
    for kind in Kind::ALL {
        let block = register(&pair.b, kind, 64, RIGHTS, KEY);
        for wrong in [60, 64, 1 << 40] {
            let targets = [(0, 1), (8, 1), (wrong, 1)];
            let operands = [&ones[..]];
            pair.sum(Family::Base, &block, &operands, &[], &targets)
                .post(&pair.a, 5)
                .unwrap();
            let error = pair.wait_at_a().unwrap_err();
            assert!(error.detail.contains(&format!("{wrong:#x}")), "{error:?}");
        }
        assert_eq!(block.memory.bytes(), [0; 64]);
    }
}

#[test]
fn memory_whose_registration_has_ended_is_refused() {
    let pair = AtomicPair::new();
    let one = 1_u64.to_ne_bytes();
    for kind in Kind::ALL {
        let block = register(&pair.b, kind, 64, RIGHTS, KEY);
        let operands = [&one[..]];
        let call = pair.sum(Family::Base, &block, &operands, &[], &[(0, 1)]);
        call.post(&pair.a, 1).unwrap();
        pair.wait_at_a().unwrap();
        drop(block);
        call.post(&pair.a, 2).unwrap();
        assert_eq!(pair.wait_at_a().unwrap_err().errno, Errno::KeyRejected);
    }
}

/// The region is withdrawn between the initiator's check of the key table and the target's.
#[test]
fn the_target_checks_the_key_again() {
    let pair = AtomicPair::new();
    let one = 1_u64.to_ne_bytes();
    let block = register(&pair.b, Kind::Plain, 64, RIGHTS, KEY);
    let operands = [&one[..]];
    let call = pair.sum(Family::Fetch, &block, &operands, &[1], &[(0, 1)]);
    call.post(&pair.a, 1).unwrap();
    pair.wait_at_a().unwrap();
    call.post(&pair.a, 2).unwrap();
    drop(block);
    let error = pair.wait_at_a().unwrap_err();
    assert_eq!(
        (error.errno, error.entry.context),
        (Errno::KeyRejected, Context(2))
    );
    assert!(error.detail.contains("0x7e57"), "{error:?}");
}

#[test]
fn invalid_calls_are_refused_at_once() {
    let pair = AtomicPair::new();
    let block = register(&pair.b, Kind::Plain, 64, RIGHTS, KEY);
    let ones = 1_u64.to_ne_bytes().repeat(2);
    let (one, two) = (&ones[..8], &ones[..]);
    let sum = |operand: &[&[u8]],
               result: &[usize],
               targets: &[(u64, usize)],
               change: fn(&mut Call<'_>)| {
        let mut call = pair.sum(Family::Fetch, &block, operand, result, targets);
        change(&mut call);
        call.post(&pair.a, 1).err()
    };
    let unchanged = |_: &mut Call<'_>| {};
    let inval = Some(Errno::Inval);
    assert_eq!(sum(&[one], &[1], &[], unchanged), inval);
    assert_eq!(sum(&[], &[], &[(0, 0)], unchanged), inval);
    assert_eq!(sum(&[two], &[1], &[(0, 1)], unchanged), inval);
    assert_eq!(sum(&[one], &[2], &[(0, 1)], unchanged), inval);
    assert_eq!(sum(&[one], &[1], &[(0, 2)], unchanged), inval);
    assert_eq!(sum(&[one; 5], &[5], &[(0, 5)], unchanged), inval);
    assert_eq!(sum(&[one], &[1], &[(0, 1); 5], unchanged), inval);
    assert_eq!(
        sum(&[one], &[1], &[(0, usize::MAX)], unchanged),
        Some(Errno::MsgSize)
    );
    let unknown_peer = |call: &mut Call<'_>| call.dest = FiAddr(77);
    assert_eq!(sum(&[one], &[1], &[(0, 1)], unknown_peer), inval);
    let tagged = |call: &mut Call<'_>| call.flags = OpFlags::TAGGED;
    assert_eq!(sum(&[one], &[1], &[(0, 1)], tagged), Some(Errno::BadFlags));
    let complex = |call: &mut Call<'_>| {
        (call.datatype, call.op) = (Datatype::FloatComplex, Op::Max);
    };
    assert_eq!(
        sum(&[one], &[1], &[(0, 1)], complex),
        Some(Errno::OpNotSupp)
    );
    let target = pair.target(&block, 0);
    assert_eq!(
        pair.a.ep.inject_atomic(&ones[..9], &target),
        Err(Errno::Inval)
    );
    assert_eq!(pair.a.ep.inject_atomic(&[], &target), Err(Errno::Inval));
    assert_eq!(
        pair.a.ep.inject_atomic(&[0; 8192], &target),
        Err(Errno::MsgSize)
    );
    pair.settle();
    assert!(pair.a.poll().is_none() && block.memory.bytes() == [0; 64]);
}
