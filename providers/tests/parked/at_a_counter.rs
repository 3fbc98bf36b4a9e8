//! One thread is parked at a counter until several messages have arrived.

use std::thread;
use std::time::Instant;

use selvedge::cq::Entry;

use crate::endpoint::ParkingEndpoint;
use crate::{LIMIT, UNTIL_PARKED};

/// The number of messages of a round.
const MESSAGES: u64 = 3;
/// The number of rounds. In some rounds the parked thread itself receives the messages.
const ROUNDS: u64 = 30;

/// Runs a thread that polls until the receive queue is full, reads one completion to make room, and
/// exits while another thread is parked.
fn make_room_beside_a_parked_thread(provider: &str) {
    let (shared, peer) = (
        ParkingEndpoint::with(provider, 1, &[]),
        ParkingEndpoint::open(provider),
    );
    let (to_shared, _) = (peer.insert_endpoint(&shared), shared.insert_endpoint(&peer));
    let mut expected = 0;
    for round in 0..ROUNDS {
        (0..MESSAGES).for_each(|_| shared.post_receive());
        expected += MESSAGES;
        thread::scope(|scope| {
            let parked = scope.spawn(|| shared.is_woken_by_messages(expected));
            let filled = scope.spawn(|| {
                let start = Instant::now();
                while !shared.take_received() {
                    assert!(start.elapsed() < LIMIT, "no message has arrived");
                    shared.poll();
                }
            });
            thread::sleep(UNTIL_PARKED);
            for _ in 0..MESSAGES {
                peer.inject(to_shared);
                peer.poll();
            }
            while !filled.is_finished() {
                peer.poll();
            }
            filled.join().unwrap();
            // From this point only the parked thread drives the endpoint.
            while !parked.is_finished() {
                peer.poll();
                shared.take_received();
            }
            assert!(parked.join().unwrap(), "{provider}, round {round}");
        });
        while shared.take_received() {}
    }
}

#[test]
fn a_parked_thread_receives_when_another_one_has_made_room_in_the_queue_over_shm() {
    make_room_beside_a_parked_thread("shm");
}

#[test]
fn a_parked_thread_receives_when_another_one_has_made_room_in_the_queue_over_tcp() {
    make_room_beside_a_parked_thread("tcp");
}

#[test]
fn a_parked_thread_receives_when_another_one_has_made_room_in_the_queue_over_udp() {
    make_room_beside_a_parked_thread("udp");
}

#[test]
fn a_parked_thread_receives_when_another_one_has_made_room_in_the_queue_over_lnx() {
    make_room_beside_a_parked_thread("lnx");
}

/// A number of messages of which an lnx endpoint without receives must store some.
const MANY: u64 = 100;

#[test]
fn a_parked_lnx_thread_reads_again_after_another_receives_the_kept_messages() {
    // With different host names, lnx stores the messages themselves, not RTS frames.
    let [shared, peer] = ["one", "other"].map(|host| {
        let variables = [("FI_LNX_HOST", host), ("FI_LNX_UNEXPECTED_SIZE", "1")];
        ParkingEndpoint::with("lnx", 0, &variables)
    });
    let to_shared = peer.insert_endpoint(&shared);
    shared.insert_endpoint(&peer);
    thread::scope(|scope| {
        for _ in 0..MANY {
            peer.inject(to_shared);
            peer.poll();
            shared.poll();
        }
        (0..1000).for_each(|_| {
            peer.poll();
            shared.poll();
        });
        let parked = scope.spawn(|| shared.is_woken_by_messages(MANY));
        thread::sleep(UNTIL_PARKED);
        (0..MANY).for_each(|_| shared.post_receive());
        // From this point only the parked thread drives the endpoint.
        while !parked.is_finished() {
            peer.poll();
        }
        assert!(parked.join().unwrap(), "messages of the link are not read");
    });
}

/// The length of the tagged messages; the quota has room for one.
const LEN: usize = 600;

#[test]
fn a_parked_tcp_thread_reads_again_after_another_receives_the_kept_message() {
    // The quota of each side has room for one message.
    let [shared, peer] =
        [(); 2].map(|()| ParkingEndpoint::with("tcp", 0, &[("FI_TCP_UNEXPECTED_SIZE", "1000")]));
    let to_shared = peer.insert_endpoint(&shared);
    shared.insert_endpoint(&peer);
    shared.post_tagged_receive(3, LEN);
    (1..=3).for_each(|tag| peer.inject_tagged(&[1; LEN], to_shared, tag));
    for _ in 0..10_000 {
        peer.poll();
        shared.poll();
    }
    assert!(!shared.take_received(), "the second message does not stall");
    thread::scope(|scope| {
        let parked = scope.spawn(|| shared.is_woken_by_messages(2));
        thread::sleep(UNTIL_PARKED);
        shared.post_tagged_receive(1, LEN);
        // From this point only the parked thread drives the endpoint.
        while !parked.is_finished() {
            peer.poll();
        }
        assert!(parked.join().unwrap(), "the third message is not read");
    });
}

#[test]
fn a_send_completes_while_the_queue_of_receives_is_full() {
    for provider in ["shm", "tcp", "lnx"] {
        let (shared, peer) = (
            ParkingEndpoint::with(provider, 1, &[]),
            ParkingEndpoint::open(provider),
        );
        let (to_peer, to_shared) = (shared.insert_endpoint(&peer), peer.insert_endpoint(&shared));
        shared.post_receive();
        peer.inject(to_shared);
        let start = Instant::now();
        while !shared.rx.cq().is_ready() {
            assert!(
                start.elapsed() < LIMIT,
                "{provider}: no message has arrived"
            );
            peer.poll();
        }
        shared.send(b"a message", to_peer);
        peer.post_receive();
        let start = Instant::now();
        while shared.tx.cq().read(&mut [Entry::default()]) == Ok(0) {
            assert!(
                start.elapsed() < LIMIT,
                "{provider}: the send does not complete"
            );
            peer.poll();
        }
    }
}
