//! The inject pool: payloads are reused only after they were copied.

use loom::thread;
use selvedge_shm::smr::cmd_queue::{Credit, Receiver, Sender};
use selvedge_shm::smr::inject_pool::InjectPool;
use selvedge_shm::smr::model::Fault;
use selvedge_shm::smr::{PeerRegion, Region};

use super::{SIZES, catches, explore, fails, region, seen, wait};

/// One payload more than the pool holds.
const PAYLOADS: u8 = 3;

/// When the consumer gives a payload back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    CopyFirst,
    CreditFirst,
}

/// Queue and pool of a producer, and how far the pool was used at each slot.
struct Producer {
    tx: Sender,
    pool: InjectPool,
    marks: [u64; SIZES.cmd_count],
    credit: Credit,
}

impl Producer {
    fn new(ours: &Region, credit: Credit) -> Self {
        Self {
            tx: ours.cmd_sender(),
            pool: ours.inject_pool(),
            marks: [0; SIZES.cmd_count],
            credit,
        }
    }

    /// Copies a payload in, and says where it is.
    fn fill(&mut self, payload: u8) -> usize {
        let place = loop {
            if self.tx.room() > 0
                && let Some(place) = self.pool.claim(64)
            {
                break place;
            }
            self.learn();
            thread::yield_now();
        };
        self.marks[self.tx.position() as usize % SIZES.cmd_count] = self.pool.position();
        self.pool.bytes().copy_in(place, &[payload; 64]);
        place
    }

    fn learn(&mut self) {
        let consumed = self.credit.read();
        self.tx.refresh(consumed).unwrap();
        if let Some(last) = consumed.checked_sub(1) {
            self.pool
                .free_to(self.marks[last as usize % SIZES.cmd_count]);
        }
    }

    fn send(&mut self, payload: u8) {
        let place = self.fill(payload);
        self.tx.claim().unwrap().commit(place as u32);
    }
}

fn take(rx: &mut Receiver, from: &PeerRegion, give: &Credit, order: Order) -> Option<[u8; 64]> {
    let place = rx.peek()?.head() as usize;
    rx.release();
    if order == Order::CreditFirst {
        give.publish(rx.position());
    }
    let mut bytes = [std::mem::MaybeUninit::uninit(); 64];
    let payload = from.inject_bytes().copy_out(place, &mut bytes);
    let payload = (&*payload).try_into().unwrap();
    if order == Order::CopyFirst {
        give.publish(rx.position());
    }
    Some(payload)
}

fn payloads_pass(order: Order) {
    let (ours, theirs) = (region(), region());
    let (from, credit) = (seen(&ours), seen(&theirs).credit());
    let producer = thread::spawn(move || {
        let mut producer = Producer::new(&ours, credit);
        (0..PAYLOADS).for_each(|payload| producer.send(payload));
    });
    let (mut rx, give) = (from.cmd_receiver(), theirs.credit());
    for payload in 0..PAYLOADS {
        let got = wait(|| take(&mut rx, &from, &give, order));
        assert_eq!(got, [payload; 64]);
    }
    producer.join().unwrap();
}

#[test]
fn payloads_arrive_whole() {
    explore(|| payloads_pass(Order::CopyFirst));
}

#[test]
fn a_commit_without_release_is_noticed() {
    assert!(catches(Fault::Commit, || payloads_pass(Order::CopyFirst)));
}

#[test]
fn a_credit_without_release_is_noticed() {
    assert!(catches(Fault::Credit, || payloads_pass(Order::CopyFirst)));
}

#[test]
fn a_credit_before_the_copy_is_noticed() {
    assert!(fails(|| payloads_pass(Order::CreditFirst)));
}

/// A producer that dies between copying a payload in and announcing it has sent only what it had
/// sent before.
fn producer_dies() {
    let (ours, theirs) = (region(), region());
    let (from, credit) = (seen(&ours), seen(&theirs).credit());
    let producer = thread::spawn(move || {
        let mut producer = Producer::new(&ours, credit);
        producer.send(0);
        producer.fill(1);
        std::mem::forget(ours);
    });
    let (mut rx, give) = (from.cmd_receiver(), theirs.credit());
    let got = wait(|| take(&mut rx, &from, &give, Order::CopyFirst));
    assert_eq!(got, [0; 64]);
    producer.join().unwrap();
    assert!(rx.peek().is_none());
}

#[test]
fn a_producer_that_dies_after_its_copy_has_sent_nothing() {
    explore(producer_dies);
}
