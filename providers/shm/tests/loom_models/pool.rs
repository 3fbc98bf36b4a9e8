//! The inject pool: a payload's memory is reused only after the consumer has copied it.

use loom::thread;
use selvedge_shm::smr::cmd_queue::{Credit, Receiver, Sender};
use selvedge_shm::smr::inject_pool::InjectPool;
use selvedge_shm::smr::model::Fault;
use selvedge_shm::smr::{PeerRegion, Region};

use super::{SIZES, attach_peer, catches, explore, fails, region, wait};

/// One payload more than the pool holds.
const PAYLOADS: u8 = 3;

/// The order of the consumer's copy and its credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopyOrder {
    CopyFirst,
    CreditFirst,
}

/// The queue and pool of a producer, and the pool's position after each slot's payload.
struct Producer {
    tx: Sender,
    pool: InjectPool,
    positions: [u64; SIZES.cmd_count],
    credit: Credit,
}

impl Producer {
    fn new(local: &Region, credit: Credit) -> Self {
        Self {
            tx: local.cmd_sender(),
            pool: local.inject_pool(),
            positions: [0; SIZES.cmd_count],
            credit,
        }
    }

    /// Copies a payload in. Returns its offset.
    fn fill(&mut self, payload: u8) -> usize {
        let offset = loop {
            if self.tx.room() > 0
                && let Some(offset) = self.pool.claim(64)
            {
                break offset;
            }
            self.refresh_credit();
            thread::yield_now();
        };
        self.positions[self.tx.position() as usize % SIZES.cmd_count] = self.pool.position();
        self.pool.bytes().copy_in(offset, &[payload; 64]);
        offset
    }

    fn refresh_credit(&mut self) {
        let consumed = self.credit.read();
        self.tx.refresh(consumed).unwrap();
        if let Some(last) = consumed.checked_sub(1) {
            self.pool
                .free_to(self.positions[last as usize % SIZES.cmd_count]);
        }
    }

    fn send(&mut self, payload: u8) {
        let offset = self.fill(payload);
        self.tx.claim().unwrap().commit(offset as u32);
    }
}

fn take(
    rx: &mut Receiver,
    peer: &PeerRegion,
    credit: &Credit,
    order: CopyOrder,
) -> Option<[u8; 64]> {
    let offset = rx.peek()?.head() as usize;
    rx.release();
    if order == CopyOrder::CreditFirst {
        credit.publish(rx.position());
    }
    let mut bytes = [std::mem::MaybeUninit::uninit(); 64];
    let payload = peer.inject_bytes().copy_out(offset, &mut bytes);
    let payload = (&*payload).try_into().unwrap();
    if order == CopyOrder::CopyFirst {
        credit.publish(rx.position());
    }
    Some(payload)
}

fn payloads_pass(order: CopyOrder) {
    let (local, remote) = (region(), region());
    let (peer, credit) = (attach_peer(&local), attach_peer(&remote).credit());
    let producer = thread::spawn(move || {
        let mut producer = Producer::new(&local, credit);
        (0..PAYLOADS).for_each(|payload| producer.send(payload));
    });
    let (mut rx, credit) = (peer.cmd_receiver(), remote.credit());
    for payload in 0..PAYLOADS {
        let received = wait(|| take(&mut rx, &peer, &credit, order));
        assert_eq!(received, [payload; 64]);
    }
    producer.join().unwrap();
}

#[test]
fn payloads_arrive_whole() {
    explore(|| payloads_pass(CopyOrder::CopyFirst));
}

#[test]
fn a_commit_without_release_is_noticed() {
    assert!(catches(Fault::Commit, || payloads_pass(
        CopyOrder::CopyFirst
    )));
}

#[test]
fn a_credit_without_release_is_noticed() {
    assert!(catches(Fault::Credit, || payloads_pass(
        CopyOrder::CopyFirst
    )));
}

#[test]
fn a_credit_before_the_copy_is_noticed() {
    assert!(fails(|| payloads_pass(CopyOrder::CreditFirst)));
}

/// A producer that ends between the copy of a payload and its commit has sent only its earlier
/// payloads.
fn producer_ends_before_commit() {
    let (local, remote) = (region(), region());
    let (peer, credit) = (attach_peer(&local), attach_peer(&remote).credit());
    let producer = thread::spawn(move || {
        let mut producer = Producer::new(&local, credit);
        producer.send(0);
        producer.fill(1);
        std::mem::forget(local);
    });
    let (mut rx, credit) = (peer.cmd_receiver(), remote.credit());
    let received = wait(|| take(&mut rx, &peer, &credit, CopyOrder::CopyFirst));
    assert_eq!(received, [0; 64]);
    producer.join().unwrap();
    assert!(rx.peek().is_none());
}

#[test]
fn a_producer_that_ends_after_its_copy_has_sent_nothing() {
    explore(producer_ends_before_commit);
}
