//! Members that close: every other member reports the failure, and no member waits for ever.

use selvedge::atomic::Datatype;
use selvedge::collective::{CollectiveMsg, Op};
use selvedge::{CollectiveExt as _, Context, Errno, OpFlags};

use crate::members::Members;

/// All members but `lost` post a barrier, then `lost` closes.
fn close_one(ranks: usize, lost: usize) {
    let mut members = Members::connect(ranks);
    let order: Vec<_> = (0..ranks).collect();
    let groups = members.join(&order);
    let others: Vec<_> = (0..ranks).filter(|&rank| rank != lost).collect();
    // Two barriers succeed first, so that the third takes the fast path.
    for _ in 0..2 {
        for (rank, group) in groups.iter().enumerate() {
            let coll = members.member(rank).coll();
            coll.barrier(group.addr(), OpFlags::DEFAULT, Context(1))
                .unwrap();
        }
        members.expect_success(&order, Context(1));
    }
    for &rank in &others {
        let coll = members.member(rank).coll();
        coll.barrier(groups[rank].addr(), OpFlags::DEFAULT, Context(1))
            .unwrap();
    }
    members.close(lost);
    for outcome in members.outcomes(&others, Context(1)) {
        let error = outcome.unwrap_err();
        assert_eq!(error.entry.context, Context(1));
        assert!(error.detail.contains("Barrier"), "{}", error.detail);
    }
    // The group stays broken.
    for &rank in &others {
        let coll = members.member(rank).coll();
        let reposted = coll.barrier(groups[rank].addr(), OpFlags::DEFAULT, Context(2));
        assert!(reposted.is_err());
    }
    if others.len() > 1 {
        // The remaining members form a new group.
        let groups = members.join(&others);
        for (&rank, group) in others.iter().zip(&groups) {
            let coll = members.member(rank).coll();
            coll.barrier(group.addr(), OpFlags::DEFAULT, Context(3))
                .unwrap();
        }
        members.expect_success(&others, Context(3));
    }
}

#[test]
fn a_failed_member_ends_the_barrier_of_all_others() {
    for (ranks, lost) in [(2, 0), (2, 1), (3, 1), (5, 0), (5, 4), (8, 3)] {
        close_one(ranks, lost);
    }
}

#[test]
fn a_member_that_closes_before_the_others_join_fails_them() {
    let mut members = Members::connect(4);
    let groups = members.join(&[0, 1, 2, 3]);
    members.close(2);
    // All members see the disconnect before one of them needs the closed member.
    members.drive_until("the disconnect", {
        let mut turns = 0;
        move || {
            turns += 1;
            turns > 100
        }
    });
    let posted = [0, 1, 3].into_iter().filter(|&rank| {
        let coll = members.member(rank).coll();
        coll.barrier(groups[rank].addr(), OpFlags::DEFAULT, Context(1))
            .is_ok()
    });
    let posted: Vec<_> = posted.collect();
    let outcomes = members.outcomes(&posted, Context(1));
    assert!(outcomes.iter().all(Result::is_err));
}

#[test]
fn a_large_message_to_a_member_that_has_given_up_does_not_wait_for_ever() {
    let mut members = Members::connect(3);
    let groups = members.join(&[0, 1, 2]);
    let bytes = vec![1_u8; 3 << 20];
    let mut result = vec![0_u8; 3 << 20];
    // Rank 0 waits for rank 2 and fails; rank 1 sends rank 0 a message that rank 0 will never
    // receive.
    let barrier = members.member(0).coll();
    barrier
        .barrier(groups[0].addr(), OpFlags::DEFAULT, Context(1))
        .unwrap();
    members.close(2);
    assert!(members.outcomes(&[0], Context(1))[0].is_err());
    let group = groups[1].addr();
    let mut msg = CollectiveMsg::new(Op::Alltoall, group, Datatype::Uint8, Context(1));
    msg.count = 1 << 20;
    msg.buf = bytes.as_ptr().cast();
    msg.result = result.as_mut_ptr().cast();
    if members.member(1).post(&msg).is_ok() {
        assert!(members.outcomes(&[1], Context(1))[0].is_err());
    }
}

#[test]
fn a_join_with_a_failed_member_fails_at_all_others() {
    let mut members = Members::connect(3);
    // The members are connected, so that a closed one counts as disconnected and not as not
    // started.
    drop(members.join(&[0, 1, 2]));
    let groups: Vec<_> = [0, 1]
        .map(|rank| {
            let member = members.member(rank);
            member
                .coll()
                .join(&member.open_set(&[0, 1, 2], &[]), Context(9))
                .unwrap()
        })
        .into();
    members.close(2);
    for (rank, group) in groups.iter().enumerate() {
        let member = members.member(rank);
        let mut errno = None;
        members.drive_until("the end of the join", || {
            errno = member
                .eq
                .read()
                .err()
                .filter(|&errno| errno != Errno::Again);
            errno.is_some()
        });
        assert_eq!(errno, Some(Errno::Avail));
        let error = member.eq.read_err().unwrap();
        assert_eq!(error.context, Context(9));
        assert!(
            error.detail.contains("cannot join the group"),
            "{}",
            error.detail
        );
        let posted = member
            .coll()
            .barrier(group.addr(), OpFlags::DEFAULT, Context(1));
        assert!(posted.is_err());
    }
}
