//! Falling asleep: whoever sleeps while there is something for it, is being woken.

use std::sync::Arc;

use loom::sync::Mutex;
use loom::thread;
use selvedge_shm::smr::model::Fault;
use selvedge_shm::smr::poll_state::{WakeRecord, WakeUp, fence_before_last_poll};
use selvedge_shm::smr::{PeerRegion, Region};

use super::{catches, explore, fails, region, seen};

/// Whether a consumer that has been woken begins a new night.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nights {
    Numbered,
    AllTheSame,
}

/// The socket between the two: what is in there wakes the consumer.
#[derive(Clone, Debug, Default)]
struct Socket(Arc<Mutex<usize>>);

impl Socket {
    fn wake(&self) {
        *self.0.lock().unwrap() += 1;
    }

    /// Reads what is in there.
    fn take(&self) -> bool {
        std::mem::take(&mut *self.0.lock().unwrap()) > 0
    }
}

/// What the two talk by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    Commands,
    /// Beside them, by somebody who looks at the word alone at first.
    Lane,
}

fn produce(ours: Region, consumer: &PeerRegion, socket: &Socket, queue: Queue, count: u32) {
    let mut tx = match queue {
        Queue::Commands => ours.cmd_sender(),
        Queue::Lane => ours.coll_sender(),
    };
    let (mut caller, sleeper) = (WakeRecord::default(), consumer.parked_flag());
    for number in 0..count {
        tx.claim().unwrap().commit(number);
        let is_called = match queue {
            Queue::Commands => !consumer.is_polling(),
            Queue::Lane => sleeper.may_be_parked(),
        };
        if is_called && let Some(night) = caller.epoch_to_wake(consumer) {
            socket.wake();
            caller.record_wake(night);
        }
    }
    std::mem::forget(ours);
}

/// The consumer sleeps whenever it finds nothing, and is awake when something is in its socket.
fn consumer_sleeps(queue: Queue, count: u32, nights: Nights) {
    let (ours, theirs) = (region(), region());
    let mut rx = match queue {
        Queue::Commands => seen(&ours).cmd_receiver(),
        Queue::Lane => seen(&ours).coll_receiver(),
    };
    let consumer = seen(&theirs);
    let socket = Socket::default();
    let producer = {
        let socket = socket.clone();
        thread::spawn(move || produce(ours, &consumer, &socket, queue, count))
    };
    let mut night = 1;
    loop {
        theirs.set_parked(night);
        assert!(fence_before_last_poll());
        while rx.peek().is_some() {
            rx.release();
        }
        if !socket.take() {
            break;
        }
        night += u64::from(nights == Nights::Numbered);
    }
    producer.join().unwrap();
    assert!(
        rx.position() == u64::from(count) || socket.take(),
        "it sleeps though a command is there"
    );
}

#[test]
fn no_thread_parks_over_a_command() {
    explore(|| consumer_sleeps(Queue::Commands, 1, Nights::Numbered));
}

#[test]
fn no_thread_parks_over_the_command_after_the_one_that_woke_it() {
    explore(|| consumer_sleeps(Queue::Commands, 2, Nights::Numbered));
}

#[test]
fn a_wake_up_that_counts_for_every_epoch_is_noticed() {
    assert!(fails(|| consumer_sleeps(
        Queue::Commands,
        2,
        Nights::AllTheSame
    )));
}

#[test]
fn a_check_for_parked_threads_before_the_commit_is_noticed() {
    assert!(catches(Fault::Announce, || consumer_sleeps(
        Queue::Commands,
        1,
        Nights::Numbered
    )));
}

#[test]
fn a_last_poll_before_arming_is_noticed() {
    assert!(catches(Fault::Arm, || consumer_sleeps(
        Queue::Commands,
        1,
        Nights::Numbered
    )));
}

#[test]
fn no_thread_parks_over_a_message_in_a_collective_channel() {
    explore(|| consumer_sleeps(Queue::Lane, 1, Nights::Numbered));
    explore(|| consumer_sleeps(Queue::Lane, 2, Nights::Numbered));
}

#[test]
fn a_check_of_a_collective_channel_before_the_commit_is_noticed() {
    assert!(catches(Fault::Announce, || consumer_sleeps(
        Queue::Lane,
        1,
        Nights::Numbered
    )));
    assert!(catches(Fault::Arm, || consumer_sleeps(
        Queue::Lane,
        1,
        Nights::Numbered
    )));
}

/// How an owner that has asked for a wake-up tells the peer that it is not polled any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unpolled {
    /// By [`WakeUp::disarm`], which forgets that the peer was asked.
    Disarmed,
    /// By the word alone.
    Forgotten,
}

/// The consumer asks for a wake-up, is told by another peer to poll that one instead, and parks
/// again.
fn consumer_polls_another(unpolled: Unpolled) {
    let (ours, theirs) = (region(), region());
    let mut rx = seen(&ours).cmd_receiver();
    let consumer = seen(&theirs);
    let socket = Socket::default();
    let producer = {
        let socket = socket.clone();
        thread::spawn(move || produce(ours, &consumer, &socket, Queue::Commands, 1))
    };
    let mut wake_up = WakeUp::default();
    assert!(wake_up.arm(&theirs, || 1));
    match unpolled {
        Unpolled::Disarmed => wake_up.disarm(&theirs, false),
        Unpolled::Forgotten => theirs.set_polled(false),
    }
    wake_up.arm(&theirs, || 2);
    assert!(fence_before_last_poll());
    while rx.peek().is_some() {
        rx.release();
    }
    producer.join().unwrap();
    assert!(
        rx.position() == 1 || socket.take(),
        "it sleeps though a command is there"
    );
}

#[test]
fn a_consumer_that_polls_another_peer_is_woken() {
    explore(|| consumer_polls_another(Unpolled::Disarmed));
}

#[test]
fn a_wake_up_that_is_withdrawn_and_taken_for_armed_is_noticed() {
    assert!(fails(|| consumer_polls_another(Unpolled::Forgotten)));
}
