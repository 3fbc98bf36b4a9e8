//! Parking of a consumer: a consumer that parks while a command is in its queue has a wake-up in
//! its socket.

use std::sync::Arc;

use loom::sync::Mutex;
use loom::thread;
use selvedge_shm::smr::model::Fault;
use selvedge_shm::smr::poll_state::{WakeRecord, WakeUp, fence_before_last_poll};
use selvedge_shm::smr::{PeerRegion, Region};

use super::{attach_peer, catches, explore, fails, region};

/// The epochs of a consumer that parks repeatedly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Epochs {
    Numbered,
    Constant,
}

/// The socket from the producer to the consumer: a packet in the socket wakes the consumer.
#[derive(Clone, Debug, Default)]
struct Socket(Arc<Mutex<usize>>);

impl Socket {
    fn wake(&self) {
        *self.0.lock().unwrap() += 1;
    }

    /// Reads all packets. Returns whether there was one.
    fn take(&self) -> bool {
        std::mem::take(&mut *self.0.lock().unwrap()) > 0
    }
}

/// The queue from the producer to the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    Commands,
    /// A collective channel, whose sender first checks only the parked flag.
    CollectiveChannel,
}

fn produce(local: Region, consumer: &PeerRegion, socket: &Socket, queue: Queue, count: u32) {
    let mut tx = match queue {
        Queue::Commands => local.cmd_sender(),
        Queue::CollectiveChannel => local.coll_sender(),
    };
    let (mut wake_record, parked_flag) = (WakeRecord::default(), consumer.parked_flag());
    for number in 0..count {
        tx.claim().unwrap().commit(number);
        let must_wake = match queue {
            Queue::Commands => !consumer.is_polling(),
            Queue::CollectiveChannel => parked_flag.may_be_parked(),
        };
        if must_wake && let Some(epoch) = wake_record.epoch_to_wake(consumer) {
            socket.wake();
            wake_record.record_wake(epoch);
        }
    }
    std::mem::forget(local);
}

/// The consumer parks whenever its queue is empty, and runs when its socket has a packet.
fn consumer_parks(queue: Queue, count: u32, epochs: Epochs) {
    let (local, remote) = (region(), region());
    let mut rx = match queue {
        Queue::Commands => attach_peer(&local).cmd_receiver(),
        Queue::CollectiveChannel => attach_peer(&local).coll_receiver(),
    };
    let consumer = attach_peer(&remote);
    let socket = Socket::default();
    let producer = {
        let socket = socket.clone();
        thread::spawn(move || produce(local, &consumer, &socket, queue, count))
    };
    let mut epoch = 1;
    loop {
        remote.set_parked(epoch);
        assert!(fence_before_last_poll());
        while rx.peek().is_some() {
            rx.release();
        }
        if !socket.take() {
            break;
        }
        epoch += u64::from(epochs == Epochs::Numbered);
    }
    producer.join().unwrap();
    assert!(
        rx.position() == u64::from(count) || socket.take(),
        "the consumer is parked with a command in its queue"
    );
}

#[test]
fn no_thread_parks_over_a_command() {
    explore(|| consumer_parks(Queue::Commands, 1, Epochs::Numbered));
}

#[test]
fn no_thread_parks_over_the_command_after_the_one_that_woke_it() {
    explore(|| consumer_parks(Queue::Commands, 2, Epochs::Numbered));
}

#[test]
fn a_wake_up_that_counts_for_every_epoch_is_noticed() {
    assert!(fails(|| consumer_parks(
        Queue::Commands,
        2,
        Epochs::Constant
    )));
}

#[test]
fn a_check_for_parked_threads_before_the_commit_is_noticed() {
    assert!(catches(Fault::Announce, || consumer_parks(
        Queue::Commands,
        1,
        Epochs::Numbered
    )));
}

#[test]
fn a_last_poll_before_arming_is_noticed() {
    assert!(catches(Fault::Arm, || consumer_parks(
        Queue::Commands,
        1,
        Epochs::Numbered
    )));
}

#[test]
fn no_thread_parks_over_a_message_in_a_collective_channel() {
    explore(|| consumer_parks(Queue::CollectiveChannel, 1, Epochs::Numbered));
    explore(|| consumer_parks(Queue::CollectiveChannel, 2, Epochs::Numbered));
}

#[test]
fn a_check_of_a_collective_channel_before_the_commit_is_noticed() {
    assert!(catches(Fault::Announce, || consumer_parks(
        Queue::CollectiveChannel,
        1,
        Epochs::Numbered
    )));
    assert!(catches(Fault::Arm, || consumer_parks(
        Queue::CollectiveChannel,
        1,
        Epochs::Numbered
    )));
}

/// The step by which an owner that has armed a peer marks the peer as unpolled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unpolled {
    /// By [`WakeUp::disarm`], which also clears the armed state.
    Disarmed,
    /// By the shared word alone.
    Forgotten,
}

/// The consumer arms a wake-up, stops polling the peer in favor of another one, and parks again.
fn consumer_polls_another(unpolled: Unpolled) {
    let (local, remote) = (region(), region());
    let mut rx = attach_peer(&local).cmd_receiver();
    let consumer = attach_peer(&remote);
    let socket = Socket::default();
    let producer = {
        let socket = socket.clone();
        thread::spawn(move || produce(local, &consumer, &socket, Queue::Commands, 1))
    };
    let mut wake_up = WakeUp::default();
    assert!(wake_up.arm(&remote, || 1));
    match unpolled {
        Unpolled::Disarmed => wake_up.disarm(&remote, false),
        Unpolled::Forgotten => remote.set_polled(false),
    }
    wake_up.arm(&remote, || 2);
    assert!(fence_before_last_poll());
    while rx.peek().is_some() {
        rx.release();
    }
    producer.join().unwrap();
    assert!(
        rx.position() == 1 || socket.take(),
        "the consumer is parked with a command in its queue"
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
