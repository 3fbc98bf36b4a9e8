//! The command queue with its credit.

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use selvedge_shm::smr::cmd_queue::{Credit, Receiver, Sender, Slot};
use selvedge_shm::smr::model::Fault;

use super::{attach_peer, catches, explore, region, wait};

/// One command more than there are slots.
const COMMANDS: u64 = 3;

fn claim<'a>(tx: &'a mut Sender, credit: &Credit) -> Slot<'a> {
    while tx.room() == 0 {
        tx.refresh(credit.read()).unwrap();
        thread::yield_now();
    }
    tx.claim().unwrap()
}

fn fill(slot: &mut Slot<'_>, number: u64) {
    slot.put(1, number + 100);
    slot.put(7, !number);
}

fn send(tx: &mut Sender, credit: &Credit, number: u64) {
    let mut slot = claim(tx, credit);
    fill(&mut slot, number);
    slot.commit(number as u32);
}

/// Takes the next command if there is one, and checks every word of it.
fn take(rx: &mut Receiver, number: u64) -> Option<()> {
    let slot = rx.peek()?;
    assert_eq!(u64::from(slot.head()), number);
    assert_eq!(slot.word(1), number + 100);
    assert_eq!(slot.word(7), !number);
    rx.release();
    Some(())
}

fn commands_pass() {
    let (local, remote) = (region(), region());
    let mut rx = attach_peer(&local).cmd_receiver();
    let (consumer_credit, producer_credit) = (remote.credit(), attach_peer(&remote).credit());
    let producer = thread::spawn(move || {
        let mut tx = local.cmd_sender();
        (0..COMMANDS).for_each(|number| send(&mut tx, &producer_credit, number));
    });
    for number in 0..COMMANDS {
        wait(|| take(&mut rx, number));
        consumer_credit.publish(rx.position());
    }
    producer.join().unwrap();
    assert!(rx.peek().is_none(), "a command arrives twice");
}

#[test]
fn commands_arrive_once_whole_and_in_order() {
    explore(commands_pass);
}

#[test]
fn a_commit_without_release_is_noticed() {
    assert!(catches(Fault::Commit, commands_pass));
}

/// A producer that ends after it wrote `words` words of its second command has sent one command.
fn producer_ends_before_commit(words: usize) {
    let local = region();
    let mut rx = attach_peer(&local).cmd_receiver();
    let producer = thread::spawn(move || {
        let mut tx = local.cmd_sender();
        let mut slot = tx.claim().unwrap();
        fill(&mut slot, 0);
        slot.commit(0);
        let mut slot = tx.claim().unwrap();
        (1..=words).for_each(|word| slot.put(word, u64::MAX));
        std::mem::forget(slot);
        std::mem::forget(local);
    });
    wait(|| take(&mut rx, 0));
    assert!(rx.peek().is_none());
    producer.join().unwrap();
    assert!(rx.peek().is_none(), "the uncommitted command is received");
}

#[test]
fn a_producer_that_ends_before_its_commit_has_sent_nothing() {
    for words in [0, 1, 7] {
        explore(move || producer_ends_before_commit(words));
    }
}

/// One producer stops between claim and commit. The commands of the other producer pass meanwhile,
/// and the stopped producer's command passes after it resumes.
fn producer_stops() {
    let (stopped, running) = (region(), region());
    let mut from_stopped = attach_peer(&stopped).cmd_receiver();
    let mut from_running = attach_peer(&running).cmd_receiver();
    let resume = std::sync::Arc::new(AtomicBool::new(false));
    let is_resumed = resume.clone();
    let first = thread::spawn(move || {
        let mut tx = stopped.cmd_sender();
        let mut slot = tx.claim().unwrap();
        fill(&mut slot, 0);
        wait(|| is_resumed.load(Ordering::Relaxed).then_some(()));
        slot.commit(0);
    });
    let second = thread::spawn(move || {
        let mut tx = running.cmd_sender();
        let mut slot = tx.claim().unwrap();
        fill(&mut slot, 7);
        slot.commit(7);
    });
    wait(|| {
        assert!(from_stopped.peek().is_none());
        take(&mut from_running, 7)
    });
    resume.store(true, Ordering::Relaxed);
    wait(|| take(&mut from_stopped, 0));
    first.join().unwrap();
    second.join().unwrap();
}

#[test]
fn a_stopped_producer_does_not_block_the_others() {
    explore(producer_stops);
}

#[test]
fn with_a_stopped_producer_a_commit_without_release_is_noticed() {
    assert!(catches(Fault::Commit, producer_stops));
}
