//! Publishers and subscribers.

use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use selvedge_service::{
    End, Error, Options, Publication, Publisher, Start, Subscriber, run, subscribe, subscribe_with,
};

use crate::processes::Process;
use crate::{addresses, bounded, pattern};

/// Subscribes while the publisher makes progress.
pub(crate) fn new_subscriber(publisher: &Publisher, start: Start) -> Subscriber {
    let address = publisher.addresses().unwrap().remove(0);
    let before = publisher.subscribers();
    let subscriber = thread::scope(|scope| {
        let subscribing = scope.spawn(|| {
            subscribe_with(&address, start, &Options::new())
                .wait()
                .unwrap()
        });
        while !subscribing.is_finished() {
            publisher.progress().unwrap();
        }
        subscribing.join().unwrap()
    });
    while publisher.subscribers() == before {
        publisher.progress().unwrap();
    }
    subscriber
}

/// The next publication, while the publisher makes progress.
pub(crate) fn next_publication(publisher: &Publisher, subscriber: &mut Subscriber) -> Publication {
    let short = Duration::from_millis(1);
    loop {
        publisher.progress().unwrap();
        match subscriber.receive().wait_timeout(short) {
            Ok(next) => return next,
            Err(error) => assert_eq!(error, Error::Timeout(short)),
        }
    }
}

/// The number, the lost ones before and the bytes of the next publication.
fn next(publisher: &Publisher, subscriber: &mut Subscriber) -> (u64, u64, Vec<u8>) {
    let next = next_publication(publisher, subscriber);
    (next.number(), next.lost(), next.to_vec().unwrap())
}

#[test]
fn subscribers_receive_publications_of_all_sizes_in_order() {
    for address in addresses() {
        bounded(|| {
            let publisher = Publisher::bind(&address, 4).unwrap();
            let mut subscribers = [(); 3].map(|()| new_subscriber(&publisher, Start::Now));
            for (number, len) in [0, 1, 64, 5000, 1 << 20, 3 << 20].into_iter().enumerate() {
                let bytes = pattern(len, number);
                publisher.publish(&bytes).unwrap();
                for subscriber in &mut subscribers {
                    let received = next(&publisher, subscriber);
                    assert!(received == (number as u64, 0, bytes.clone()), "{len} bytes");
                }
            }
        });
    }
}

#[test]
fn a_late_subscriber_receives_the_history_or_later_publications() {
    for address in addresses() {
        bounded(|| {
            let publisher = Publisher::bind(&address, 3).unwrap();
            for number in 0..10_u8 {
                publisher.publish(&[number]).unwrap();
            }
            let mut late = new_subscriber(&publisher, Start::History);
            for number in 7..10_u8 {
                let expected = (u64::from(number), 0, vec![number]);
                assert_eq!(next(&publisher, &mut late), expected);
            }
            let mut new = new_subscriber(&publisher, Start::Now);
            publisher.publish(b"new").unwrap();
            for subscriber in [&mut late, &mut new] {
                assert_eq!(next(&publisher, subscriber), (10, 0, b"new".to_vec()));
            }
        });
    }
}

#[test]
fn a_slow_subscriber_loses_the_oldest_and_learns_their_number() {
    for address in addresses() {
        bounded(|| {
            let publisher = Publisher::bind(&address, 2).unwrap();
            let mut slow = new_subscriber(&publisher, Start::History);
            let mut fast = new_subscriber(&publisher, Start::History);
            for number in 0..500_u64 {
                publisher
                    .publish(&pattern(100_000, number as usize))
                    .unwrap();
                assert_eq!(next(&publisher, &mut fast).0, number);
            }
            let (mut received, mut lost, mut last) = (0, 0, None);
            while last != Some(499) {
                let (number, gap, bytes) = next(&publisher, &mut slow);
                assert!(bytes == pattern(100_000, number as usize));
                assert_eq!(number, last.map_or(0, |last| last + 1) + gap);
                (received, lost, last) = (received + 1, lost + gap, Some(number));
            }
            assert_eq!(received + lost, 500);
            assert!(lost > 400, "{lost}");
        });
    }
}

#[test]
fn a_killed_subscriber_or_publisher_disturbs_no_other_process() {
    for address in addresses() {
        bounded(|| {
            let publisher = Publisher::bind(&address, 4).unwrap();
            let address = publisher.addresses().unwrap().remove(0);
            let process = Process::start("subscriber", &address);
            while publisher.subscribers() == 0 {
                publisher.progress().unwrap();
            }
            for _ in 0..50 {
                publisher.publish(&pattern(200_000, 1)).unwrap();
            }
            process.signal(Signal::SIGKILL);
            while publisher.subscribers() > 0 {
                publisher.publish(&pattern(200_000, 1)).unwrap();
            }
            let mut other = new_subscriber(&publisher, Start::Now);
            publisher.publish(b"after").unwrap();
            assert_eq!(next(&publisher, &mut other).2, b"after");
            drop(publisher);
            let error = other.receive().wait().unwrap_err();
            assert!(matches!(error, Error::Ended(End::Remote)), "{error}");
        });
    }
}

#[test]
fn a_served_publisher_makes_progress_beside_other_futures() {
    for address in addresses() {
        bounded(|| {
            let publisher = Publisher::bind(&address, 2).unwrap();
            let address = publisher.addresses().unwrap().remove(0);
            let finished = run(async {
                let subscriber = async {
                    let mut subscriber = subscribe(&address).await.unwrap();
                    for number in 0..100_u64 {
                        publisher.publish(&number.to_le_bytes()).unwrap();
                        let next = subscriber.receive().await.unwrap();
                        assert_eq!((next.number(), next.read(0)), (number, Ok(number)));
                    }
                };
                let serve = std::pin::pin!(publisher.serve());
                futures::future::select(std::pin::pin!(subscriber), serve).await;
            });
            assert_eq!(finished, Ok(()));
        });
    }
}
