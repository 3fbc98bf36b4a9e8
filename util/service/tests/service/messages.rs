//! Messages: order, sizes, windows.

use std::thread;
use std::time::Duration;

use selvedge_service::{End, Error, Event, Listener, Options, connect, connect_with};

use crate::{addresses, bounded, connected, ended, name, pattern};

const SIZES: [usize; 8] = [0, 1, 64, 4064, 4065, 40_000, 1 << 20, 9 << 20];

#[test]
fn messages_of_all_sizes_arrive_whole_and_in_order() {
    for address in addresses() {
        bounded(|| {
            let (listener, connection) = connected(&address);
            thread::scope(|scope| {
                scope.spawn(|| {
                    for (seed, len) in SIZES.into_iter().cycle().take(24).enumerate() {
                        connection.send(&pattern(len, seed)).wait().unwrap();
                    }
                    for (seed, len) in SIZES.into_iter().rev().enumerate() {
                        let message = connection.receive().wait().unwrap();
                        assert!(*message == pattern(len, seed), "{len} bytes");
                    }
                });
                for (seed, len) in SIZES.into_iter().cycle().take(24).enumerate() {
                    let Event::Message(peer, message) = listener.event().wait().unwrap() else {
                        panic!("no message");
                    };
                    assert!(*message == pattern(len, seed), "{len} bytes");
                    if seed == 23 {
                        for (seed, len) in SIZES.into_iter().rev().enumerate() {
                            peer.send(&pattern(len, seed)).wait().unwrap();
                        }
                    }
                }
            });
        });
    }
}

#[test]
fn a_sender_waits_while_its_peer_takes_no_message() {
    for address in addresses() {
        bounded(|| {
            let (listener, connection) = connected(&address);
            let mut sent = 0;
            let short = Duration::from_millis(50);
            while connection
                .send(&pattern(1000, sent))
                .wait_timeout(short)
                .is_ok()
            {
                sent += 1;
                // The listener's thread does not run: its window and the queue here are the limit.
                assert!(sent < 1000, "no limit");
            }
            thread::scope(|scope| {
                scope.spawn(|| connection.send(b"last").wait().unwrap());
                for seed in 0..sent {
                    let Event::Message(_, message) = listener.event().wait().unwrap() else {
                        panic!("no message");
                    };
                    assert_eq!(*message, pattern(1000, seed));
                }
                // The send that has timed out may have been under way.
                let mut event = listener.event().wait().unwrap();
                if matches!(&event, Event::Message(_, it) if **it == *pattern(1000, sent)) {
                    event = listener.event().wait().unwrap();
                }
                assert!(matches!(event, Event::Message(_, last) if *last == *b"last"));
            });
        });
    }
}

#[test]
fn a_dropped_send_takes_its_message_back_from_a_full_window() {
    for address in addresses() {
        bounded(|| {
            let options = Options::new().window(2, 8 << 20);
            let listener = Listener::bind_with(&address, &options).unwrap();
            let address = listener.addresses().unwrap().remove(0);
            let connection = thread::scope(|scope| {
                let connecting = scope.spawn(|| connect(&address).wait().unwrap());
                let event = listener.event().wait().unwrap();
                assert!(matches!(event, Event::Connected(_)), "{event:?}");
                connecting.join().unwrap()
            });
            for text in ["first", "second"] {
                connection.send(text.as_bytes()).wait().unwrap();
            }
            // The listener's thread does not run: it gives no credit for a third message.
            let short = Duration::from_millis(20);
            let dropped = connection.send(b"dropped").wait_timeout(short);
            assert_eq!(dropped.unwrap_err(), Error::Timeout(short));
            thread::scope(|scope| {
                scope.spawn(|| connection.send(b"last").wait().unwrap());
                for text in ["first", "second", "last"] {
                    let Event::Message(_, message) = listener.event().wait().unwrap() else {
                        panic!("no message");
                    };
                    assert_eq!(*message, *text.as_bytes());
                }
            });
        });
    }
}

#[test]
fn a_client_that_takes_no_message_delays_no_other_client() {
    bounded(|| {
        let (listener, silent) = connected(&name());
        let address = listener.addresses().unwrap().remove(0);
        let Event::Message(peer, _) = thread::scope(|scope| {
            scope.spawn(|| silent.send(b"here").wait().unwrap());
            listener.event().wait().unwrap()
        }) else {
            panic!("no message");
        };
        let short = Duration::from_millis(20);
        while peer.send(&[7; 100_000]).wait_timeout(short).is_ok() {}
        thread::scope(|scope| {
            let other = scope.spawn(move || {
                let other = connect(&address).wait().unwrap();
                for number in 0..100_u8 {
                    assert_eq!(*other.request(&[number]).wait().unwrap(), [number]);
                }
            });
            crate::serve_until_lost(&listener, <[u8]>::to_vec);
            other.join().unwrap();
        });
        thread::scope(|scope| {
            scope.spawn(move || {
                assert_eq!(silent.receive().wait().unwrap().len(), 100_000);
            });
            crate::serve_until_lost(&listener, <[u8]>::to_vec);
        });
    });
}

#[test]
fn a_message_beyond_the_limit_fails_at_its_sender_and_the_connection_stays() {
    for address in addresses() {
        bounded(|| {
            let options = Options::new().max_message(10_000);
            let listener = Listener::bind_with(&address, &options).unwrap();
            let address = listener.addresses().unwrap().remove(0);
            thread::scope(|scope| {
                scope.spawn(move || {
                    let connection = connect(&address).wait().unwrap();
                    assert_eq!(connection.max_message(), 10_000);
                    let limit = Error::TooLarge {
                        len: 10_001,
                        limit: 10_000,
                    };
                    let refused = connection.send(&[0; 10_001]).wait();
                    assert_eq!(refused.unwrap_err(), limit);
                    let refused = connection.request(&[0; 10_001]).wait();
                    assert_eq!(refused.unwrap_err(), limit);
                    assert_eq!(
                        connection.request(&[1; 10_000]).wait().unwrap().len(),
                        10_000
                    );
                });
                crate::serve_until_lost(&listener, <[u8]>::to_vec);
            });
        });
    }
}

#[test]
fn a_closed_connection_ends_at_both_sides_after_its_last_message() {
    for address in addresses() {
        bounded(|| {
            let (listener, connection) = connected(&address);
            connection.send(b"last").wait().unwrap();
            drop(connection);
            let event = listener.event().wait().unwrap();
            let Event::Message(peer, message) = event else {
                panic!("{event:?}");
            };
            assert_eq!(&*message, b"last");
            let event = listener.event().wait().unwrap();
            assert!(matches!(event, Event::Lost(_, End::Remote)), "{event:?}");
            assert!(ended(&peer.send(b"late").wait().unwrap_err()));
        });
    }
}

#[test]
fn a_listener_serves_several_transports_under_one_list() {
    bounded(|| {
        let list = addresses().join(",");
        let listener = Listener::bind(&list).unwrap();
        let bound = listener.addresses().unwrap();
        thread::scope(|scope| {
            for address in [bound[0].clone(), bound[1].clone(), bound.join(",")] {
                scope.spawn(move || {
                    let options = Options::new().connect_timeout(Duration::from_secs(50));
                    let connection = connect_with(&address, &options).wait().unwrap();
                    assert!(address.contains(connection.address()));
                    assert_eq!(&*connection.request(b"ping").wait().unwrap(), b"ping");
                });
            }
            for _ in 0..3 {
                crate::serve_until_lost(&listener, <[u8]>::to_vec);
            }
        });
        // The name of shared memory is free here: the client uses the other address.
        drop(listener);
        let listener = Listener::bind("tcp://127.0.0.1:0").unwrap();
        let tcp = listener.addresses().unwrap().remove(0);
        thread::scope(|scope| {
            let list = format!("{},{tcp}", name());
            scope.spawn(move || {
                let options = Options::new().connect_timeout(Duration::from_secs(50));
                let connection = connect_with(&list, &options).wait().unwrap();
                assert_eq!(connection.address(), tcp);
            });
            crate::serve_until_lost(&listener, <[u8]>::to_vec);
        });
    });
}
