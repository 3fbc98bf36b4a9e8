//! Members that are lost: everybody else hears of it, and nobody waits for ever.

use selvedge::atomic::Datatype;
use selvedge::collective::{CollectiveMsg, Op};
use selvedge::{CollectiveExt as _, Context, Errno, OpFlags};

use crate::crew::Crew;

/// All but one post a barrier, then the one is closed.
fn lose_one(ranks: usize, lost: usize) {
    let mut crew = Crew::of(ranks);
    let order: Vec<_> = (0..ranks).collect();
    let groups = crew.join(&order);
    let others: Vec<_> = (0..ranks).filter(|&rank| rank != lost).collect();
    // Two that are well: the third is nothing new to the group.
    for _ in 0..2 {
        for (rank, group) in groups.iter().enumerate() {
            let coll = crew.member(rank).coll();
            coll.barrier(group.addr(), OpFlags::DEFAULT, Context(1))
                .unwrap();
        }
        crew.all_well(&order, Context(1));
    }
    for &rank in &others {
        let coll = crew.member(rank).coll();
        coll.barrier(groups[rank].addr(), OpFlags::DEFAULT, Context(1))
            .unwrap();
    }
    crew.lose(lost);
    for outcome in crew.outcomes(&others, Context(1)) {
        let error = outcome.unwrap_err();
        assert_eq!(error.entry.context, Context(1));
        assert!(error.detail.contains("Barrier"), "{}", error.detail);
    }
    // The group stays broken.
    for &rank in &others {
        let coll = crew.member(rank).coll();
        let again = coll.barrier(groups[rank].addr(), OpFlags::DEFAULT, Context(2));
        assert!(again.is_err());
    }
    if others.len() > 1 {
        // Those who are left make a new one.
        let groups = crew.join(&others);
        for (&rank, group) in others.iter().zip(&groups) {
            let coll = crew.member(rank).coll();
            coll.barrier(group.addr(), OpFlags::DEFAULT, Context(3))
                .unwrap();
        }
        crew.all_well(&others, Context(3));
    }
}

#[test]
fn a_failed_member_ends_the_barrier_of_all_others() {
    for (ranks, lost) in [(2, 0), (2, 1), (3, 1), (5, 0), (5, 4), (8, 3)] {
        lose_one(ranks, lost);
    }
}

#[test]
fn a_member_that_closes_before_the_others_join_fails_them() {
    let mut crew = Crew::of(4);
    let groups = crew.join(&[0, 1, 2, 3]);
    crew.lose(2);
    // Everybody hears of the loss before anybody needs the one that is lost.
    crew.until("the loss", {
        let mut turns = 0;
        move || {
            turns += 1;
            turns > 100
        }
    });
    let posted = [0, 1, 3].into_iter().filter(|&rank| {
        let coll = crew.member(rank).coll();
        coll.barrier(groups[rank].addr(), OpFlags::DEFAULT, Context(1))
            .is_ok()
    });
    let posted: Vec<_> = posted.collect();
    let outcomes = crew.outcomes(&posted, Context(1));
    assert!(outcomes.iter().all(Result::is_err));
}

#[test]
fn a_large_message_to_a_member_that_has_given_up_does_not_wait_for_ever() {
    let mut crew = Crew::of(3);
    let groups = crew.join(&[0, 1, 2]);
    let bytes = vec![1_u8; 3 << 20];
    let mut result = vec![0_u8; 3 << 20];
    // Rank 0 waits for rank 2 and gives up; rank 1 sends rank 0 what that will never take.
    let barrier = crew.member(0).coll();
    barrier
        .barrier(groups[0].addr(), OpFlags::DEFAULT, Context(1))
        .unwrap();
    crew.lose(2);
    assert!(crew.outcomes(&[0], Context(1))[0].is_err());
    let group = groups[1].addr();
    let mut msg = CollectiveMsg::new(Op::Alltoall, group, Datatype::Uint8, Context(1));
    msg.count = 1 << 20;
    msg.buf = bytes.as_ptr().cast();
    msg.result = result.as_mut_ptr().cast();
    if crew.member(1).post(&msg).is_ok() {
        assert!(crew.outcomes(&[1], Context(1))[0].is_err());
    }
}

#[test]
fn a_join_with_a_failed_member_fails_at_all_others() {
    let mut crew = Crew::of(3);
    // They have met: what is lost later is known to be gone, and not only not there yet.
    drop(crew.join(&[0, 1, 2]));
    let groups: Vec<_> = [0, 1]
        .map(|rank| {
            let member = crew.member(rank);
            member
                .coll()
                .join(&member.set(&[0, 1, 2], &[]), Context(9))
                .unwrap()
        })
        .into();
    crew.lose(2);
    for (rank, group) in groups.iter().enumerate() {
        let member = crew.member(rank);
        let mut errno = None;
        crew.until("the end of the join", || {
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
            error.detail.contains("cannot be joined"),
            "{}",
            error.detail
        );
        let posted = member
            .coll()
            .barrier(group.addr(), OpFlags::DEFAULT, Context(1));
        assert!(posted.is_err());
    }
}
