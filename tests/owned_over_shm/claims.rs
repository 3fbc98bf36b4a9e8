//! Messages that are claimed, and received or discarded by the holder of the claim.

use futures::executor::block_on;
use selvedge::owned::{AsyncEndpoint, Claim, Completion, Completions, Endpoint, Pool};
use selvedge::{Context, Errno, FiAddr};

use crate::{Shm, assert_message, message, under_watchdog};

#[test]
fn a_claimed_message_is_received_only_with_its_claim() {
    under_watchdog(|| {
        let shm = Shm::open();
        let ((a, a_addr), (b, b_addr)) = (shm.polled(), shm.polled());
        for len in [8, 4000, 100_000] {
            let (outgoing, pool) = (shm.pool(len, 2), shm.pool(len, 3));
            let take_buf = || pool.take().unwrap();
            let claim = || {
                let claim = b.tclaim(take_buf(), a_addr, 5, Context(3)).unwrap();
                (claim, wait_for(&b, &a, 3).result)
            };
            let (empty_claim, peeked) = claim();
            assert_eq!(peeked.unwrap_err().errno, Errno::NoMsg);
            let error = b
                .recv_claimed(empty_claim, take_buf(), Context(4))
                .unwrap_err();
            assert_eq!(error.errno, Errno::NoMsg);
            for seed in [1, 2] {
                let message = message(&outgoing, len, seed);
                a.tsend(message, b_addr, 5, Context(seed as u64)).unwrap();
            }
            let claim_message = || loop {
                if let (claim, Ok(peeked)) = claim() {
                    assert_eq!(peeked.len, len);
                    return claim;
                }
            };
            let (first, second) = (claim_message(), claim_message());
            assert_eq!(claim().1.unwrap_err().errno, Errno::NoMsg);
            b.recv_claimed(second, take_buf(), Context(6)).unwrap();
            let mut done = wait_for(&b, &a, 6);
            done.result.unwrap();
            assert_message(&done.buf, len, 2);
            b.discard_claimed(first, take_buf(), Context(7)).unwrap();
            done = wait_for(&b, &a, 7);
            done.result.unwrap();
            for used in [first, second] {
                let error = b.recv_claimed(used, take_buf(), Context(8)).unwrap_err();
                assert_eq!(error.errno, Errno::NoMsg);
            }
        }
    });
}

#[test]
fn an_awaited_claim_is_exclusive_and_discards_its_message_when_dropped() {
    under_watchdog(|| {
        let shm = Shm::open();
        let ((a, _), (b, b_addr)) = (shm.awaited(), shm.awaited());
        for len in [8, 4000, 100_000] {
            let (outgoing, pool) = (shm.pool(len, 2), shm.pool(len, 3));
            let is_empty = async || {
                let peeked = b.tpeek(pool.take().unwrap(), FiAddr::UNSPEC, 5).await;
                peeked.unwrap_err().entry.errno == Errno::NoMsg
            };
            let sends = [1, 2].map(|seed| a.tsend(message(&outgoing, len, seed), b_addr, 5));
            let claims = async {
                let first = claim_next(&b, &a, &pool).await;
                let second = claim_next(&b, &a, &pool).await;
                assert_eq!((first.found().len, second.found().len), (len, len));
                assert!(is_empty().await);
                let (buf, received) = second.recv().await.unwrap();
                assert_eq!((received.len, received.tag), (len, 5));
                assert_message(&buf, len, 2);
                drop(first);
                assert!(is_empty().await);
            };
            block_on(async { futures::join!(futures::future::join_all(sends), claims) });
            b.progress().unwrap();
            assert_eq!(pool.available(), 3);
        }
    });
}

#[test]
fn claims_dropped_at_any_stage_leak_nothing() {
    under_watchdog(|| {
        let shm = Shm::open();
        let ((a, _), (b, b_addr)) = (shm.awaited(), shm.awaited());
        let (pool, long) = (shm.pool(8, 1), shm.pool(16, 1));
        // The number of rounds exceeds the number of slots.
        for round in 0..4000 {
            let bytes = [round as u8; 16];
            while a.tinject(&bytes, b_addr, 5, None) == Err(Errno::Again) {
                b.progress().unwrap();
            }
            let claim = block_on(claim_next(&b, &a, &pool));
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

/// Claims the next message with tag 5, while the sender makes progress.
async fn claim_next<'a>(ep: &'a AsyncEndpoint, sender: &AsyncEndpoint, pool: &Pool) -> Claim<'a> {
    loop {
        match ep.tclaim(pool.take().unwrap(), FiAddr::UNSPEC, 5).await {
            Ok(claim) => return claim,
            Err(failed) => assert_eq!(failed.entry.errno, Errno::NoMsg),
        }
        sender.progress().unwrap();
    }
}

/// Polls both endpoints. Returns the next completion of `ep`, which must have this context.
fn wait_for(ep: &Endpoint, other: &Endpoint, context: u64) -> Completion {
    let (mut done, mut sent) = (Completions::with_capacity(1), Completions::with_capacity(9));
    while ep.poll(&mut done).unwrap() == 0 {
        other.poll(&mut sent).unwrap();
        sent.drain().for_each(drop);
    }
    let done = done.drain().next().unwrap();
    assert_eq!(done.context, Context(context));
    done
}
