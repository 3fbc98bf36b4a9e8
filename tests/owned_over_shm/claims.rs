//! Messages that are set aside for whoever holds their claim.

use futures::executor::block_on;
use selvedge::owned::{AsyncEndpoint, Claim, Completion, Completions, Endpoint, Pool};
use selvedge::{Context, Errno, FiAddr};

use crate::{Shm, assert_message, message, under_watchdog};

#[test]
fn a_claimed_message_is_for_the_holder_of_its_handle() {
    under_watchdog(|| {
        let shm = Shm::open();
        let ((a, a_addr), (b, b_addr)) = (shm.polled(), shm.polled());
        for len in [8, 4000, 100_000] {
            let (outgoing, pool) = (shm.pool(len, 2), shm.pool(len, 3));
            let room = || pool.take().unwrap();
            let claim = || {
                let claim = b.tclaim(room(), a_addr, 5, Context(3)).unwrap();
                (claim, next_of(&b, &a, 3).result)
            };
            let (nothing, looked) = claim();
            assert_eq!(looked.unwrap_err().errno, Errno::NoMsg);
            let refused = b.recv_claimed(nothing, room(), Context(4)).unwrap_err();
            assert_eq!(refused.errno, Errno::NoMsg);
            for seed in [1, 2] {
                let message = message(&outgoing, len, seed);
                a.tsend(message, b_addr, 5, Context(seed as u64)).unwrap();
            }
            let found = || loop {
                if let (claim, Ok(looked)) = claim() {
                    assert_eq!(looked.len, len);
                    return claim;
                }
            };
            let (first, second) = (found(), found());
            assert_eq!(claim().1.unwrap_err().errno, Errno::NoMsg);
            b.recv_claimed(second, room(), Context(6)).unwrap();
            let mut done = next_of(&b, &a, 6);
            done.result.unwrap();
            assert_message(&done.buf, len, 2);
            b.discard_claimed(first, room(), Context(7)).unwrap();
            done = next_of(&b, &a, 7);
            done.result.unwrap();
            for used in [first, second] {
                let refused = b.recv_claimed(used, room(), Context(8)).unwrap_err();
                assert_eq!(refused.errno, Errno::NoMsg);
            }
        }
    });
}

#[test]
fn an_awaited_claim_is_for_its_holder_alone_and_drops_the_message_with_itself() {
    under_watchdog(|| {
        let shm = Shm::open();
        let ((a, _), (b, b_addr)) = (shm.awaited(), shm.awaited());
        for len in [8, 4000, 100_000] {
            let (outgoing, pool) = (shm.pool(len, 2), shm.pool(len, 3));
            let nothing = async || {
                let looked = b.tpeek(pool.take().unwrap(), FiAddr::UNSPEC, 5).await;
                looked.unwrap_err().entry.errno == Errno::NoMsg
            };
            let sends = [1, 2].map(|seed| a.tsend(message(&outgoing, len, seed), b_addr, 5));
            let claims = async {
                let first = claimed(&b, &a, &pool).await;
                let second = claimed(&b, &a, &pool).await;
                assert_eq!((first.found().len, second.found().len), (len, len));
                assert!(nothing().await);
                let (buf, received) = second.recv().await.unwrap();
                assert_eq!((received.len, received.tag), (len, 5));
                assert_message(&buf, len, 2);
                drop(first);
                assert!(nothing().await);
            };
            block_on(async { futures::join!(futures::future::join_all(sends), claims) });
            b.progress().unwrap();
            assert_eq!(pool.available(), 3);
        }
    });
}

#[test]
fn claims_that_are_dropped_in_any_stage_leave_nothing_behind() {
    under_watchdog(|| {
        let shm = Shm::open();
        let ((a, _), (b, b_addr)) = (shm.awaited(), shm.awaited());
        let (pool, long) = (shm.pool(8, 1), shm.pool(16, 1));
        // More than there are slots.
        for round in 0..4000 {
            let bytes = [round as u8; 16];
            while a.tinject(&bytes, b_addr, 5, None) == Err(Errno::Again) {
                b.progress().unwrap();
            }
            let claim = block_on(claimed(&b, &a, &pool));
            match round % 3 {
                0 => drop(claim),
                1 => drop(claim.recv()),
                _ => {
                    let received = block_on(claim.recv_into(long.take().unwrap()));
                    assert_eq!(received.unwrap().0[..], bytes);
                }
            }
            b.progress().unwrap();
            assert_eq!((pool.available(), long.available()), (1, 1));
        }
    });
}

/// The next message with tag 5, set aside, while the sender goes on.
async fn claimed<'a>(ep: &'a AsyncEndpoint, sender: &AsyncEndpoint, pool: &Pool) -> Claim<'a> {
    loop {
        match ep.tclaim(pool.take().unwrap(), FiAddr::UNSPEC, 5).await {
            Ok(claim) => return claim,
            Err(failed) => assert_eq!(failed.entry.errno, Errno::NoMsg),
        }
        sender.progress().unwrap();
    }
}

/// The completion with this context at one endpoint, while both go on.
fn next_of(at: &Endpoint, other: &Endpoint, context: u64) -> Completion {
    let (mut done, mut sent) = (Completions::with_capacity(1), Completions::with_capacity(9));
    while at.poll(&mut done).unwrap() == 0 {
        other.poll(&mut sent).unwrap();
        sent.drain().for_each(drop);
    }
    let done = done.drain().next().unwrap();
    assert_eq!(done.context, Context(context));
    done
}
