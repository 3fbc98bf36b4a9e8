//! Unexpected messages: classes, limits, floods and many clients.

use std::time::Duration;

use selvedge_bmi::{Bmi, Code, Config, Post, Posted};

use crate::common::{
    IDLE, Pair, SCHEMES, Side, bytes, for_each_scheme, pattern, server_at, unexpected, until,
};

#[test]
fn unexpected_messages_have_a_limit_and_every_size_below_it() {
    for_each_scheme(|pair| {
        for size in [0, 1, 100, 4096, 4097, 16_384] {
            let post = pair.client.post(pattern(size, 1), size as i32);
            let sent = pair.client.bmi.post_sendunexpected(post, 0);
            let message = pair.until("a message", || unexpected(&pair.server.bmi, 0));
            assert_eq!(
                (&*message.buffer, message.tag),
                (&*pattern(size, 1), size as i32)
            );
            pair.finish(&pair.client, sent).outcome.unwrap();
        }
        let post = pair.client.post(vec![0; 16_385], 1);
        let refused = pair.client.bmi.post_sendunexpected(post, 0).unwrap_err();
        assert_eq!(refused.code, Code::EMSGSIZE);
    });
}

#[test]
fn a_test_returns_its_own_class_only() {
    for_each_scheme(|pair| {
        for class in [3, 1, 255, 1] {
            let post = pair.client.post(vec![class], class.into());
            let sent = pair.client.bmi.post_sendunexpected(post, class);
            pair.client.wait(sent);
        }
        for class in [1, 255, 1, 3] {
            let message = until("a message", || unexpected(&pair.server.bmi, class));
            assert_eq!(*message.buffer, [class]);
        }
        assert!(unexpected(&pair.server.bmi, 0).is_none());
    });
}

#[test]
fn backpressure_holds_a_flood_and_keeps_every_message() {
    for_each_scheme(|pair| {
        let (count, size) = (30_000_u32, 4000);
        let mut pending_ids = Vec::new();
        for number in 0..count {
            let mut message = vec![0; size];
            message[..4].copy_from_slice(&number.to_le_bytes());
            match pair
                .client
                .bmi
                .post_sendunexpected(pair.client.post(message, 7), 0)
                .unwrap()
            {
                Posted::Done(_) => {}
                Posted::Pending(id) => pending_ids.push(id),
            }
            if number % 64 == 0 {
                pair.server.drive();
            }
        }
        // Backpressure: the server takes only a part of the flood.
        assert!(
            pending_ids.len() > 1000,
            "{} sends are pending",
            pending_ids.len()
        );
        let mut next = 0;
        until("all of it", || {
            pair.client.drive();
            pair.server
                .bmi
                .testunexpected(256, 0, Duration::ZERO, |message| {
                    assert_eq!(message.buffer[..4], u32::to_le_bytes(next));
                    next += 1;
                })
                .unwrap();
            (next == count).then_some(())
        });
        for id in pending_ids {
            until("a send", || pair.client.test(id)).outcome.unwrap();
        }
    });
}

#[test]
fn requests_of_many_clients_are_all_served() {
    for scheme in SCHEMES {
        let (server, url) = server_at(scheme);
        let context = server.open_context().unwrap();
        let clients: Vec<_> = (0..64)
            .map(|_| {
                let bmi = Bmi::initialize(Config::client()).unwrap();
                let (context, peer) = (bmi.open_context().unwrap(), bmi.addr_lookup(&url).unwrap());
                Side { bmi, context, peer }
            })
            .collect();
        let mut requested = vec![0; clients.len()];
        let mut answered = vec![0; clients.len()];
        let request = |number: usize, requested: &mut Vec<i32>| {
            let side = &clients[number];
            requested[number] += 1;
            let response =
                Post::new(side.peer, vec![0; 8], requested[number], side.context).with_user(1);
            side.bmi.post_recv(response).unwrap();
            let request = side.post((number as u64).to_le_bytes().to_vec(), requested[number]);
            side.bmi.post_sendunexpected(request, 0).unwrap();
        };
        (0..clients.len()).for_each(|number| request(number, &mut requested));
        until("some answers for each", || {
            server
                .testunexpected(16, 0, Duration::ZERO, |request| {
                    let response =
                        Post::new(request.addr, request.buffer.to_vec(), request.tag, context);
                    server.post_send(response).unwrap();
                })
                .unwrap();
            server
                .testcontext(64, Duration::ZERO, context, |_| ())
                .unwrap();
            for (number, side) in clients.iter().enumerate() {
                let mut new = 0;
                side.bmi
                    .testcontext(8, Duration::ZERO, side.context, |done| {
                        if done.user == 1 {
                            assert_eq!(bytes(&done), (number as u64).to_le_bytes());
                            new += 1;
                        }
                    })
                    .unwrap();
                for _ in 0..new {
                    answered[number] += 1;
                    request(number, &mut requested);
                }
            }
            answered.iter().all(|count| *count >= 4).then_some(())
        });
        // Fairness: the least served client got a fair fraction of the most served one's responses.
        let (least, most) = (
            answered.iter().min().unwrap(),
            answered.iter().max().unwrap(),
        );
        assert!(most < &(least * 20), "{least} and {most}");
    }
}

#[test]
fn two_servers_that_connect_to_each_other_at_once_have_one_address_each() {
    for scheme in SCHEMES {
        let sides: Vec<_> = (0..2).map(|_| server_at(scheme)).collect();
        let peers = [
            sides[0].0.addr_lookup(&sides[1].1).unwrap(),
            sides[1].0.addr_lookup(&sides[0].1).unwrap(),
        ];
        let contexts = [
            sides[0].0.open_context().unwrap(),
            sides[1].0.open_context().unwrap(),
        ];
        let mut pending_ids = Vec::new();
        for side in 0..2 {
            let hello = Post::new(peers[side], vec![side as u8], 1, contexts[side]);
            pending_ids.push(sides[side].0.post_sendunexpected(hello, 0).unwrap());
        }
        let mut received = [false; 2];
        until("both hellos", || {
            for side in 0..2 {
                if let Some(hello) = unexpected(&sides[side].0, 0) {
                    assert_eq!(hello.addr, peers[side], "a second address for one peer");
                    received[side] = true;
                }
            }
            (received == [true; 2]).then_some(())
        });
        for side in 0..2 {
            assert_eq!(sides[side].0.peer_count(), 1);
            let message = Post::new(peers[side], b"answer".to_vec(), 2, contexts[side]);
            sides[side].0.post_send(message).unwrap();
        }
        for side in 0..2 {
            let receive = Post::new(peers[side], vec![0; 9], 2, contexts[side]);
            let done = match sides[side].0.post_recv(receive).unwrap() {
                Posted::Done(done) => done,
                Posted::Pending(id) => until("an answer", || {
                    sides[1 - side]
                        .0
                        .testcontext(0, Duration::ZERO, contexts[1 - side], |_| ())
                        .unwrap();
                    sides[side].0.test(id, IDLE, contexts[side]).unwrap()
                }),
            };
            assert_eq!(bytes(&done), b"answer");
        }
    }
}

#[test]
fn unexpected_messages_reference_their_senders_if_configured() {
    for scheme in SCHEMES {
        let mut config = Config::server(&format!("{scheme}://localhost"));
        config.auto_ref_count = true;
        let server = Bmi::initialize(config).unwrap();
        let url = format!("{scheme}://localhost:{}", server.listen_port().unwrap());
        let pair = Pair::connect(server, Bmi::initialize(Config::client()).unwrap(), &url);
        let (bmi, peer) = (&pair.server.bmi, pair.server.peer);
        assert_eq!(bmi.dec_addr_ref(peer), Ok(()));
        assert_eq!(bmi.dec_addr_ref(peer), Err(Code::EINVAL));
        assert!(bmi.rev_lookup(peer).is_none());
        assert!(bmi.rev_lookup_unexpected(peer).is_some());
        assert_eq!(bmi.drop_addr(peer), Ok(()));
        assert_eq!(bmi.drop_addr(peer), Err(Code::EINVAL));
        assert!(!bmi.has_peer(peer));
    }
}

#[test]
fn memory_is_zeroed_aligned_and_special_if_large() {
    let pair = Pair::open();
    let memory = pair.client.bmi.memalloc(pair.client.peer, 1 << 20).unwrap();
    assert!(memory.is_special());
    assert_eq!(memory.base().addr().get() % 4096, 0);
    assert!(memory.iter().all(|&byte| byte == 0));
    let mut full = memory;
    full.copy_from_slice(&pattern(1 << 20, 3));
    let sent = pair.client.bmi.post_send(pair.client.post(full, 1));
    let buffer = pair.server.bmi.memalloc(pair.server.peer, 1 << 20).unwrap();
    let receive = pair.server.bmi.post_recv(pair.server.post(buffer, 1));
    assert!(bytes(&pair.finish(&pair.server, receive)) == pattern(1 << 20, 3));
    let back = pair.finish(&pair.client, sent);
    drop(pair);
    // Memory outlives its instance.
    assert!(bytes(&back) == pattern(1 << 20, 3));
    let bmi = Bmi::initialize(Config::client()).unwrap();
    assert!(bmi.memalloc(selvedge_bmi::Addr(77), 8).is_none());
    assert!(
        !bmi.memalloc(selvedge_bmi::Addr::NONE, 8)
            .unwrap()
            .is_special()
    );
}

#[test]
fn instances_opened_and_closed_a_hundred_times_leak_no_descriptors() {
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let once = || {
        let config = Config::server("shm://localhost");
        let first = selvedge_bmi::process::initialize(config.clone()).unwrap();
        let second = selvedge_bmi::process::initialize(config).unwrap();
        assert!(std::sync::Arc::ptr_eq(&first, &second));
        drop((first, second));
        selvedge_bmi::process::finalize().unwrap();
        assert!(selvedge_bmi::process::instance().is_ok());
        selvedge_bmi::process::finalize().unwrap();
        assert_eq!(
            selvedge_bmi::process::instance().unwrap_err(),
            Code::ENETDOWN
        );
    };
    once();
    let before = descriptors();
    (0..100).for_each(|_| once());
    // Other tests of this process open descriptors meanwhile, but not hundreds.
    assert!(descriptors() < before + 300);
    assert_eq!(selvedge_bmi::process::finalize(), Err(Code::EINVAL));
}
