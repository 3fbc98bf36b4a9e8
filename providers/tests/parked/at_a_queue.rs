//! One thread is parked at the receive queue.

use std::thread;

use selvedge::FiAddr;

use crate::UNTIL_PARKED;
use crate::endpoint::ParkingEndpoint;

const ROUNDS: u64 = 3;
/// The number of messages that are posted while the thread is parked. Messages after the first may
/// be batched.
const MESSAGES: usize = 3;

/// Opens and connects two sides. Returns each with the other's address.
fn open_connected(provider: &str) -> [(ParkingEndpoint, FiAddr); 2] {
    let (shared, peer) = (
        ParkingEndpoint::open(provider),
        ParkingEndpoint::open(provider),
    );
    let (to_peer, to_shared) = (shared.insert_endpoint(&peer), peer.insert_endpoint(&shared));
    shared.post_receive();
    peer.inject(to_shared);
    shared.receive(1, Some(&peer));
    [(shared, to_peer), (peer, to_shared)]
}

/// In every round, posts from one thread while another thread is parked; then only the parked
/// thread drives the endpoint.
fn post_beside_a_parked_thread(provider: &str) {
    let [(shared, to_peer), (peer, to_shared)] = open_connected(provider);
    for round in 0..ROUNDS {
        (0..MESSAGES).for_each(|_| peer.post_receive());
        thread::scope(|scope| {
            let parked = scope.spawn(|| shared.is_woken_by_a_message());
            thread::sleep(UNTIL_PARKED);
            shared.poll();
            shared.post_receive();
            (0..MESSAGES).for_each(|_| shared.inject(to_peer));
            // From this point only the parked thread drives the endpoint.
            peer.receive(MESSAGES, None);
            peer.inject(to_shared);
            peer.poll();
            let is_woken = parked.join().unwrap();
            assert!(
                is_woken,
                "{provider}, round {round}: the message woke no thread"
            );
        });
    }
}

#[test]
fn a_parked_thread_progresses_posts_of_another_thread_over_shm() {
    post_beside_a_parked_thread("shm");
}

#[test]
fn a_parked_thread_progresses_posts_of_another_thread_over_tcp() {
    post_beside_a_parked_thread("tcp");
}

#[test]
fn a_parked_thread_progresses_posts_of_another_thread_over_udp() {
    post_beside_a_parked_thread("udp");
}

#[test]
fn a_parked_thread_progresses_posts_of_another_thread_over_lnx() {
    post_beside_a_parked_thread("lnx");
}

/// A length that a link does not send without a CTS.
const LARGE: usize = 4 << 20;

#[test]
fn a_parked_thread_retries_messages_for_which_an_lnx_link_had_no_room() {
    let [(shared, to_peer), (peer, to_shared)] = open_connected("lnx");
    peer.send(&vec![7; LARGE], to_shared);
    // The RTS arrives before the receive is posted.
    for _ in 0..100 {
        peer.poll();
        shared.poll();
    }
    thread::scope(|scope| {
        let parked = scope.spawn(|| shared.is_woken_by_a_message());
        while shared.ep.inject(b"parked", to_peer, None).is_ok() {}
        thread::sleep(UNTIL_PARKED);
        shared.post_receive_of(LARGE);
        // From this point only the parked thread drives the endpoint.
        while !parked.is_finished() {
            peer.poll();
        }
        assert!(parked.join().unwrap(), "the RTS gets no CTS");
    });
}
