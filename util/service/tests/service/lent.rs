//! Publications that subscribers read in the publisher's memory.

#![expect(unsafe_code, reason = "slices of publications are compared")]

use nix::sys::signal::Signal;
use selvedge_service::{End, Error, Publication, Publisher, Start, Subscriber, subscribe};

use crate::processes::Process;
use crate::topics::{new_subscriber, next_publication};
use crate::{addresses, bounded, name, pattern};

/// A length over the limit of messages that are copied.
const LONG: usize = 100_000;

fn is_shared(address: &str) -> bool {
    address.starts_with("shm://")
}

/// The bytes of a publication whose publisher and subscriber exist.
fn slice_of(publication: &Publication) -> &[u8] {
    // SAFETY: publisher and subscribers exist while the tests use the slice, and nothing writes it.
    unsafe { publication.as_slice() }
}

/// Publishes a pattern and returns it as a subscriber receives it.
fn publish_to(publisher: &Publisher, subscriber: &mut Subscriber, seed: usize) -> Publication {
    publisher.publish(&pattern(LONG, seed)).unwrap();
    let publication = next_publication(publisher, subscriber);
    assert!(publication.to_vec().unwrap() == pattern(LONG, seed));
    publication
}

#[test]
fn long_publications_are_read_from_the_memory_of_the_publisher() {
    for address in addresses() {
        bounded(|| {
            let publisher = Publisher::bind(&address, 2).unwrap();
            let mut subscribers = [(); 3].map(|()| new_subscriber(&publisher, Start::Now));
            for (seed, len) in [0, 100, 4000, 4096, LONG, 3 << 20].into_iter().enumerate() {
                let mut message = publisher.message(len).unwrap();
                message.copy_from_slice(&pattern(len, seed));
                publisher.publish_message(message).unwrap();
                let received = subscribers
                    .each_mut()
                    .map(|subscriber| next_publication(&publisher, subscriber));
                for publication in &received {
                    let is_lent = is_shared(&address) && len > 4032;
                    assert_eq!((publication.is_lent(), publication.len()), (is_lent, len));
                    assert!(*publication.bytes().unwrap() == pattern(len, seed));
                    let bytes = slice_of(publication);
                    assert!(
                        bytes == pattern(len, seed) && bytes.as_ptr().addr().is_multiple_of(64)
                    );
                }
            }
        });
    }
}

#[test]
fn parts_of_a_publication_are_copied_and_bytes_behind_its_end_are_an_error() {
    for (address, len) in [(name(), 24), (name(), LONG)] {
        bounded(|| {
            let publisher = Publisher::bind(&address, 1).unwrap();
            let mut subscriber = new_subscriber(&publisher, Start::Now);
            publisher.publish(&pattern(len, 3)).unwrap();
            let publication = next_publication(&publisher, &mut subscriber);
            let mut part = [0; 8];
            publication.copy_to(len - 8, &mut part).unwrap();
            assert_eq!(part, pattern(len, 3)[len - 8..]);
            assert_eq!(publication.read(len - 8), Ok(u64::from_ne_bytes(part)));
            for offset in [len - 7, len, usize::MAX] {
                let error = publication.copy_to(offset, &mut part).unwrap_err();
                let expected = Error::Range {
                    len,
                    offset,
                    count: 8,
                };
                assert_eq!(error, expected);
                assert_eq!(publication.read::<u64>(offset), Err(expected));
            }
        });
    }
}

#[test]
fn a_subscriber_that_keeps_publications_receives_copies_of_further_ones() {
    bounded(|| {
        let publisher = Publisher::bind(&name(), 2).unwrap();
        let mut greedy = new_subscriber(&publisher, Start::Now);
        let mut other = new_subscriber(&publisher, Start::Now);
        let mut kept = Vec::new();
        for seed in 0..200 {
            let publication = publish_to(&publisher, &mut greedy, seed);
            assert_eq!(publication.is_lent(), seed < 8, "{seed}");
            kept.push(publication);
            let publication = next_publication(&publisher, &mut other);
            assert!(publication.is_lent() && publication.number() == seed as u64);
        }
        for (seed, publication) in kept.drain(..).enumerate() {
            assert!(publication.to_vec().unwrap() == pattern(LONG, seed));
        }
        while !publish_to(&publisher, &mut greedy, 0).is_lent() {}
    });
}

#[test]
fn buffers_return_to_the_publisher_when_publications_are_dropped_or_their_holders_killed() {
    bounded(|| {
        let publisher = Publisher::bind(&name(), 2).unwrap();
        let address = publisher.addresses().unwrap().remove(0);
        let mut subscriber = new_subscriber(&publisher, Start::Now);
        let mut memory = Vec::new();
        for round in 0..4 {
            let mut process = Process::start("keeping subscriber", &address);
            while publisher.subscribers() < 2 {
                publisher.progress().unwrap();
            }
            for seed in 0..30 {
                assert!(publish_to(&publisher, &mut subscriber, seed).is_lent());
                let is_lent = loop_until_line(&publisher, &mut process);
                assert_eq!(is_lent, (seed < 8).to_string(), "{round}");
            }
            process.signal(Signal::SIGKILL);
            while publisher.subscribers() > 1 {
                publisher.progress().unwrap();
            }
            memory.push(publisher.memory());
        }
        // Each process has kept 8 buffers of 128 KiB.
        assert!(memory[3] < memory[0] + (12 << 17), "{memory:?}");
    });
}

/// The next line of a process, while the publisher makes progress.
fn loop_until_line(publisher: &Publisher, process: &mut Process) -> String {
    std::thread::scope(|scope| {
        let line = scope.spawn(|| process.line());
        while !line.is_finished() {
            publisher.progress().unwrap();
        }
        line.join().unwrap()
    })
}

#[test]
fn publications_of_a_killed_publisher_stay_readable() {
    bounded(|| {
        let mut process = Process::start("publisher", &name());
        let mut subscriber = subscribe(&process.line()).wait().unwrap();
        let publications = [(); 4].map(|()| subscriber.receive().wait().unwrap());
        process.signal(Signal::SIGKILL);
        let error = subscriber.receive().wait().unwrap_err();
        assert!(matches!(error, Error::Ended(End::Lost(_))), "{error}");
        for (seed, publication) in publications.iter().enumerate() {
            assert!(publication.is_lent());
            assert!(publication.to_vec().unwrap() == pattern(200_000, seed));
        }
    });
}

#[test]
fn a_publication_cannot_be_read_after_its_publisher_or_subscriber_was_dropped() {
    bounded(|| {
        let publisher = Publisher::bind(&name(), 2).unwrap();
        let mut subscriber = new_subscriber(&publisher, Start::Now);
        let publication = publish_to(&publisher, &mut subscriber, 1);
        let mut other = new_subscriber(&publisher, Start::History);
        let of_dropped = next_publication(&publisher, &mut other);
        drop(other);
        drop(publisher);
        for publication in [publication, of_dropped] {
            assert!(publication.is_lent());
            let error = publication.to_vec().unwrap_err();
            assert!(matches!(error, Error::Ended(_)), "{error}");
        }
    });
}

#[test]
fn a_publisher_that_ends_waits_until_its_last_publications_are_read() {
    bounded(|| {
        let publisher = Publisher::bind(&name(), 4).unwrap();
        let mut subscriber = new_subscriber(&publisher, Start::Now);
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                for seed in 0..4 {
                    let publication = subscriber.receive().wait().unwrap();
                    assert!(
                        publication.to_vec().unwrap() == pattern(LONG, seed),
                        "{seed}"
                    );
                }
            });
            for seed in 0..4 {
                publisher.publish(&pattern(LONG, seed)).unwrap();
            }
            drop(publisher);
            reader.join().unwrap();
        });
    });
}
