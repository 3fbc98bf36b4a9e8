//! Falling asleep: whoever sleeps while there is something for it, is being woken.

use std::sync::Arc;

use loom::sync::Mutex;
use loom::thread;
use selvedge_shm::smr::attention::{Caller, last_look};
use selvedge_shm::smr::model::Fault;
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

fn produce(ours: Region, consumer: &PeerRegion, socket: &Socket, count: u32) {
    let (mut tx, mut caller) = (ours.cmd_sender(), Caller::default());
    for number in 0..count {
        tx.claim().unwrap().commit(number);
        if !consumer.is_attentive()
            && let Some(night) = caller.night(consumer)
        {
            socket.wake();
            caller.has_called(night);
        }
    }
    std::mem::forget(ours);
}

/// The consumer sleeps whenever it finds nothing, and is awake when something is in its socket.
fn consumer_sleeps(count: u32, nights: Nights) {
    let (ours, theirs) = (region(), region());
    let (mut rx, consumer) = (seen(&ours).cmd_receiver(), seen(&theirs));
    let socket = Socket::default();
    let producer = {
        let socket = socket.clone();
        thread::spawn(move || produce(ours, &consumer, &socket, count))
    };
    let mut night = 1;
    loop {
        theirs.fall_asleep(night);
        assert!(last_look());
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
fn nobody_sleeps_over_a_command() {
    explore(|| consumer_sleeps(1, Nights::Numbered));
}

#[test]
fn nobody_sleeps_over_the_command_after_the_one_that_woke_it() {
    explore(|| consumer_sleeps(2, Nights::Numbered));
}

#[test]
fn a_wake_up_that_counts_for_every_night_is_noticed() {
    assert!(fails(|| consumer_sleeps(2, Nights::AllTheSame)));
}

#[test]
fn a_look_for_sleepers_that_passes_the_commit_is_noticed() {
    assert!(catches(Fault::Announce, || consumer_sleeps(
        1,
        Nights::Numbered
    )));
}

#[test]
fn a_last_look_that_passes_the_falling_asleep_is_noticed() {
    assert!(catches(Fault::Sleep, || consumer_sleeps(
        1,
        Nights::Numbered
    )));
}
