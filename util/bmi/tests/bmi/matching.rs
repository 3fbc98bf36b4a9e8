//! Matching by peer and tag, in order, for all sizes.

use std::time::Duration;

use selvedge_bmi::{Bmi, Code, Config, Post, Posted};

use crate::common::{
    Pair, SCHEMES, bytes, for_each_scheme, pattern, pending, server_at, unexpected,
};

#[test]
fn messages_match_receives_by_tag_in_order() {
    for_each_scheme(|pair| {
        for (text, tag) in [("A", 1), ("B", 2), ("C", 1)] {
            pair.client.wait(pair.client.send(text.as_bytes(), tag));
        }
        for (tag, text) in [(2, "B"), (1, "A"), (1, "C")] {
            let completion = pair.finish(&pair.server, pair.server.recv(9, tag));
            assert_eq!(bytes(&completion), text.as_bytes());
        }
    });
}

#[test]
fn receives_posted_before_and_after_take_messages_in_order() {
    for_each_scheme(|pair| {
        for size in [8, 5_000, 100_000] {
            let early_receives: Vec<_> =
                (0..3).map(|_| pending(pair.server.recv(size, 5))).collect();
            let sent: Vec<_> = (0..6)
                .map(|number| pair.client.send(&pattern(size, number), 5))
                .collect();
            let late_completions: Vec<_> = (3..6)
                .map(|_| pair.finish(&pair.server, pair.server.recv(size, 5)))
                .collect();
            let early_completions = early_receives
                .iter()
                .map(|&id| pair.until("a receive", || pair.server.test(id)));
            let completions = early_completions.chain(late_completions);
            let messages: Vec<_> = completions.map(|completion| bytes(&completion)).collect();
            for (number, message) in messages.iter().enumerate() {
                assert_eq!(*message, pattern(size, number as u8));
            }
            sent.into_iter()
                .for_each(|sent| drop(pair.finish(&pair.client, sent)));
        }
    });
}

#[test]
fn every_tag_value_matches() {
    for_each_scheme(|pair| {
        let tags = [0, -1, i32::MIN, i32::MAX, 1 << 30];
        for tag in tags {
            pair.client.wait(pair.client.send(&tag.to_le_bytes(), tag));
        }
        for tag in tags.into_iter().rev() {
            let completion = pair.finish(&pair.server, pair.server.recv(4, tag));
            assert_eq!(bytes(&completion), tag.to_le_bytes());
        }
    });
}

#[test]
fn receives_with_one_tag_match_their_own_peer() {
    for scheme in SCHEMES {
        let (server, url) = server_at(scheme);
        let context = server.open_context().unwrap();
        let clients: Vec<_> = (0..2_u8)
            .map(|number| {
                let bmi = Bmi::initialize(Config::client()).unwrap();
                let (ctx, peer) = (bmi.open_context().unwrap(), bmi.addr_lookup(&url).unwrap());
                let hello = Post::new(peer, vec![number], 1, ctx);
                bmi.post_sendunexpected(hello, 0).unwrap();
                (bmi, ctx, peer)
            })
            .collect();
        let mut peers = [None; 2];
        crate::common::until("two hellos", || {
            if let Some(hello) = unexpected(&server, 0) {
                peers[hello.buffer[0] as usize] = Some(hello.addr);
            }
            clients.iter().for_each(|(bmi, ctx, _)| {
                bmi.testcontext(9, Duration::ZERO, *ctx, |_| ()).unwrap();
            });
            peers.iter().all(Option::is_some).then_some(())
        });
        // The receives are posted in the opposite order of the sends.
        let ids = [1, 0].map(|number: usize| {
            let post = Post::new(peers[number].unwrap(), vec![0; 8], 7, context);
            (number, pending(server.post_recv(post)))
        });
        for (number, (bmi, ctx, peer)) in clients.iter().enumerate() {
            bmi.post_send(Post::new(*peer, vec![number as u8; 3], 7, *ctx))
                .unwrap();
        }
        for (number, id) in ids {
            let completion = crate::common::until("a message", || {
                server.test(id, Duration::ZERO, context).unwrap()
            });
            assert_eq!(bytes(&completion), [number as u8; 3]);
        }
    }
}

#[test]
fn unexpected_messages_never_match_posted_receives() {
    for_each_scheme(|pair| {
        let receive = pending(pair.server.recv(100, 9));
        let expected = pair.client.send(b"expected", 10);
        let other = pair
            .client
            .bmi
            .post_sendunexpected(pair.client.post(b"not".to_vec(), 9), 0);
        pair.client.wait(other);
        pair.client.wait(expected);
        let message = pair.server.request();
        assert_eq!((&*message.buffer, message.tag), (&b"not"[..], 9));
        assert!(unexpected(&pair.server.bmi, 0).is_none());
        assert!(pair.server.test(receive).is_none());
        pair.client.wait(pair.client.send(b"at last", 9));
        let completion = pair.until("the receive", || pair.server.test(receive));
        assert_eq!(bytes(&completion), b"at last");
    });
}

#[test]
fn a_receive_reports_the_length_of_a_shorter_message() {
    for_each_scheme(|pair| {
        for (sent, capacity) in [
            (0, 0),
            (0, 50),
            (15_000, 32_000),
            (10, 1 << 20),
            (1 << 20, 2 << 20),
        ] {
            let receive = pair.server.recv(capacity, 3);
            let send = pair.client.send(&pattern(sent, 3), 3);
            let completion = pair.finish(&pair.server, receive);
            assert_eq!(bytes(&completion), pattern(sent, 3));
            assert_eq!(pair.finish(&pair.client, send).outcome, Ok(sent as u64));
        }
    });
}

#[test]
fn a_message_that_is_too_long_fails_its_own_receive_and_nothing_else() {
    for_each_scheme(|pair| {
        for size in [100, 5_000, 500_000] {
            // The receive is posted before the message in the first round and after it in the
            // second.
            for is_early in [true, false] {
                let bystander = pending(pair.server.recv(size, 77));
                let early_receive = is_early.then(|| pair.server.recv(size / 2, 4));
                let too_long = pair.client.send(&pattern(size, 0), 4);
                let receive = early_receive.unwrap_or_else(|| {
                    (0..50).for_each(|_| pair.server.drive());
                    pair.server.recv(size / 2, 4)
                });
                assert_eq!(
                    pair.finish(&pair.server, receive).outcome,
                    Err(Code::EMSGSIZE)
                );
                pair.finish(&pair.client, too_long).outcome.unwrap();
                let next = pair.client.send(&pattern(size, 9), 4);
                let completion = pair.finish(&pair.server, pair.server.recv(size, 4));
                assert_eq!(bytes(&completion), pattern(size, 9));
                pair.finish(&pair.client, next).outcome.unwrap();
                assert!(pair.server.test(bystander).is_none());
                let last = pair.client.send(b"x", 77);
                pair.until("the bystander", || pair.server.test(bystander))
                    .outcome
                    .unwrap();
                pair.finish(&pair.client, last);
            }
        }
    });
}

#[test]
fn an_unreceived_large_message_delays_no_other() {
    for_each_scheme(|pair| {
        for size in [1 << 20, 17 << 20] {
            let large = pair.client.send(&pattern(size, 1), 100);
            let request = pair.client.post(b"request".to_vec(), 5);
            pair.client
                .wait(pair.client.bmi.post_sendunexpected(request, 0));
            pair.client.wait(pair.client.send(b"small", 6));
            assert_eq!(&*pair.server.request().buffer, b"request");
            let completion = pair.finish(&pair.server, pair.server.recv(5, 6));
            assert_eq!(bytes(&completion), b"small");
            let completion = pair.finish(&pair.server, pair.server.recv(size, 100));
            assert!(bytes(&completion) == pattern(size, 1));
            pair.finish(&pair.client, large).outcome.unwrap();
        }
    });
}

#[test]
fn messages_beyond_sixteen_mebibytes_arrive() {
    for_each_scheme(|pair| {
        let size = 33 << 20;
        let sent = pair.client.send(&pattern(size, 5), 1);
        let completion = pair.finish(&pair.server, pair.server.recv(size, 1));
        assert!(bytes(&completion) == pattern(size, 5));
        pair.finish(&pair.client, sent).outcome.unwrap();
    });
}

#[test]
fn lists_match_lists_with_other_segment_boundaries() {
    for_each_scheme(|pair| {
        let total = 60_000;
        for (segment_count, buffer_count) in [
            (1, 1),
            (1, 3),
            (4, 1),
            (4, 4),
            (7, 5),
            (1000, 1),
            (1, 1000),
            (33, 250),
        ] {
            let message = pattern(total, segment_count as u8);
            let segments: Vec<_> = message
                .chunks(total.div_ceil(segment_count))
                .map(<[u8]>::to_vec)
                .collect();
            let buffers = (0..buffer_count)
                .map(|_| vec![0; total.div_ceil(buffer_count)])
                .collect::<Vec<_>>();
            let receive = pair.server.bmi.post_recv(pair.server.post(buffers, 8));
            let send = pair.client.bmi.post_send(pair.client.post(segments, 8));
            let completion = pair.finish(&pair.server, receive);
            assert!(
                bytes(&completion) == message,
                "{segment_count} segments into {buffer_count} buffers"
            );
            let sent = pair.finish(&pair.client, send);
            assert!(bytes(&sent) == message);
        }
    });
}

#[test]
fn unexpected_messages_may_be_lists_too() {
    for_each_scheme(|pair| {
        for count in [0, 1, 4, 9, 300] {
            let segments: Vec<_> = (0..count).map(|number| vec![number as u8; 11]).collect();
            let expected = segments.concat();
            let sent = pair
                .client
                .bmi
                .post_sendunexpected(pair.client.post(segments, -4), 0);
            let message = pair.until("a message", || unexpected(&pair.server.bmi, 0));
            assert_eq!((&*message.buffer, message.tag), (&*expected, -4));
            pair.finish(&pair.client, sent).outcome.unwrap();
        }
    });
}

#[test]
fn an_instance_receives_its_own_message() {
    for scheme in SCHEMES {
        let (bmi, url) = server_at(scheme);
        let context = bmi.open_context().unwrap();
        let self_addr = bmi.addr_lookup(&url).unwrap();
        let side = crate::common::Side {
            bmi,
            context,
            peer: self_addr,
        };
        for size in [8, 100_000] {
            let receive = side.recv(size, 1);
            let send = side.send(&pattern(size, 4), 1);
            assert_eq!(bytes(&side.wait(receive)), pattern(size, 4));
            side.wait(send).outcome.unwrap();
        }
        let sent = side
            .bmi
            .post_sendunexpected(side.post(b"me".to_vec(), 1), 0);
        let message = side.request();
        side.wait(sent);
        assert_eq!(message.addr, self_addr);
        assert_eq!(&*message.buffer, b"me");
    }
}

#[test]
fn short_messages_over_tcp_after_the_first_are_sent_by_the_next_test() {
    let pair = Pair::over("tcp");
    pair.client.drive();
    pair.client.wait(pair.client.send(&[0], 1));
    let later: Vec<_> = (1..4)
        .map(|number| pending(pair.client.send(&[number], 1)))
        .collect();
    assert_eq!(bytes(&pair.server.wait(pair.server.recv(1, 1))), [0]);
    let early_receive = pending(pair.server.recv(1, 1));
    (0..100).for_each(|_| pair.server.drive());
    assert!(pair.server.test(early_receive).is_none());
    for id in later {
        pair.until("a sent message", || pair.client.test(id))
            .outcome
            .unwrap();
    }
    pair.until("the first later message", || {
        pair.server.test(early_receive)
    })
    .outcome
    .unwrap();
    for number in 2..4 {
        assert_eq!(bytes(&pair.server.wait(pair.server.recv(1, 1))), [number]);
    }
}

#[test]
fn short_messages_complete_when_they_are_posted() {
    for scheme in SCHEMES {
        let pair = Pair::over(scheme);
        for size in [0, 8, 4096] {
            if scheme == "tcp" {
                // A message that follows another one before a test may be sent together with it.
                pair.client.drive();
            }
            let posted = pair.client.send(&pattern(size, 0), 1).unwrap();
            let Posted::Done(completion) = posted else {
                panic!("the send of {size} bytes is pending");
            };
            assert_eq!(completion.outcome, Ok(size as u64));
            assert_eq!(bytes(&completion), pattern(size, 0));
        }
        // A post matches a message that has already arrived.
        pair.until("three messages", || {
            let posted = pair.server.recv(4096, 1).unwrap();
            match posted {
                Posted::Done(completion) => (completion.outcome == Ok(4096)).then_some(()),
                Posted::Pending(id) => {
                    pair.until("a message", || pair.server.test(id))
                        .outcome
                        .unwrap();
                    None
                }
            }
        });
        for side in [&pair.client, &pair.server] {
            let collected =
                side.bmi
                    .testcontext(9, Duration::from_millis(20), side.context, |_| ());
            assert_eq!(collected, Ok(0));
        }
    }
}
