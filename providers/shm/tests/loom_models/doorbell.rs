//! Models of the doorbell, the polled flag and the sweep of all queues: in every interleaving of
//! the threads, the consumer finds the command.

use loom::thread;
use selvedge_shm::smr::doorbell::{Bell, Doorbell};
use selvedge_shm::smr::model::Fault;
use selvedge_shm::smr::{Memory, PeerRegion, Region};

use super::{attach_peer, catches, explore, fails, region};

/// The number of the bit that every [`Bell`] of these models sets.
const BIT_NUMBER: usize = 1;

/// When a consumer that has stopped polling polls its queue again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detection {
    /// Only when its doorbell is rung.
    BellsOnly,
    /// Also now and then without a ring, in a sweep of all queues.
    BellsAndSweep,
}

/// The action of the producer after it has committed a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterCommit {
    Announces,
    Dies,
}

fn doorbell() -> (Doorbell, Bell) {
    let (doorbell, memory) = Doorbell::create().unwrap();
    let bell = bell(&memory);
    (doorbell, bell)
}

fn bell(memory: &Memory) -> Bell {
    Bell::attach(memory.fd().try_clone_to_owned().unwrap(), BIT_NUMBER).unwrap()
}

fn is_rung(doorbell: &Doorbell) -> bool {
    let mut rung = false;
    doorbell.drain(64, |bit| {
        assert_eq!(bit, BIT_NUMBER);
        rung = true;
    });
    rung
}

fn produce(local: Region, consumer: &PeerRegion, bell: &Bell, after_commit: AfterCommit) {
    local.cmd_sender().claim().unwrap().commit(7);
    if after_commit == AfterCommit::Announces {
        consumer.announce(bell);
    }
    std::mem::forget(local);
}

/// The consumer stops polling while a command is sent. It polls once more at once if its doorbell
/// is rung, and a last time after the producer has ended.
fn consumer_stops_polling(detection: Detection, after_commit: AfterCommit) {
    let (local, remote) = (region(), region());
    let (doorbell, bell) = doorbell();
    let rx = attach_peer(&local).cmd_receiver();
    let consumer = attach_peer(&remote);
    let producer = thread::spawn(move || produce(local, &consumer, &bell, after_commit));
    let mut found = rx.peek().is_some();
    remote.set_polled(false);
    found |= is_rung(&doorbell) && rx.peek().is_some();
    producer.join().unwrap();
    let polls = is_rung(&doorbell) || detection == Detection::BellsAndSweep;
    found |= polls && rx.peek().is_some();
    assert!(found, "the command is lost");
}

#[test]
fn a_command_is_found_by_the_sweep_when_the_bell_was_not_rung() {
    explore(|| consumer_stops_polling(Detection::BellsAndSweep, AfterCommit::Announces));
}

#[test]
fn a_command_of_a_producer_that_died_before_ringing_is_found() {
    explore(|| consumer_stops_polling(Detection::BellsAndSweep, AfterCommit::Dies));
}

#[test]
fn the_model_detects_commands_that_are_lost_without_a_sweep() {
    assert!(fails(|| consumer_stops_polling(
        Detection::BellsOnly,
        AfterCommit::Announces
    )));
    assert!(fails(|| consumer_stops_polling(
        Detection::BellsOnly,
        AfterCommit::Dies
    )));
}

/// A producer whose consumer does not poll rings: a consumer that sees the bit also sees the
/// command. The consumer does not wait for the ring, because the model checker assumes that a
/// yielding thread has seen all stores.
fn bell_leads_to_command() {
    let (local, remote) = (region(), region());
    let (doorbell, bell) = doorbell();
    let rx = attach_peer(&local).cmd_receiver();
    remote.set_polled(false);
    let consumer = thread::spawn(move || {
        if is_rung(&doorbell) {
            assert!(rx.peek().is_some());
        }
    });
    produce(local, &attach_peer(&remote), &bell, AfterCommit::Announces);
    consumer.join().unwrap();
}

#[test]
fn a_bell_leads_to_its_command() {
    explore(bell_leads_to_command);
}

#[test]
fn the_model_detects_a_ring_without_release_ordering() {
    assert!(catches(Fault::Ring, bell_leads_to_command));
}

/// Two peers set the same bit at once, one of them without a command: the command is found.
fn bells_ring_at_once() {
    let (local, remote) = (region(), region());
    let (doorbell, memory) = Doorbell::create().unwrap();
    let (sender_bell, forger_bell) = (bell(&memory), bell(&memory));
    let rx = attach_peer(&local).cmd_receiver();
    remote.set_polled(false);
    let consumer = attach_peer(&remote);
    let forger = thread::spawn(move || forger_bell.ring());
    let producer =
        thread::spawn(move || produce(local, &consumer, &sender_bell, AfterCommit::Announces));
    let found_early = is_rung(&doorbell) && rx.peek().is_some();
    forger.join().unwrap();
    producer.join().unwrap();
    assert!(found_early || (is_rung(&doorbell) && rx.peek().is_some()));
}

#[test]
fn a_forged_ring_costs_one_poll() {
    explore(bells_ring_at_once);
}
