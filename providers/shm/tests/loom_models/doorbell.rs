//! The doorbell, the attention flag and the sweep: news are found, however they race.

use loom::thread;
use selvedge_shm::smr::doorbell::{Bell, Doorbell};
use selvedge_shm::smr::model::Fault;
use selvedge_shm::smr::{Memory, PeerRegion, Region};

use super::{catches, explore, fails, region, seen};

const NUMBER: usize = 1;

/// How a consumer that has stopped polling looks for news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    BellsOnly,
    BellsAndSweep,
}

/// What the producer does after its commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Announces,
    Dies,
}

fn doorbell() -> (Doorbell, Bell) {
    let (doorbell, memory) = Doorbell::create().unwrap();
    let bell = bell(&memory);
    (doorbell, bell)
}

fn bell(memory: &Memory) -> Bell {
    Bell::attach(memory.fd().try_clone_to_owned().unwrap(), NUMBER).unwrap()
}

fn is_rung(doorbell: &Doorbell) -> bool {
    let mut rung = false;
    doorbell.drain(64, |bit| {
        assert_eq!(bit, NUMBER);
        rung = true;
    });
    rung
}

fn produce(ours: Region, consumer: &PeerRegion, bell: &Bell, end: End) {
    ours.cmd_sender().claim().unwrap().commit(7);
    if end == End::Announces {
        consumer.announce(bell);
    }
    std::mem::forget(ours);
}

/// The consumer stops polling while a command is sent. It looks once more at once, and a last time
/// when the producer is through.
fn consumer_turns_away(look: Look, end: End) {
    let (ours, theirs) = (region(), region());
    let (doorbell, bell) = doorbell();
    let rx = seen(&ours).cmd_receiver();
    let consumer = seen(&theirs);
    let producer = thread::spawn(move || produce(ours, &consumer, &bell, end));
    let mut found = rx.peek().is_some();
    theirs.set_polled(false);
    found |= is_rung(&doorbell) && rx.peek().is_some();
    producer.join().unwrap();
    let looks = is_rung(&doorbell) || look == Look::BellsAndSweep;
    found |= looks && rx.peek().is_some();
    assert!(found, "the command is lost");
}

#[test]
fn a_command_is_found_by_the_sweep_when_the_bell_was_not_rung() {
    explore(|| consumer_turns_away(Look::BellsAndSweep, End::Announces));
}

#[test]
fn a_command_of_a_producer_that_died_before_ringing_is_found() {
    explore(|| consumer_turns_away(Look::BellsAndSweep, End::Dies));
}

#[test]
fn bells_without_a_sweep_are_noticed_to_lose_commands() {
    assert!(fails(|| consumer_turns_away(
        Look::BellsOnly,
        End::Announces
    )));
    assert!(fails(|| consumer_turns_away(Look::BellsOnly, End::Dies)));
}

/// Nobody polls: a bell that is heard leads to its command. The consumer does not wait for it,
/// because the model checker takes whoever yields to have seen all there is.
fn bell_leads_to_command() {
    let (ours, theirs) = (region(), region());
    let (doorbell, bell) = doorbell();
    let rx = seen(&ours).cmd_receiver();
    theirs.set_polled(false);
    let consumer = thread::spawn(move || {
        if is_rung(&doorbell) {
            assert!(rx.peek().is_some());
        }
    });
    produce(ours, &seen(&theirs), &bell, End::Announces);
    consumer.join().unwrap();
}

#[test]
fn a_bell_leads_to_its_command() {
    explore(bell_leads_to_command);
}

#[test]
fn a_bell_without_release_is_noticed() {
    assert!(catches(Fault::Ring, bell_leads_to_command));
}

/// Two peers ring at once, one of them for nothing: neither bit is lost.
fn bells_ring_at_once() {
    let (ours, theirs) = (region(), region());
    let (doorbell, memory) = Doorbell::create().unwrap();
    let (honest, forger) = (bell(&memory), bell(&memory));
    let rx = seen(&ours).cmd_receiver();
    theirs.set_polled(false);
    let consumer = seen(&theirs);
    let forging = thread::spawn(move || forger.ring());
    let producer = thread::spawn(move || produce(ours, &consumer, &honest, End::Announces));
    let early = is_rung(&doorbell) && rx.peek().is_some();
    forging.join().unwrap();
    producer.join().unwrap();
    assert!(early || rx.peek().is_some());
}

#[test]
fn a_forged_ring_costs_one_poll() {
    explore(bells_ring_at_once);
}
