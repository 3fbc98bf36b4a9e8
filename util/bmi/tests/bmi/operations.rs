//! Operations and contexts: ids, `user` values, cancelling, and ownership by contexts.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::Duration;

use nix::unistd::gettid;
use selvedge_bmi::{Addr, Bmi, CONTEXTS, Code, Config, ContextId, OpId, Post, Posted};

use crate::common::{
    IDLE, TIMEOUT, bytes, for_each_scheme, is_parked, pattern, pending, thread_time, until,
};

#[test]
fn there_are_sixteen_contexts_and_a_closed_one_is_reused() {
    let bmi = Bmi::initialize(Config::client()).unwrap();
    let open: Vec<_> = (0..CONTEXTS).map(|_| bmi.open_context().unwrap()).collect();
    assert_eq!(bmi.open_context(), Err(Code::EBUSY));
    bmi.close_context(open[5]);
    bmi.close_context(open[5]);
    assert_eq!(bmi.open_context(), Ok(open[5]));
    for bad in [-1, 16, i64::MIN, i64::MAX] {
        bmi.close_context(ContextId(bad));
        let tested = bmi.testcontext(1, Duration::ZERO, ContextId(bad), |_| ());
        assert_eq!(tested, Err(Code::EINVAL));
    }
}

#[test]
fn a_context_reports_its_own_operations_in_completion_order() {
    for_each_scheme(|pair| {
        let other = pair.server.bmi.open_context().unwrap();
        let mut ids = Vec::new();
        for tag in 0..4 {
            let context = if tag % 2 == 0 {
                pair.server.context
            } else {
                other
            };
            let post =
                Post::new(pair.server.peer, vec![0; 9], tag, context).with_user(tag as u64 + 10);
            ids.push(pending(pair.server.bmi.post_recv(post)));
        }
        for tag in [2, 3, 0, 1] {
            pair.client.wait(pair.client.send(b"x", tag));
        }
        let mut collected = Vec::new();
        pair.until("four completions", || {
            for (number, context) in [pair.server.context, other].into_iter().enumerate() {
                let collect = |completion: selvedge_bmi::Completion| {
                    collected.push((number, completion.user, completion.id))
                };
                pair.server
                    .bmi
                    .testcontext(1, Duration::ZERO, context, collect)
                    .unwrap();
            }
            (collected.len() == 4).then_some(())
        });
        let completions_of = |context| {
            collected
                .iter()
                .filter(move |(number, ..)| *number == context)
        };
        let users = |context| {
            completions_of(context)
                .map(|(_, user, _)| *user)
                .collect::<Vec<_>>()
        };
        assert_eq!((users(0), users(1)), (vec![12, 10], vec![13, 11]));
        assert_eq!(
            completions_of(0).map(|(.., id)| *id).collect::<Vec<_>>(),
            [ids[2], ids[0]]
        );
        let wrong = pending(pair.server.recv(1, 50));
        assert_eq!(
            pair.server
                .bmi
                .test(wrong, Duration::ZERO, other)
                .unwrap_err(),
            Code::EINVAL
        );
    });
}

#[test]
fn a_closed_context_drops_its_completions() {
    for_each_scheme(|pair| {
        let context = pair.server.bmi.open_context().unwrap();
        for tag in 0..2 {
            pending(pair.server.bmi.post_recv(Post::new(
                pair.server.peer,
                vec![0; 9],
                tag,
                context,
            )));
        }
        pair.client.wait(pair.client.send(b"x", 0));
        pair.server.drive();
        pair.server.bmi.close_context(context);
        assert_eq!(pair.server.bmi.open_context(), Ok(context));
        pair.client.wait(pair.client.send(b"x", 1));
        for _ in 0..100 {
            assert_eq!(
                pair.server
                    .bmi
                    .testcontext(1, Duration::ZERO, context, |_| ()),
                Ok(0)
            );
        }
    });
}

#[test]
fn testsome_skips_empty_entries() {
    for_each_scheme(|pair| {
        let ids: Vec<_> = (0..4)
            .map(|tag| pending(pair.server.recv(9, tag)))
            .collect();
        let mut requested: Vec<_> = ids.iter().map(|&id| Some(id)).collect();
        requested[1] = None;
        pair.client.wait(pair.client.send(b"three", 3));
        pair.client.wait(pair.client.send(b"one", 1));
        let mut collected = Vec::new();
        pair.until("a completion", || {
            let collect = |index, completion| collected.push((index, completion));
            let count =
                pair.server
                    .bmi
                    .testsome(&requested, Duration::ZERO, pair.server.context, collect);
            (count.unwrap() > 0).then_some(())
        });
        assert_eq!(collected.len(), 1);
        assert_eq!(
            (collected[0].0, bytes(&collected[0].1)),
            (3, b"three".to_vec())
        );
        // A call with a collected id fails and collects nothing.
        let failed =
            pair.server
                .bmi
                .testsome(&requested, Duration::ZERO, pair.server.context, |_, _| ());
        assert_eq!(failed, Err(Code::EINVAL));
        let waited = pair
            .server
            .bmi
            .waitsome(&requested[..1], pair.server.context, |_, _| ());
        assert_eq!(waited, Ok(0));
    });
}

#[test]
fn invalid_ids_are_errors_without_effect() {
    for_each_scheme(|pair| {
        let used = pending(pair.server.recv(9, 1));
        pair.client.wait(pair.client.send(b"x", 1));
        pair.until("the receive", || pair.server.test(used));
        let mut random = fastrand::Rng::with_seed(1);
        let mut ids = vec![OpId(0), OpId(-1), OpId(i64::MIN), OpId(i64::MAX), used];
        for _ in 0..10_000 {
            ids.push(OpId(random.i64(..)));
        }
        for id in ids {
            let tested = pair
                .server
                .bmi
                .test(id, Duration::ZERO, pair.server.context);
            assert_eq!(tested.unwrap_err(), Code::EINVAL);
            pair.server.bmi.cancel(id);
        }
        for addr in [0, -1, 1, i64::MAX, pair.server.peer.0 + 1] {
            let post = Post::new(Addr(addr), vec![0; 9], 1, pair.server.context);
            assert_eq!(
                pair.server.bmi.post_recv(post).unwrap_err().code,
                Code::EPROTO
            );
        }
    });
}

#[test]
fn ids_of_concurrent_threads_are_unique() {
    for_each_scheme(|pair| {
        let seen = Mutex::new(HashSet::new());
        thread::scope(|scope| {
            for thread in 0..4 {
                let (side, seen) = (&pair.server, &seen);
                scope.spawn(move || {
                    let mut ids = Vec::new();
                    for _ in 0..20_000 {
                        let id = pending(side.recv(1, thread));
                        ids.push(id);
                        side.bmi.cancel(id);
                        until("the cancel", || side.test(id));
                    }
                    let mut seen = seen.lock().unwrap();
                    assert!(ids.into_iter().all(|id| seen.insert(id)));
                });
            }
        });
    });
}

#[test]
fn a_cancelled_receive_leaves_its_message_to_the_next() {
    for_each_scheme(|pair| {
        let first = pending(pair.server.recv(9, 1));
        let second = pending(pair.server.recv(9, 1));
        pair.server.bmi.cancel(first);
        pair.server.bmi.cancel(first);
        let completion = pair.server.test(first).unwrap();
        assert_eq!(completion.outcome, Err(Code::ECANCEL));
        assert_eq!(completion.buffers[0].len(), 9);
        pair.client.wait(pair.client.send(b"hello", 1));
        let completion = pair.until("the second", || pair.server.test(second));
        assert_eq!(bytes(&completion), b"hello");
    });
}

#[test]
fn cancelling_a_running_operation_ends_no_other() {
    for_each_scheme(|pair| {
        let size = 8 << 20;
        let receive = pending(pair.server.recv(size, 1));
        let send = pending(pair.client.send(&pattern(size, 1), 1));
        pair.server.drive();
        pair.client.bmi.cancel(send);
        pair.server.bmi.cancel(receive);
        let received = pair
            .until("the receive", || pair.server.test(receive))
            .outcome;
        if received == Err(Code::ECANCEL) {
            // The cancelled receive had not begun, so the message waits for another receive.
            let second = pair.server.recv(size, 1);
            pair.finish(&pair.server, second).outcome.unwrap();
        }
        let sent = pair.until("the send", || pair.client.test(send)).outcome;
        assert!(matches!(sent, Ok(_) | Err(Code::ECANCEL)));
        pair.client.wait(pair.client.send(b"alive", 2));
        let completion = pair.finish(&pair.server, pair.server.recv(9, 2));
        assert_eq!(bytes(&completion), b"alive");
    });
}

#[test]
fn unpost_cancels_an_operation_that_has_not_begun() {
    for_each_scheme(|pair| {
        let id = pending(pair.server.recv(9, 1));
        let ended = pair.server.unpost(id).unwrap().unwrap();
        assert_eq!((ended.id, ended.outcome), (id, Err(Code::ECANCEL)));
        assert_eq!(pair.server.unpost(id).unwrap_err(), Code::EINVAL);
        // The next receive matches the message.
        pair.client.wait(pair.client.send(b"next", 1));
        let completion = pair.finish(&pair.server, pair.server.recv(9, 1));
        assert_eq!(bytes(&completion), b"next");
    });
}

#[test]
fn unpost_collects_a_complete_operation() {
    for_each_scheme(|pair| {
        let id = pending(pair.server.recv(9, 1));
        pair.client.wait(pair.client.send(b"done", 1));
        let barrier = pending(pair.server.recv(9, 2));
        pair.client.wait(pair.client.send(b"behind", 2));
        pair.until("the message behind", || pair.server.test(barrier));
        let completion = pair.server.unpost(id).unwrap().unwrap();
        assert_eq!(bytes(&completion), b"done");
        assert_eq!(pair.server.unpost(id).unwrap_err(), Code::EINVAL);
    });
}

#[test]
fn unpost_leaves_a_running_operation_to_a_later_test() {
    for_each_scheme(|pair| {
        let size = 8 << 20;
        let send = pending(pair.client.send(&pattern(size, 1), 1));
        pair.server.drive();
        assert!(pair.client.unpost(send).unwrap().is_none());
        let received = pair.finish(&pair.server, pair.server.recv(size, 1));
        assert_eq!(bytes(&received), pattern(size, 1));
        let sent = pair.until("the send", || pair.client.test(send));
        assert_eq!(sent.outcome, Ok(size as u64));
    });
}

#[test]
fn a_waiting_test_ends_when_its_operation_is_unposted() {
    for_each_scheme(|pair| {
        let id = pending(pair.server.recv(9, 1));
        let waiter = AtomicI32::new(0);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let side = &pair.server;
                waiter.store(gettid().as_raw(), Ordering::SeqCst);
                side.bmi.test(id, 2 * TIMEOUT, side.context)
            });
            until("the thread to park", || {
                let waiter = waiter.load(Ordering::SeqCst);
                (waiter != 0 && is_parked(waiter)).then_some(())
            });
            let ended = pair.server.unpost(id).unwrap().unwrap();
            assert_eq!(ended.outcome, Err(Code::ECANCEL));
            until("the end of the wait", || {
                thread::yield_now();
                waiting.is_finished().then_some(())
            });
            assert_eq!(waiting.join().unwrap().unwrap_err(), Code::EINVAL);
        });
    });
}

#[test]
fn matching_cost_does_not_grow_with_posted_receives() {
    for_each_scheme(|pair| {
        let cost = |posted: i32| {
            let ids: Vec<_> = (0..posted)
                .map(|tag| pending(pair.server.recv(8, tag)))
                .collect();
            let start = thread_time();
            for tag in (0..posted).rev().take(1000) {
                pair.client.wait(pair.client.send(b"x", tag));
                let id = ids[tag as usize];
                pair.until("a message", || pair.server.test(id));
            }
            let time = thread_time() - start;
            for id in &ids {
                pair.server.bmi.cancel(*id);
            }
            let mut remaining = (posted as usize).saturating_sub(1000);
            until("the remaining receives", || {
                let completed = pair
                    .server
                    .bmi
                    .testcontext(4096, IDLE, pair.server.context, |_| ())
                    .unwrap();
                remaining -= completed;
                (remaining == 0).then_some(())
            });
            time / posted.min(1000).try_into().unwrap()
        };
        let (few, many) = (cost(10), cost(100_000));
        // Processor time: a factor of twenty would be a linear search.
        assert!(
            many < few * 20 + Duration::from_micros(50),
            "{few:?} and {many:?}"
        );
    });
}

#[test]
fn eight_threads_share_an_instance() {
    for_each_scheme(|pair| {
        thread::scope(|scope| {
            for tag in 0..8 {
                let (server, client) = (&pair.server, &pair.client);
                scope.spawn(move || {
                    let context = server.bmi.open_context().unwrap();
                    for number in 0..100_u8 {
                        let size = [8, 5000, 70_000][number as usize % 3];
                        let receive = server.bmi.post_recv(Post::new(
                            server.peer,
                            vec![0; size],
                            tag,
                            context,
                        ));
                        let sent = client.send(&pattern(size, number), tag);
                        let completion = match receive.unwrap() {
                            Posted::Done(completion) => completion,
                            Posted::Pending(id) => until("a message", || {
                                client.drive();
                                server.bmi.test(id, IDLE, context).unwrap()
                            }),
                        };
                        assert_eq!(bytes(&completion), pattern(size, number));
                        client.wait(sent).outcome.unwrap();
                    }
                });
            }
        });
    });
}
