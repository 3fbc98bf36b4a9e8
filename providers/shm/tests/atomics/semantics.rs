//! Results and completions of atomics.

#![expect(unsafe_code, reason = "a kernel on local memory")]

use selvedge::atomic::{Datatype, Family, Op, Target};
use selvedge::shared::SharedBytes;
use selvedge::{CompletionFlags, Context, EpOption, EpOptionName, Errno, MrAccess, OpFlags, cntr};
use selvedge_kit::atomic::{Args, query};
use selvedge_testkit::domain::Block;
use selvedge_testkit::local::{EndpointPair, LocalEndpoint};

use crate::pair::{AtomicPair, Call, Kind, RIGHTS, info, open, register};

const FAMILIES: [Family; 3] = [Family::Base, Family::Fetch, Family::Compare];

/// Bytes that are valid numbers of every type.
fn bytes(seed: u8, len: usize) -> Vec<u8> {
    let next = |x: &u8| Some(x.wrapping_mul(37).wrapping_add(11));
    std::iter::successors(Some(seed), next)
        .map(|x| x & 0x3f)
        .take(len)
        .collect()
}

/// Every combination of family, type and operation either changes a peer's memory as its kernel
/// changes local memory, or is refused by query and post alike. Each combination runs on one
/// element and on two elements, which may take different paths, with equal and with unequal compare
/// values.
#[test]
fn a_query_agrees_with_the_peer_s_atomics() {
    let pair = AtomicPair::new();
    for kind in Kind::ALL {
        let block = register(&pair.b, kind, 64, RIGHTS, 7);
        for family in FAMILIES {
            for &datatype in Datatype::ALL {
                for &op in Op::ALL {
                    for (count, equals) in [(1, false), (1, true), (2, false), (2, true)] {
                        check_combination(&pair, &block, (family, datatype, op), count, equals);
                    }
                }
            }
        }
    }
}

fn check_combination(
    pair: &AtomicPair,
    block: &Block,
    (family, datatype, op): (Family, Datatype, Op),
    count: usize,
    equals: bool,
) {
    let len = count * datatype.size();
    let (before, operand) = (bytes(3, 64), bytes(77, len));
    let compare = if equals {
        before[16..].iter().copied().cycle().take(len).collect()
    } else {
        bytes(3, len)
    };
    block.memory.put(0, &before);
    let has_operand = op != Op::AtomicRead;
    let call = Call {
        family,
        datatype,
        op,
        operand: if has_operand { &[&operand] } else { &[] },
        compare: if family == Family::Compare {
            &[&compare]
        } else {
            &[]
        },
        result: if family == Family::Base {
            &[]
        } else {
            &[count]
        },
        targets: &[(16, count)],
        key: block.rights.key(),
        dest: pair.to_b,
        flags: OpFlags::DEFAULT,
        data: 0,
    };
    let attr = pair.a.domain().query_atomic(family, datatype, op);
    assert_eq!(attr, pair.a.ep.valid(family, datatype, op));
    let case = format!("{family:?} {datatype:?} {op:?} of {count}, {equals}");
    let posted = call.post(&pair.a, 1);
    let Ok(kernel) = query(family, datatype, op) else {
        assert_eq!(posted.err(), Some(Errno::OpNotSupp), "{case}");
        assert_eq!(attr.err(), Some(Errno::OpNotSupp), "{case}");
        return;
    };
    assert_eq!(attr.map(|attr| attr.size), Ok(datatype.size()));
    let results = posted.unwrap();
    let done = pair.wait_at_a().unwrap();
    let direction = match family {
        Family::Base => CompletionFlags::WRITE,
        _ => CompletionFlags::READ,
    };
    assert_eq!(
        (done.context, done.flags),
        (Context(1), CompletionFlags::ATOMIC | direction)
    );

    let mut expected = vec![0_u128; 4];
    let mut earlier = vec![0; len];
    let local = expected.as_mut_ptr().cast::<u8>();
    // SAFETY: the vector has 64 bytes.
    unsafe { local.copy_from_nonoverlapping(before.as_ptr(), 64) };
    let args = Args {
        operand: &operand,
        compare: &compare,
        result: &mut earlier,
    };
    // SAFETY: the vector has 64 bytes, which no other thread accesses.
    let all = unsafe { SharedBytes::new(local, 64) };
    let elements = all.part(16, count * kernel.size());
    kernel.apply(elements, args).unwrap();
    let mut after = vec![0; 64];
    // SAFETY: the vector has 64 bytes.
    unsafe { after.as_mut_ptr().copy_from_nonoverlapping(local, 64) };
    assert_eq!(block.memory.bytes(), after, "{case}");
    match family {
        Family::Base => assert!(results.is_empty()),
        _ => assert_eq!(results[0], earlier, "{case}"),
    }
    if family == Family::Base {
        block.memory.put(0, &before);
        let target = Target {
            datatype,
            op,
            ..pair.target(block, 16)
        };
        pair.a.ep.inject_atomic(&operand, &target).unwrap();
        for _ in 0..4 {
            pair.a.progress();
            pair.b.progress();
        }
        assert_eq!(block.memory.bytes(), after, "{case}, injected");
    }
}

#[test]
fn lists_of_operands_results_and_targets_need_not_match_segment_by_segment() {
    let pair = AtomicPair::new();
    for kind in Kind::ALL {
        let block = register(&pair.b, kind, 4096, RIGHTS, 7);
        let words: Vec<u64> = (0..512).collect();
        let before: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        block.memory.put(0, &before);
        let operand: Vec<u8> = (0..60_u64)
            .flat_map(|word| (word * 1000).to_ne_bytes())
            .collect();
        let (first, second) = operand.split_at(8);
        let targets = [(0, 10), (800, 30), (2400, 1), (3200, 19)];
        let operands = [first, second];
        let call = pair.sum(Family::Fetch, &block, &operands, &[5, 55], &targets);
        let results = call.post(&pair.a, 1).unwrap();
        pair.wait_at_a().unwrap();
        let results: Vec<u8> = results.concat();
        let mut position = 0;
        for (addr, count) in targets {
            for element in 0..count {
                let index = addr as usize / 8 + element;
                let earlier = u64::from_ne_bytes(results.as_chunks().0[position]);
                assert_eq!(earlier, index as u64, "element {position}");
                assert_eq!(
                    block.memory.word(8 * index),
                    index as u64 + position as u64 * 1000
                );
                position += 1;
            }
        }
        let sum: u64 = (0..512).map(|index| block.memory.word(8 * index)).sum();
        assert_eq!(sum, (0..512).sum::<u64>() + (0..60).sum::<u64>() * 1000);
    }
}

#[test]
fn one_call_takes_as_many_elements_as_the_query_states_and_no_more() {
    let pair = AtomicPair::new();
    for kind in Kind::ALL {
        let block = register(&pair.b, kind, 8192, RIGHTS, 7);
        for family in FAMILIES {
            let op = if family == Family::Compare {
                Op::CswapNe
            } else {
                Op::Sum
            };
            let attr = pair
                .a
                .domain()
                .query_atomic(family, Datatype::Uint16, op)
                .unwrap();
            let ones = 1_u16.to_ne_bytes().repeat(attr.count + 1);
            let call = |count: usize, targets: &[(u64, usize)]| {
                block.memory.put(0, &[0; 8192]);
                let operand = &ones[..2 * count];
                let call = Call {
                    family,
                    datatype: Datatype::Uint16,
                    op,
                    operand: &[operand],
                    compare: if family == Family::Compare {
                        &[operand]
                    } else {
                        &[]
                    },
                    result: if family == Family::Base {
                        &[]
                    } else {
                        &[count]
                    },
                    targets,
                    key: block.rights.key(),
                    dest: pair.to_b,
                    flags: OpFlags::DEFAULT,
                    data: 0,
                };
                call.post(&pair.a, 1)
            };
            assert_eq!(
                call(attr.count + 1, &[(0, attr.count + 1)]).err(),
                Some(Errno::MsgSize)
            );
            call(attr.count, &[(0, attr.count)]).unwrap();
            pair.wait_at_a().unwrap();
            assert_eq!(
                block.memory.bytes()[..2 * attr.count],
                ones[..2 * attr.count]
            );
        }
    }
    let size = pair
        .a
        .domain()
        .query_atomic(Family::Base, Datatype::Int8, Op::Sum)
        .unwrap()
        .count;
    let option = pair.a.ep.option(EpOptionName::MaxAtomicSize);
    assert_eq!(option, Ok(EpOption::MaxAtomicSize(size)));
}

#[test]
fn injected_operands_may_be_overwritten_at_once() {
    let pair = AtomicPair::new();
    for kind in Kind::ALL {
        for len in [8, 16, 24, 32, 4096] {
            let block = register(&pair.b, kind, 4096, RIGHTS, 7);
            let mut operand = 5_u64.to_ne_bytes().repeat(len / 8);
            pair.a
                .ep
                .inject_atomic(&operand, &pair.target(&block, 0))
                .unwrap();
            operand.fill(0xff);
            pair.settle();
            assert_eq!(
                (block.memory.word(0), block.memory.word(8 * (len / 8 - 1))),
                (5, 5)
            );

            let operand = &mut 6_u64.to_ne_bytes().repeat(len / 8);
            let targets = [(0, len / 8)];
            let operands = [&operand[..]];
            let mut call = pair.sum(Family::Base, &block, &operands, &[], &targets);
            call.flags = OpFlags::INJECT | OpFlags::COMPLETION;
            call.post(&pair.a, 1).unwrap();
            operand.fill(0xff);
            assert_eq!(pair.wait_at_a().unwrap().context, Context(1));
            assert_eq!(
                (block.memory.word(0), block.memory.word(8 * (len / 8 - 1))),
                (11, 11)
            );
            assert!(pair.a.poll().is_none(), "an injected atomic has completed");
        }
    }
}

#[test]
fn remote_data_is_in_the_target_s_completion() {
    let pair = AtomicPair::new();
    for kind in Kind::ALL {
        let block = register(&pair.b, kind, 4096, RIGHTS, 7);
        for (family, count) in [(Family::Base, 1), (Family::Fetch, 2), (Family::Base, 300)] {
            let operand = 1_u64.to_ne_bytes().repeat(count);
            let (operands, targets, result_lens) = ([&operand[..]], [(0, count)], [count]);
            let result_lens = if family == Family::Base {
                &[][..]
            } else {
                &result_lens
            };
            let mut call = pair.sum(family, &block, &operands, result_lens, &targets);
            (call.flags, call.data) = (OpFlags::REMOTE_CQ_DATA, 99);
            call.post(&pair.a, 1).unwrap();
            let remote_entry = pair.wait_at_b().unwrap();
            pair.wait_at_a().unwrap();
            let direction = match family {
                Family::Base => CompletionFlags::REMOTE_WRITE,
                _ => CompletionFlags::REMOTE_READ,
            };
            let flags = CompletionFlags::ATOMIC | CompletionFlags::REMOTE_CQ_DATA | direction;
            assert_eq!(
                (remote_entry.flags, remote_entry.data, remote_entry.len),
                (flags, 99, 8 * count)
            );
        }
    }
}

#[test]
fn atomics_are_counted_at_both_sides() {
    let open_counted_side = |counters: &mut Vec<_>| {
        let mut opened_counters = None;
        let side = LocalEndpoint::open_with(&info(&[]), |context, config| {
            let open = || context.domain().cntr(&cntr::Attr::default()).unwrap();
            let all = [open(), open(), open(), open()];
            config.counters.read = Some(all[0].clone());
            config.counters.write = Some(all[1].clone());
            config.counters.remote_read = Some(all[2].clone());
            config.counters.remote_write = Some(all[3].clone());
            opened_counters = Some(all);
        });
        counters.push(opened_counters.unwrap());
        side
    };
    let mut counters = Vec::new();
    let pair = AtomicPair::connect(
        open_counted_side(&mut counters),
        open_counted_side(&mut counters),
    );
    for kind in Kind::ALL {
        let block = register(&pair.b, kind, 64, RIGHTS, 7);
        let before: Vec<u64> = counters.iter().flatten().map(|cntr| cntr.read()).collect();
        let one = 1_u64.to_ne_bytes();
        for (family, result_lens) in [(Family::Base, &[][..]), (Family::Fetch, &[1])] {
            pair.sum(family, &block, &[&one], result_lens, &[(0, 1)])
                .post(&pair.a, 1)
                .unwrap();
            pair.wait_at_a().unwrap();
        }
        pair.a
            .ep
            .inject_atomic(&one, &pair.target(&block, 0))
            .unwrap();
        pair.settle();
        let after = counters.iter().flatten().map(|cntr| cntr.read());
        let counted: Vec<u64> = after
            .zip(before)
            .map(|(after, before)| after - before)
            .collect();
        assert_eq!(
            (&counted[..4], &counted[4..]),
            (&[1, 2, 0, 0][..], &[0, 0, 1, 2][..]),
            "{kind:?}"
        );
    }
}

#[test]
fn an_endpoint_reaches_its_own_memory() {
    let side = open();
    let other = open();
    let to_b = side.insert_endpoint(&side);
    let pair = AtomicPair(EndpointPair {
        to_a: to_b,
        a: side,
        b: other,
        to_b,
    });
    for kind in Kind::ALL {
        let block = register(&pair.a, kind, 64, RIGHTS, 7);
        let one = 1_u64.to_ne_bytes();
        let operands = [&one[..]];
        let call = pair.sum(Family::Fetch, &block, &operands, &[1], &[(8, 1)]);
        let first = call.post(&pair.a, 1).unwrap();
        pair.wait_at_a().unwrap();
        let second = call.post(&pair.a, 2).unwrap();
        pair.wait_at_a().unwrap();
        assert_eq!((first[0], second[0]), (&0_u64.to_ne_bytes()[..], &one[..]));
        assert_eq!(block.memory.word(8), 2);
    }
}

#[test]
fn a_read_needs_no_right_to_write_and_a_sum_none_to_read() {
    let pair = AtomicPair::new();
    for kind in Kind::ALL {
        let readable = register(&pair.b, kind, 64, MrAccess::REMOTE_READ, 7);
        let writable = register(&pair.b, kind, 64, MrAccess::REMOTE_WRITE, 8);
        let one = 1_u64.to_ne_bytes();
        let mut read = pair.sum(Family::Fetch, &readable, &[], &[1], &[(0, 1)]);
        read.op = Op::AtomicRead;
        let values = read.post(&pair.a, 1).unwrap();
        pair.wait_at_a().unwrap();
        assert_eq!(values[0], [0; 8]);
        pair.sum(Family::Base, &writable, &[&one], &[], &[(0, 1)])
            .post(&pair.a, 2)
            .unwrap();
        pair.wait_at_a().unwrap();
        assert_eq!(writable.memory.word(0), 1);
        for (family, memory, result_lens) in [
            (Family::Base, &readable, &[][..]),
            (Family::Fetch, &readable, &[1]),
            (Family::Fetch, &writable, &[1]),
        ] {
            pair.sum(family, memory, &[&one], result_lens, &[(0, 1)])
                .post(&pair.a, 3)
                .unwrap();
            assert_eq!(pair.wait_at_a().unwrap_err().errno, Errno::Acces);
        }
        assert_eq!((readable.memory.word(0), writable.memory.word(0)), (0, 1));
    }
}
