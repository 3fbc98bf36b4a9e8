//! Waits: a wait without an event lasts its whole time, its thread parks, and events wake the
//! thread.

use std::thread;
use std::time::{Duration, Instant};

use selvedge_bmi::{Bmi, Completion, Config, Post};

use crate::common::{
    IDLE, SCHEMES, bytes, for_each_scheme, pattern, pending, server_at, thread_time, unexpected,
};

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(30);

#[test]
fn waits_last_their_time_and_park_from_the_first_call_on() {
    for_each_scheme(|pair| {
        let id = pending(pair.server.recv(1, 1));
        let idle = Duration::from_millis(200);
        let (bmi, context) = (&pair.server.bmi, pair.server.context);
        let waits: [&dyn Fn() -> bool; 3] = [
            &|| bmi.test(id, idle, context).unwrap().is_none(),
            &|| bmi.testcontext(1, idle, context, |_| ()) == Ok(0),
            &|| bmi.testunexpected(1, 0, idle, |_| ()) == Ok(0),
        ];
        for wait in waits {
            let (start, used) = (Instant::now(), thread_time());
            assert!(wait());
            assert!(start.elapsed() >= idle);
            assert!(thread_time() - used < idle / 4);
        }
        let start = Instant::now();
        assert!(bmi.wait(id, context).unwrap().is_none());
        assert!(start.elapsed() >= selvedge_bmi::WAIT);
        assert_eq!(bmi.waitunexpected(1, 0, |_| ()), Ok(0));
    });
}

#[test]
fn an_instance_without_methods_waits_too() {
    let bmi = Bmi::initialize(Config::client()).unwrap();
    let context = bmi.open_context().unwrap();
    let start = Instant::now();
    let idle = Duration::from_millis(50);
    assert_eq!(bmi.testcontext(1, idle, context, |_| ()), Ok(0));
    assert!(start.elapsed() >= idle);
}

#[test]
fn a_complete_operation_is_reported_without_waiting() {
    for_each_scheme(|pair| {
        let id = pending(pair.server.recv(1, 1));
        pair.client.wait(pair.client.send(b"x", 1));
        (0..1000).for_each(|_| pair.server.drive());
        let start = Instant::now();
        assert!(
            pair.server
                .bmi
                .test(id, LONG, pair.server.context)
                .unwrap()
                .is_some()
        );
        assert!(start.elapsed() < LONG);
    });
}

#[test]
fn a_message_wakes_the_parked_receiver() {
    for_each_scheme(|pair| {
        for size in [8, 100_000] {
            let id = pending(pair.server.recv(size, 1));
            thread::scope(|scope| {
                let (server, client) = (&pair.server, &pair.client);
                let waiter =
                    scope.spawn(move || server.bmi.test(id, LONG, server.context).unwrap());
                thread::sleep(Duration::from_millis(20));
                client.wait(client.send(&vec![1; size], 1));
                assert_eq!(waiter.join().unwrap().unwrap().outcome, Ok(size as u64));
            });
        }
    });
}

#[test]
fn an_unexpected_message_ends_testcontext_unless_disabled() {
    for_each_scheme(|pair| {
        let (server, client) = (&pair.server, &pair.client);
        let send = || {
            let sent = client
                .bmi
                .post_sendunexpected(client.post(b"hello".to_vec(), 1), 0);
            client.wait(sent);
        };
        let idle = |time| {
            server
                .bmi
                .testcontext(1, time, server.context, |_| ())
                .unwrap()
        };
        thread::scope(|scope| {
            let waiter = scope.spawn(|| idle(LONG));
            thread::sleep(Duration::from_millis(20));
            send();
            assert_eq!(waiter.join().unwrap(), 0);
        });
        assert_eq!(&*server.request().buffer, b"hello");
        server.bmi.interrupt_on_unexpected(false);
        send();
        let (start, time) = (Instant::now(), Duration::from_millis(100));
        idle(time);
        assert!(start.elapsed() >= time);
    });
}

#[test]
fn posts_beside_a_parked_thread_are_sent_without_a_test() {
    for_each_scheme(|pair| {
        let (server, client) = (&pair.server, &pair.client);
        let last_receive = pending(client.recv(1, 2));
        thread::scope(|scope| {
            // The waiter collects every completion.
            let waiter = scope.spawn(|| {
                let mut has_ended = false;
                while !has_ended {
                    let check = |completion: Completion| has_ended |= completion.id == last_receive;
                    client
                        .bmi
                        .testcontext(8, LONG, client.context, check)
                        .unwrap();
                }
            });
            for round in 0..10 {
                thread::sleep(Duration::from_millis(5));
                for _ in 0..5 {
                    client.send(&pattern(100, round), 1).unwrap();
                }
                for _ in 0..5 {
                    let completion = server.wait(server.recv(100, 1));
                    assert_eq!(bytes(&completion), pattern(100, round));
                }
            }
            server.wait(server.send(&[1], 2));
            waiter.join().unwrap();
        });
    });
}

#[test]
fn a_thread_that_reports_a_completion_wakes_its_waiter() {
    for scheme in SCHEMES {
        let (server, url) = server_at(scheme);
        let context = server.open_context().unwrap();
        let client = Bmi::initialize(Config::client()).unwrap();
        let (ctx, peer) = (
            client.open_context().unwrap(),
            client.addr_lookup(&url).unwrap(),
        );
        client
            .post_sendunexpected(Post::new(peer, vec![1], 1, ctx), 0)
            .unwrap();
        let hello = crate::common::until("a hello", || {
            client.testcontext(1, Duration::ZERO, ctx, |_| ()).unwrap();
            unexpected(&server, 0)
        });
        for _ in 0..50 {
            let id = pending(server.post_recv(Post::new(hello.addr, vec![0; 8], 2, context)));
            thread::scope(|scope| {
                let waiter = scope.spawn(|| server.test(id, LONG, context).unwrap());
                // This thread progresses all methods. No event is for this thread.
                let other = scope.spawn(|| server.testunexpected(1, 7, IDLE * 10, |_| ()));
                // The first message after a test is sent by the post itself.
                client.testcontext(1, Duration::ZERO, ctx, |_| ()).unwrap();
                client
                    .post_send(Post::new(peer, vec![1; 8], 2, ctx))
                    .unwrap();
                assert!(waiter.join().unwrap().is_some());
                assert_eq!(other.join().unwrap(), Ok(0));
            });
        }
    }
}
