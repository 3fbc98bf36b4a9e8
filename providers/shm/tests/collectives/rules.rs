//! Rules of collectives: refusals, completions, and independence of the application's messages.

#![expect(unsafe_code, reason = "tests of the raw API")]

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use selvedge::atomic::Datatype;
use selvedge::collective::{CollectiveMsg, Op};
use selvedge::cq::Entry;
use selvedge::{
    AddressVector, Caps, CollectiveExt as _, CompletionFlags, Context, Desc, Errno, FiAddr, Hints,
    Iov, IovMut, MsgExt as _, OpFlags, TagMatch, TaggedExt as _, av,
};
use selvedge_testkit::local::{first_info, open_domain};

use crate::members::{Member, Members, WATCHDOG};

/// The tag bit of the collectives' messages.
const COLLECTIVE_TAG_BIT: u64 = 1 << 63;

#[test]
fn a_member_whose_barrier_is_over_need_not_be_driven_for_the_others() {
    // More bytes than a connection accepts at once, ahead of rank 0's first message to rank 1.
    let (message, mut buffer) = (vec![1; 32 << 20], vec![0; 32 << 20]);
    let members = Members::connect(4);
    let groups = members.join(&[0, 1, 2, 3]);
    let (sender, receiver) = (members.member(0), members.member(1));
    let iov = IovMut::new(&mut buffer);
    // SAFETY: the buffer lives until the endpoints are closed.
    let posted = unsafe {
        receiver
            .ep
            .recv(iov, Desc::NONE, FiAddr::UNSPEC, Context(5))
    };
    posted.unwrap();
    let (iov, dest) = (Iov::new(&message), sender.addrs[1]);
    // SAFETY: as above, for the bytes.
    let posted = unsafe { sender.ep.send(iov, Desc::NONE, dest, Context(5)) };
    posted.unwrap();
    for (rank, group) in groups.iter().enumerate() {
        let coll = members.member(rank).coll();
        coll.barrier(group.addr(), OpFlags::DEFAULT, Context(1))
            .unwrap();
    }
    let begin = Instant::now();
    let mut inside = vec![0, 1, 2, 3];
    while !inside.is_empty() {
        assert!(begin.elapsed() < WATCHDOG, "ranks {inside:?} wait");
        inside.retain(|&rank| match members.member(rank).poll() {
            Some(outcome) => outcome.unwrap().context != Context(1),
            None => true,
        });
    }
}

#[test]
fn the_tag_bit_of_collectives_is_refused_to_the_application() {
    let members = Members::connect(2);
    let (a, b) = (members.member(0), members.member(1));
    let mut buffer = [0; 8];
    assert_eq!(
        a.ep.tinject(&[1], a.addrs[1], COLLECTIVE_TAG_BIT | 3, None),
        Err(Errno::Inval)
    );
    // SAFETY: the receive is refused, or canceled by the endpoint's close; until then no code
    // accesses the buffer.
    let posted = unsafe {
        b.ep.trecv(
            IovMut::new(&mut buffer),
            Desc::NONE,
            FiAddr::UNSPEC,
            TagMatch::exact(COLLECTIVE_TAG_BIT),
            Context(1),
        )
    };
    assert_eq!(posted, Err(Errno::Inval));
    let info = crate::registry()
        .infos(&Hints::new().caps(Caps::TAGGED | Caps::COLLECTIVE))
        .unwrap();
    assert_eq!(info[0].ep_attr.mem_tag_format.0, !COLLECTIVE_TAG_BIT);
    let others = crate::registry().infos(&Hints::new()).unwrap();
    assert!(!others[0].caps.contains(Caps::COLLECTIVE));
}

#[test]
fn a_receive_for_every_tag_takes_no_message_of_a_collective() {
    let members = Members::connect(3);
    let mut buffers = [[0_u8; 64]; 3];
    for (rank, buffer) in buffers.iter_mut().enumerate() {
        let member = members.member(rank);
        let (any, context) = (TagMatch::ANY, Context(5));
        // SAFETY: the buffer lives until its message has arrived.
        let posted = unsafe {
            member.ep.trecv(
                IovMut::new(buffer),
                Desc::NONE,
                FiAddr::UNSPEC,
                any,
                context,
            )
        };
        posted.unwrap();
    }
    let groups = members.join(&[0, 1, 2]);
    for (rank, group) in groups.iter().enumerate() {
        let coll = members.member(rank).coll();
        coll.barrier(group.addr(), OpFlags::DEFAULT, Context(6))
            .unwrap();
    }
    members.expect_success(&[0, 1, 2], Context(6));
    for rank in 0..3 {
        let member = members.member(rank);
        let to = member.addrs[(rank + 1) % 3];
        member.ep.tinject(&[7; 20], to, 9, None).unwrap();
    }
    for outcome in members.outcomes(&[0, 1, 2], Context(5)) {
        let entry = outcome.unwrap();
        assert_eq!((entry.len, entry.tag), (20, 9));
        assert_eq!(entry.flags, CompletionFlags::RECV | CompletionFlags::TAGGED);
    }
}

#[test]
fn counters_and_selective_queues_ignore_the_layer_s_messages() {
    let caps = Caps::MSG | Caps::TAGGED | Caps::COLLECTIVE;
    let members = Members::connect_with(2, caps, |config| {
        (config.tx_selective, config.rx_selective) = (true, true);
    });
    let groups = members.join(&[0, 1]);
    for (rank, group) in groups.iter().enumerate() {
        let coll = members.member(rank).coll();
        coll.barrier(group.addr(), OpFlags::empty(), Context(1))
            .unwrap();
        coll.barrier(group.addr(), OpFlags::COMPLETION, Context(2))
            .unwrap();
    }
    // The first collective is complete when the second one is, and is not reported.
    members.expect_success(&[0, 1], Context(2));
    for rank in 0..2 {
        assert!(members.member(rank).poll().is_none());
    }
}

#[test]
fn invalid_collectives_are_refused_before_anything_is_sent() {
    let members = Members::connect(2);
    let member = members.member(0);
    let coll = member.coll();
    let alone = member.open_set(&[1], &[]);
    assert_eq!(coll.join(&alone, Context(0)).unwrap_err(), Errno::Inval);
    let none = member.open_set(&[], &[]);
    assert_eq!(coll.join(&none, Context(0)).unwrap_err(), Errno::Inval);
    let group = coll
        .join(&member.open_set(&[0, 1], &[]), Context(0))
        .unwrap();
    let early = coll.barrier(group.addr(), OpFlags::DEFAULT, Context(0));
    assert_eq!(early, Err(Errno::OpBadState));
    drop(group);

    let groups = members.join(&[0]);
    let group_addr = groups[0].addr();
    let mut msg = CollectiveMsg::new(Op::Broadcast, group_addr, Datatype::Uint8, Context(3));
    msg.count = 1;
    msg.root = member.addrs[0];
    assert_eq!(member.post(&msg), Err(Errno::Inval), "no memory");
    let mut byte = [0_u8];
    msg.result = byte.as_mut_ptr().cast();
    msg.root = member.addrs[1];
    assert_eq!(
        member.post(&msg),
        Err(Errno::Inval),
        "a root that is no member"
    );
    msg.root = member.addrs[0];
    msg.group = FiAddr(0);
    assert_eq!(
        member.post(&msg),
        Err(Errno::Inval),
        "the address of no group"
    );
    msg.group = group_addr;
    msg.count = usize::MAX / 2;
    assert_eq!(member.post(&msg), Err(Errno::MsgSize));
    let flags = coll.barrier(group_addr, OpFlags::FENCE, Context(3));
    assert_eq!(flags, Err(Errno::BadFlags));
    let mut sum = CollectiveMsg::new(Op::Allreduce, group_addr, Datatype::Float, Context(3));
    sum.op = selvedge::atomic::Op::Band;
    assert_eq!(member.post(&sum), Err(Errno::OpNotSupp));
    assert!(member.poll().is_none());
}

#[test]
fn a_set_of_another_address_vector_is_refused() {
    let members = Members::connect(2);
    // The same endpoints, at other indices.
    let foreign = members.member(1).open_set(&[0, 1], &[]);
    let join = |set: &av::Set| members.member(0).coll().join(set, Context(1)).map(drop);
    assert_eq!(join(&foreign), Err(Errno::Inval), "a set of another domain");
    let mut local = members.member(0).open_set(&[0, 1], &[]);
    assert_eq!(local.union(&foreign), Err(Errno::Inval));
    assert_eq!(join(&local), Ok(()));

    let hints = Hints::new().caps(Caps::MSG | Caps::TAGGED | Caps::COLLECTIVE);
    let domain = open_domain(&first_info(&crate::registry(), &hints)).unwrap();
    let other = domain.av().unwrap();
    let member = Member::open_in(&domain, |_| ()).unwrap();
    let join = |vector: &Arc<dyn AddressVector>| {
        let mut set = av::Set::open(&**vector, &av::SetAttr::default()).unwrap();
        let member_addr = vector.insert_one(&member.address()).unwrap();
        set.insert(member_addr).unwrap();
        member.coll().join(&set, Context(1)).map(drop)
    };
    assert_eq!(
        join(&other),
        Err(Errno::Inval),
        "a set of another address vector of the same domain"
    );
    assert_eq!(join(&member.av), Ok(()));
}

#[test]
fn groups_that_overlap_and_collectives_that_overtake_each_other_do_not_mix() {
    let members = Members::connect(4);
    let all = members.join(&[0, 1, 2, 3]);
    let odd = members.join(&[3, 1]);
    let mut results = [[0_u64; 3]; 4];
    let inputs: Vec<u64> = (0..4).map(|rank| 10_u64.pow(rank)).collect();
    // Rank 3 is ahead of all others, and posts three at once.
    for rank in [3, 1, 0, 2] {
        let member = members.member(rank);
        let mut post = |group: FiAddr, index: usize| {
            let mut msg = CollectiveMsg::new(Op::Allreduce, group, Datatype::Uint64, Context(4));
            msg.count = 1;
            msg.buf = (&raw const inputs[rank]).cast();
            msg.result = (&raw mut results[rank][index]).cast();
            member.post(&msg).unwrap();
        };
        post(all[rank].addr(), 0);
        if rank % 2 == 1 {
            post(odd[usize::from(rank == 1)].addr(), 1);
        }
        post(all[rank].addr(), 2);
    }
    for _ in 0..2 {
        members.expect_success(&[0, 1, 2, 3], Context(4));
    }
    members.expect_success(&[1, 3], Context(4));
    assert_eq!(results[0], [1111, 0, 1111]);
    assert_eq!(results[1], [1111, 1010, 1111]);
    assert_eq!(results[2], results[0]);
    assert_eq!(results[3], results[1]);
}

#[test]
fn keys_distinguish_joins_that_happen_in_different_orders() {
    let members = Members::connect(2);
    let (a, b) = (members.member(0), members.member(1));
    let join = |member: &Member, key: &[u8]| {
        let set = member.open_set(&[0, 1], key);
        member.coll().join(&set, Context(1)).unwrap()
    };
    let (a_first, a_second) = (join(a, b"first"), join(a, b"second"));
    let (b_second, b_first) = (join(b, b"second"), join(b, b"first"));
    let mut joined = 0;
    members.drive_until("four joins", || {
        joined += usize::from(a.eq.read().is_ok()) + usize::from(b.eq.read().is_ok());
        joined == 4
    });
    for (a_group, b_group) in [(a_first, b_first), (a_second, b_second)] {
        a.coll()
            .barrier(a_group.addr(), OpFlags::DEFAULT, Context(2))
            .unwrap();
        b.coll()
            .barrier(b_group.addr(), OpFlags::DEFAULT, Context(2))
            .unwrap();
        members.expect_success(&[0, 1], Context(2));
    }
}

#[test]
fn parked_members_are_woken_by_joins_and_collectives() {
    let members = Members::connect(3);
    thread::scope(|scope| {
        for rank in 0..3 {
            let member = members.member(rank);
            scope.spawn(move || {
                let set = member.open_set(&[0, 1, 2], &[]);
                let group = member.coll().join(&set, Context(1)).unwrap();
                member.eq.wait(Some(WATCHDOG)).unwrap();
                for turn in 0..50 {
                    // Each member posts last at times, while all others are parked.
                    if turn % 3 == rank {
                        thread::sleep(Duration::from_millis(1));
                    }
                    let coll = member.coll();
                    coll.barrier(group.addr(), OpFlags::DEFAULT, Context(turn as u64))
                        .unwrap();
                    let mut entry = [Entry::default()];
                    assert_eq!(member.cq().wait(&mut entry, Some(WATCHDOG)), Ok(1));
                    assert_eq!(entry[0].context, Context(turn as u64));
                }
            });
        }
    });
}
