//! Short collective messages over the shm provider's collective channel: a full channel, and a
//! channel whose writer has closed.

use std::fs;

use selvedge::atomic::Datatype;
use selvedge::collective::{CollectiveMsg, Op};
use selvedge::{CollectiveExt as _, Context, Errno, OpFlags};
use selvedge_kit::telemetry::endpoint_name;
use selvedge_kit::telemetry::groups::GroupStats;
use selvedge_kit::telemetry::layout::{GROUPS_WORDS, MEMFD_NAME};

use crate::members::{Member, Members};

/// Number of collectives: more than a member may have outstanding, and more messages than a channel
/// holds.
const MANY: usize = 1500;

#[test]
fn a_root_that_is_far_ahead_waits_for_room_and_nothing_is_lost() {
    let members = Members::connect(2);
    let groups = members.join(&[0, 1]);
    let mut values: Vec<u64> = (0..MANY as u64).collect();
    let mut results = vec![u64::MAX; MANY];
    let post = |rank: usize, number: usize, at: *mut u64| {
        let member = members.member(rank);
        let mut msg = CollectiveMsg::new(
            Op::Broadcast,
            groups[rank].addr(),
            Datatype::Uint64,
            Context(number as u64),
        );
        (msg.count, msg.root, msg.result) = (1, member.addrs[0], at.cast());
        member.post(&msg)
    };
    let mut posted = 0;
    while posted < MANY && post(0, posted, &raw mut values[posted]).is_ok() {
        posted += 1;
    }
    assert!(
        (100..MANY).contains(&posted),
        "{posted} collectives were accepted without a receiver"
    );
    let refused = post(0, posted, &raw mut values[posted]);
    assert_eq!(refused, Err(Errno::Again));
    let mut taken = 0;
    let mut ended = [0; 2];
    members.drive_until("all broadcasts", || {
        while posted < MANY && post(0, posted, &raw mut values[posted]).is_ok() {
            posted += 1;
        }
        while taken < MANY && post(1, taken, &raw mut results[taken]).is_ok() {
            taken += 1;
        }
        for (rank, ended) in ended.iter_mut().enumerate() {
            let outcomes = std::iter::from_fn(|| members.member(rank).poll());
            *ended += outcomes.map(Result::unwrap).count();
        }
        ended == [MANY; 2]
    });
    assert_eq!(results, values);
}

#[test]
fn a_member_that_closes_after_its_collectives_fails_no_other() {
    for _ in 0..20 {
        let mut members = Members::connect(2);
        let groups = members.join(&[0, 1]);
        for (rank, group) in groups.iter().enumerate() {
            let coll = members.member(rank).coll();
            coll.barrier(group.addr(), OpFlags::DEFAULT, Context(1))
                .unwrap();
        }
        assert!(members.outcomes(&[0], Context(1))[0].is_ok());
        // Member 0 sent its messages before it closed. A later poll by member 1 finds them.
        members.close(0);
        assert!(members.outcomes(&[1], Context(1))[0].is_ok());
    }
}

#[test]
fn a_message_received_before_its_sender_closed_is_used_by_a_later_collective() {
    let mut members = Members::connect(2);
    let groups = members.join(&[0, 1]);
    let (mut sent, mut got) = (42_u64, 0_u64);
    for (rank, at) in [(0, &raw mut sent), (1, &raw mut got)] {
        let member = members.member(rank);
        let group = groups[rank].addr();
        let mut msg = CollectiveMsg::new(Op::Broadcast, group, Datatype::Uint64, Context(1));
        (msg.count, msg.root, msg.result) = (1, member.addrs[0], at.cast());
        member.post(&msg).unwrap();
        assert!(members.outcomes(&[rank], Context(1))[0].is_ok());
        if rank == 0 {
            members.close(0);
            let mut turns = 0;
            members.drive_until("the disconnect", || {
                turns += 1;
                turns > 100
            });
        }
    }
    assert_eq!(got, 42);
}

/// Reads the number of the next collective of a member's only group from the member's telemetry
/// page.
fn published_next(member: &Member) -> u32 {
    let name = endpoint_name(&member.address());
    let fds = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let mut pages = fds.filter_map(|fd| {
        // Skips a descriptor that another test has closed since.
        let target = fs::read_link(fd.path()).ok()?;
        target.to_str()?.contains(MEMFD_NAME).then_some(())?;
        let bytes = fs::read(fd.path()).ok()?;
        let words = bytes.as_chunks::<8>().0.iter();
        let words: Box<[u64]> = words.map(|word| u64::from_le_bytes(*word)).collect();
        let words: Box<[u64; GROUPS_WORDS]> = words.try_into().ok()?;
        GroupStats::parse(&words).filter(|seen| seen.header.name == name)
    });
    let [group] = pages.next().unwrap().groups[..] else {
        panic!("{name} has one group");
    };
    group.next
}

#[test]
fn fast_path_collectives_are_counted_in_telemetry() {
    let members = Members::connect(2);
    let groups = members.join(&[0, 1]);
    // The group's first collective takes the slow path; later ones take the fast path.
    for number in 1..=5 {
        for (rank, group) in groups.iter().enumerate() {
            let member = members.member(rank);
            let (group, context) = (group.addr(), Context(u64::from(number)));
            member
                .coll()
                .barrier(group, OpFlags::DEFAULT, context)
                .unwrap();
            assert_eq!(published_next(member), number, "rank {rank} has begun it");
        }
        members.expect_success(&[0, 1], Context(u64::from(number)));
    }
}

/// The inputs of two members to collective `number`, and their sum.
fn inputs(number: usize) -> ([u64; 2], u64) {
    let own = [number as u64 + 1, (number as u64) << 32 | 5];
    (own, own[0] + own[1])
}

#[test]
fn short_collectives_that_wait_long_or_queue_up_complete() {
    let members = Members::connect(2);
    let groups = members.join(&[0, 1]);
    let mut sums = [[0_u64; 10]; 2];
    let all: Vec<_> = (0..10).map(inputs).collect();
    let mut post = |rank: usize, number: usize| {
        let group = groups[rank].addr();
        let context = Context(number as u64);
        let mut msg = CollectiveMsg::new(Op::Allreduce, group, Datatype::Uint64, context);
        msg.count = 1;
        msg.buf = (&raw const all[number].0[rank]).cast();
        msg.result = (&raw mut sums[rank][number]).cast();
        members.member(rank).post(&msg).unwrap();
    };
    // The first collectives of the group take the slow path.
    for number in 0..2 {
        post(0, number);
        post(1, number);
        members.expect_success(&[0, 1], Context(number as u64));
    }
    // A member waits longer than the fast path polls.
    post(0, 2);
    let mut turns = 0;
    members.drive_until("many turns", || {
        turns += 1;
        turns > 6000
    });
    post(1, 2);
    members.expect_success(&[0, 1], Context(2));
    // Member 0 is ahead by three collectives, then member 1.
    (3..6).for_each(|number| post(0, number));
    (3..9).for_each(|number| post(1, number));
    (6..9).for_each(|number| post(0, number));
    assert_eq!(
        members.expect_many_successes(&[0, 1], 6),
        vec![Vec::from_iter(3..9); 2]
    );
    post(1, 9);
    post(0, 9);
    members.expect_success(&[0, 1], Context(9));
    let wanted: Vec<_> = all.iter().map(|(_, sum)| *sum).collect();
    assert_eq!(sums.map(Vec::from), [wanted.clone(), wanted]);
}

#[test]
fn a_message_of_one_group_waits_while_another_group_reads_the_channel() {
    let members = Members::connect(2);
    let groups = [members.join(&[0, 1]), members.join(&[0, 1])];
    let (mut sent, mut got) = ([41_u64, 42], [0_u64; 2]);
    let post = |rank: usize, group: usize, at: *mut u64| {
        let member = members.member(rank);
        let addr = groups[group][rank].addr();
        let mut msg = CollectiveMsg::new(Op::Broadcast, addr, Datatype::Uint64, Context(1));
        (msg.count, msg.root, msg.result) = (1, member.addrs[1], at.cast());
        member.post(&msg).unwrap();
        members.expect_success(&[rank], Context(1));
    };
    for group in [0, 1] {
        post(1, group, &raw mut sent[group]);
    }
    for group in [1, 0] {
        post(0, group, &raw mut got[group]);
    }
    assert_eq!(got, sent);
}

#[test]
fn repeated_barriers_hold_every_member_until_the_last_arrives() {
    for ranks in 2..=5 {
        let members = Members::connect(ranks);
        let order: Vec<_> = (0..ranks).collect();
        let groups = members.join(&order);
        for number in 0..3 * ranks {
            let (late, context) = (number % ranks, Context(number as u64));
            let post = |rank: usize| {
                let group = groups[rank].addr();
                let coll = members.member(rank).coll();
                coll.barrier(group, OpFlags::DEFAULT, context).unwrap();
            };
            let others: Vec<_> = order.iter().copied().filter(|&it| it != late).collect();
            others.iter().copied().for_each(post);
            for _ in 0..50 {
                for &rank in &others {
                    let early = members.member(rank).poll();
                    assert!(
                        early.is_none(),
                        "rank {rank} of {ranks} continued without {late}"
                    );
                }
            }
            post(late);
            members.expect_success(&order, context);
        }
    }
}
