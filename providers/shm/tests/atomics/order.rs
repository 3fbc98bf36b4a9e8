//! Order, backpressure, and the first connection.

use selvedge::atomic::{Datatype, Family, Op, Target};
use selvedge::{Address, Context, Errno, OpFlags};
use selvedge_testkit::local::{EndpointPair, LocalEndpoint};

use crate::pair::{AtomicPair, Call, Kind, RIGHTS, info, open, register};

#[test]
fn atomics_are_executed_in_the_order_of_their_posts() {
    const COUNT: u64 = 100;
    let pair = AtomicPair::new();
    let one = 1_u64.to_ne_bytes();
    for kind in Kind::ALL {
        let block = register(&pair.b, kind, 64, RIGHTS, 7);
        let other_kind = Kind::ALL.into_iter().find(|&other| other != kind);
        let other = register(&pair.b, other_kind.unwrap_or(kind), 64, RIGHTS, 8);
        let operands = [&one[..]];
        let fetch = pair.sum(Family::Fetch, &block, &operands, &[1], &[(0, 1)]);
        let other_fetch = pair.sum(Family::Fetch, &other, &operands, &[1], &[(0, 1)]);
        let mut read = pair.sum(Family::Fetch, &block, &[], &[1], &[(0, 1)]);
        read.op = Op::AtomicRead;
        let mut values = Vec::new();
        for number in 0..COUNT / 4 {
            for call in [&fetch, &read, &other_fetch, &read] {
                values.push(call.post(&pair.a, number).unwrap()[0]);
            }
        }
        for number in 0..COUNT {
            assert_eq!(pair.wait_at_a().unwrap().context, Context(number / 4));
        }
        for (number, value) in values.into_iter().enumerate() {
            let earlier = number as u64 / 4 + u64::from(number % 2 == 1);
            assert_eq!(value, earlier.to_ne_bytes(), "{kind:?}: number {number}");
        }
    }
}

/// Each endpoint requests more responses than the other endpoint's queue holds at a time.
#[test]
fn two_endpoints_that_flood_each_other_with_atomics_both_progress() {
    let small = [("FI_SHM_CMD_COUNT", "16"), ("FI_SHM_POOL_SIZE", "16k")];
    let pair = AtomicPair::connect(
        LocalEndpoint::open(&info(&small)),
        LocalEndpoint::open(&info(&small)),
    );
    let memory_a = register(&pair.a, Kind::Plain, 4096, RIGHTS, 7);
    let memory_b = register(&pair.b, Kind::Plain, 4096, RIGHTS, 7);
    let mut read = pair.sum(Family::Fetch, &memory_b, &[], &[512], &[(0, 512)]);
    read.op = Op::AtomicRead;
    let mut reverse_read = read.clone();
    (reverse_read.dest, reverse_read.key) = (pair.to_a, memory_a.rights.key());
    let (mut posted, mut done) = ([0, 0], [0, 0]);
    while done != [300, 300] {
        for (index, (side, call)) in [(&pair.a, &read), (&pair.b, &reverse_read)]
            .into_iter()
            .enumerate()
        {
            while posted[index] < 300 {
                match call.post(side, 0) {
                    Ok(_) => posted[index] += 1,
                    Err(errno) => {
                        assert_eq!(errno, Errno::Again);
                        break;
                    }
                }
            }
        }
        for (index, side) in [&pair.a, &pair.b].into_iter().enumerate() {
            while let Some(completion) = side.poll() {
                completion.unwrap();
                done[index] += 1;
            }
        }
    }
}

/// The initiator frees no space for responses while the target executes its atomics. It begins to
/// free space when the target closes.
#[test]
fn a_closing_target_responds_to_the_atomics_it_executed() {
    const COUNT: u64 = 12;
    let small = [("FI_SHM_CMD_COUNT", "16"), ("FI_SHM_POOL_SIZE", "16k")];
    let pair = AtomicPair::connect(
        LocalEndpoint::open(&info(&small)),
        LocalEndpoint::open(&info(&small)),
    );
    let block = register(&pair.b, Kind::Plain, 4096, RIGHTS, 7);
    let one = vec![1; 4096];
    let operands = [&one[..]];
    let add = pair.sum(Family::Fetch, &block, &operands, &[512], &[(0, 512)]);
    add.post(&pair.a, 0).unwrap();
    pair.wait_at_a().unwrap();
    let mut posted = 0;
    // The atomics fill the initiator's pool several times: the target has no room for the
    // responses.
    while posted < COUNT {
        match add.post(&pair.a, posted) {
            Ok(_) => posted += 1,
            Err(errno) => assert_eq!(errno, Errno::Again),
        }
        for _ in 0..100 {
            pair.b.progress();
        }
    }
    let executed = block.memory.word(0) / u64::from_ne_bytes([1; 8]) - 1;
    let AtomicPair(EndpointPair { a, b, .. }) = pair;
    let done = std::thread::scope(|scope| {
        let initiator = scope.spawn(|| {
            let mut done = Vec::new();
            while done.len() < COUNT as usize {
                done.extend(a.poll());
            }
            done
        });
        drop(b);
        initiator.join().unwrap()
    });
    let succeeded = done.iter().filter(|done| done.is_ok()).count() as u64;
    assert!(succeeded >= executed, "{succeeded} of {executed}: {done:?}");
}

#[test]
fn writes_and_atomics_that_wait_for_a_peer_are_executed_in_order() {
    let name = format!("late-order-{}", std::process::id());
    let a = open();
    let address = Address::Str(name.clone());
    let dest = a.av.insert_one(&address).unwrap();
    let word = |word: u64| word.to_ne_bytes();
    let write = |addr, value| a.ep.inject_write(&word(value), dest, addr, 7, None);
    let add = |addr, value| {
        let target = Target {
            dest,
            addr,
            key: 7,
            datatype: Datatype::Uint64,
            op: Op::Sum,
        };
        a.ep.inject_atomic(&word(value), &target)
    };
    write(0, 10).unwrap();
    add(0, 1).unwrap();
    add(8, 5).unwrap();
    write(8, 20).unwrap();
    add(8, 1).unwrap();
    add(16, 1).unwrap();
    let b = LocalEndpoint::open_named(&name, &info(&[]));
    let block = register(&b, Kind::Plain, 64, RIGHTS, 7);
    while block.memory.word(16) == 0 {
        a.progress();
        b.progress();
    }
    assert_eq!([block.memory.word(0), block.memory.word(8)], [11, 21]);
}

#[test]
fn atomics_on_a_peer_that_starts_late_wait_for_it_in_order() {
    let name = format!("late-atomic-{}", std::process::id());
    let a = open();
    let to_b = a.av.insert_one(&Address::Str(name.clone())).unwrap();
    let one = 1_u64.to_ne_bytes();
    let call = Call {
        family: Family::Fetch,
        datatype: Datatype::Uint64,
        op: Op::Sum,
        operand: &[&one],
        compare: &[],
        result: &[1],
        targets: &[(0, 1)],
        key: 7,
        dest: to_b,
        flags: OpFlags::DEFAULT,
        data: 0,
    };
    let values: Vec<_> = (0..3)
        .map(|number| call.post(&a, number).unwrap()[0])
        .collect();
    let b = LocalEndpoint::open_named(&name, &info(&[]));
    for kind in Kind::ALL {
        let block = register(&b, kind, 64, RIGHTS, 7);
        if kind == Kind::Plain {
            for number in 0..3 {
                assert_eq!(a.wait(&[&b]).unwrap().context, Context(number));
            }
            let earlier = values
                .iter()
                .map(|value| u64::from_ne_bytes((*value).try_into().unwrap()));
            assert_eq!(earlier.collect::<Vec<_>>(), [0, 1, 2]);
        }
        call.post(&a, 9).unwrap();
        a.wait(&[&b]).unwrap();
        assert_eq!(
            block.memory.word(0),
            if kind == Kind::Plain { 4 } else { 1 }
        );
    }
}

#[test]
fn atomics_on_a_peer_that_never_starts_fail_with_its_name() {
    let quick = [("FI_SHM_PEER_TIMEOUT", "50ms")];
    let (a, b) = (LocalEndpoint::open(&info(&quick)), open());
    let to_b =
        a.av.insert_one(&Address::Str("absent-peer".into()))
            .unwrap();
    let pair = AtomicPair(EndpointPair {
        to_a: to_b,
        to_b,
        a,
        b,
    });
    let block = register(&pair.b, Kind::Plain, 64, RIGHTS, 7);
    let one = 1_u64.to_ne_bytes();
    pair.sum(Family::Fetch, &block, &[&one], &[1], &[(0, 1)])
        .post(&pair.a, 3)
        .unwrap();
    let error = pair.wait_at_a().unwrap_err();
    assert_eq!(
        (error.errno, error.entry.context),
        (Errno::ConnRefused, Context(3))
    );
    assert!(error.detail.contains("absent-peer"), "{error:?}");
}

#[test]
fn selective_queues_report_atomics_on_request_and_their_errors_always() {
    let a = LocalEndpoint::open_with(&info(&[]), |_, config| config.tx_selective = true);
    let pair = AtomicPair::connect(a, open());
    let one = 1_u64.to_ne_bytes();
    for kind in Kind::ALL {
        let block = register(&pair.b, kind, 64, RIGHTS, 7);
        let operands = [&one[..]];
        let mut call = pair.sum(Family::Base, &block, &operands, &[], &[(0, 1)]);
        call.flags = OpFlags::empty();
        call.post(&pair.a, 1).unwrap();
        call.flags = OpFlags::COMPLETION;
        call.post(&pair.a, 2).unwrap();
        assert_eq!(pair.wait_at_a().unwrap().context, Context(2));
        call.flags = OpFlags::empty();
        call.key = 1000;
        call.post(&pair.a, 3).unwrap();
        assert_eq!(pair.wait_at_a().unwrap_err().entry.context, Context(3));
        assert_eq!(block.memory.word(0), 2);
    }
}
