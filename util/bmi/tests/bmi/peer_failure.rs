//! Peer failure: messages that were sent before the failure arrive, posts to the failed peer fail,
//! and other peers continue.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use selvedge_bmi::{Bmi, Code, Config, ContextId, OpId, Posted};

use crate::common::{IDLE, SCHEMES, Side, bytes, pattern, pending, server_at, unexpected, until};
use crate::process::{Process, next_command, report_line};

/// A client that sends messages on command.
pub(crate) fn sender(url: &str) {
    let bmi = Bmi::initialize(Config::client()).unwrap();
    let context = bmi.open_context().unwrap();
    let peer = bmi.addr_lookup(url).unwrap();
    let side = Side { bmi, context, peer };
    let hello = side
        .bmi
        .post_sendunexpected(side.post(b"hello".to_vec(), 1), 0);
    side.wait(hello).outcome.unwrap();
    while let Some(command) = next_command() {
        for number in 0..command.parse::<u8>().unwrap() {
            let sent = side.send(&pattern(100, number), 2);
            side.wait(sent).outcome.unwrap();
        }
        report_line("sent");
    }
}

/// A server that only tests for unexpected messages.
pub(crate) fn idle_server(url: &str) {
    let bmi = Bmi::initialize(Config::server(url)).unwrap();
    report_line("started");
    until::<()>("the end of this process", || {
        unexpected(&bmi, 0);
        None
    });
}

/// The outcome of an operation that must be reported by one test within a second.
fn expect_prompt_outcome(bmi: &Bmi, id: OpId, context: ContextId) -> Result<u64, Code> {
    let collected = bmi.test(id, Duration::from_secs(1), context).unwrap();
    collected
        .expect("a peer failure is reported within a second")
        .outcome
}

fn outcome(bmi: &Bmi, id: OpId, context: ContextId) -> Result<u64, Code> {
    let completion = until("an operation", || {
        bmi.test(id, Duration::from_millis(50), context).unwrap()
    });
    completion.outcome
}

/// The outcome of a receive that is posted now. Either its post or its completion may fail.
fn outcome_of_recv(side: &Side) -> Result<u64, Code> {
    match side.recv(9, 1) {
        Ok(Posted::Pending(id)) => outcome(&side.bmi, id, side.context),
        Ok(Posted::Done(completion)) => completion.outcome,
        Err(refused) => Err(refused.code),
    }
}

#[test]
fn receives_from_a_killed_client_get_its_messages_and_then_fail_within_a_second() {
    for scheme in SCHEMES {
        let (bmi, url) = server_at(scheme);
        let mut client = Process::start("sender", &url);
        let hello = until("a hello", || unexpected(&bmi, 0));
        let context = bmi.open_context().unwrap();
        let side = Side {
            bmi,
            context,
            peer: hello.addr,
        };
        side.bmi.inc_addr_ref(side.peer).unwrap();
        let unmatched: Vec<_> = [(100, 4), (1 << 20, 3)]
            .map(|(len, tag)| pending(side.recv(len, tag)))
            .into();
        client.send_command("3");
        assert_eq!(client.read_line(), "sent");
        client.kill();
        for number in 0..3 {
            let completion = side.wait(side.recv(100, 2));
            assert_eq!(bytes(&completion), pattern(100, number));
        }
        for id in unmatched {
            assert_eq!(
                expect_prompt_outcome(&side.bmi, id, side.context),
                Err(Code::EPIPE)
            );
        }
        // Either the post or the completion fails, because the peer is disconnected.
        let late_outcome = match side.recv(100, 2) {
            Ok(posted) => side.wait(Ok(posted)).outcome,
            Err(refused) => Err(refused.code),
        };
        assert_eq!(late_outcome, Err(Code::EPIPE));
        until("a refused send", || {
            let refused = side.send(b"too late", 2).err()?;
            (refused.code == Code::EPIPE).then_some(())
        });
        side.bmi.dec_addr_ref(side.peer).unwrap();
        assert_eq!(side.send(b"too late", 2).unwrap_err().code, Code::EPROTO);
        assert_eq!(side.recv(9, 2).unwrap_err().code, Code::EPROTO);
    }
}

#[test]
fn posts_to_a_killed_server_fail_and_other_peers_continue() {
    for scheme in SCHEMES {
        let url = free_url(scheme);
        let mut killed = Process::start("idle-server", &url);
        assert_eq!(killed.read_line(), "started");
        let (alive, other_url) = server_at(scheme);
        let bmi = Bmi::initialize(Config::client()).unwrap();
        let context = bmi.open_context().unwrap();
        let peers = [url, other_url].map(|url| bmi.addr_lookup(&url).unwrap());
        let recv = |peer, tag| {
            let post = selvedge_bmi::Post::new(peer, vec![0; 100], tag, context);
            pending(bmi.post_recv(post))
        };
        // The completed send proves that the client has connected to the server.
        let hello = selvedge_bmi::Post::new(peers[0], b"hello".to_vec(), 1, context);
        if let Posted::Pending(id) = bmi.post_sendunexpected(hello, 0).unwrap() {
            outcome(&bmi, id, context).unwrap();
        }
        let large = selvedge_bmi::Post::new(peers[0], vec![0; 1 << 20], 1, context);
        let (recv_from_killed, recv_from_alive) = (recv(peers[0], 1), recv(peers[1], 1));
        let large = pending(bmi.post_send(large));
        let hello = selvedge_bmi::Post::new(peers[1], b"hello".to_vec(), 1, context);
        bmi.post_sendunexpected(hello, 0).unwrap();
        let request = until("a hello", || {
            bmi.test(recv_from_alive, Duration::ZERO, context).unwrap();
            unexpected(&alive, 0)
        });
        killed.kill();
        for id in [recv_from_killed, large] {
            assert_eq!(expect_prompt_outcome(&bmi, id, context), Err(Code::EPIPE));
        }
        let ctx = alive.open_context().unwrap();
        let response = selvedge_bmi::Post::new(request.addr, b"answer".to_vec(), 1, ctx);
        alive.post_send(response).unwrap();
        assert_eq!(outcome(&bmi, recv_from_alive, context), Ok(6));
    }
}

#[test]
fn disconnected_clients_are_forgotten_without_a_test_for_unexpected_messages() {
    for scheme in SCHEMES {
        let (bmi, url) = server_at(scheme);
        let context = bmi.open_context().unwrap();
        for _ in 0..100 {
            let client = Bmi::initialize(Config::client()).unwrap();
            let ctx = client.open_context().unwrap();
            let peer = client.addr_lookup(&url).unwrap();
            let hello = selvedge_bmi::Post::new(peer, b"hello".to_vec(), 1, ctx);
            let side = Side {
                bmi: client,
                context: ctx,
                peer,
            };
            let sent = side.bmi.post_sendunexpected(hello, 0);
            until("the client's message", || {
                side.drive();
                unexpected(&bmi, 0)
            });
            side.wait(sent).outcome.unwrap();
        }
        // No test for unexpected messages from here on: `testcontext` must detect the disconnects.
        until("the forgotten clients", || {
            bmi.testcontext(1, Duration::from_millis(1), context, |_| ())
                .unwrap();
            (bmi.peer_count() <= 64).then_some(())
        });
    }
}

#[test]
fn a_restarted_server_is_found_without_a_new_lookup() {
    for scheme in SCHEMES {
        let url = free_url(scheme);
        let first = Bmi::initialize(Config::server(&url)).unwrap();
        let bmi = Bmi::initialize(Config::client()).unwrap();
        let context = bmi.open_context().unwrap();
        let peer = bmi.addr_lookup(&url).unwrap();
        let side = Side { bmi, context, peer };
        let request = |server: &Bmi| {
            until("a request", || {
                if let Ok(Posted::Pending(id)) = side
                    .bmi
                    .post_sendunexpected(side.post(b"hello".to_vec(), 1), 0)
                {
                    let deadline = Instant::now() + Duration::from_millis(50);
                    while side.test(id).is_none() && Instant::now() < deadline {
                        unexpected(server, 0);
                    }
                }
                unexpected(server, 0)
            });
        };
        request(&first);
        let waiting = pending(side.recv(9, 1));
        drop(first);
        assert_eq!(outcome(&side.bmi, waiting, side.context), Err(Code::EPIPE));
        let second = Bmi::initialize(Config::server(&url)).unwrap();
        request(&second);
    }
}

#[test]
fn a_request_to_an_absent_server_fails() {
    for scheme in SCHEMES {
        let bmi = Bmi::initialize(Config::client()).unwrap();
        let context = bmi.open_context().unwrap();
        let peer = bmi.addr_lookup(&format!("{scheme}://localhost:7")).unwrap();
        let side = Side { bmi, context, peer };
        let receive = pending(side.recv(9, 1));
        let sent = side
            .bmi
            .post_sendunexpected(side.post(b"request".to_vec(), 1), 0);
        assert_eq!(side.wait(sent).outcome, Err(Code::ECONNREFUSED));
        assert_eq!(
            outcome(&side.bmi, receive, side.context),
            Err(Code::ECONNREFUSED)
        );
    }
}

/// A client of a server that has not started.
pub(crate) fn early_client(url: &str) {
    let bmi = Bmi::initialize(Config::client()).unwrap();
    let context = bmi.open_context().unwrap();
    let peer = bmi.addr_lookup(url).unwrap();
    let side = Side { bmi, context, peer };
    let sent = side
        .bmi
        .post_sendunexpected(side.post(b"early".to_vec(), 1), 0);
    let id = pending(sent);
    test_often(&side, id);
    report_line("posted");
    outcome(&side.bmi, id, side.context).unwrap();
}

/// Polls often enough to read a refusal by the kernel. Returns the outcome if the operation
/// completed.
fn test_often(side: &Side, id: OpId) -> Option<Result<u64, Code>> {
    (0..20).find_map(|_| {
        let completion = side.bmi.test(id, IDLE, side.context).unwrap();
        completion.map(|completion| completion.outcome)
    })
}

/// Returns a URL at which no server listens and a server can be started, again and again. The port
/// is below those that the system and BMI assign, so that no other test is given it meanwhile.
fn free_url(scheme: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let port = std::iter::repeat_with(|| {
        let number = std::process::id() * 8 + NEXT.fetch_add(1, Ordering::Relaxed);
        20_000 + (number % 12_000) as u16
    })
    .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    format!("{scheme}://localhost:{}", port.unwrap())
}

#[test]
fn a_request_to_an_absent_server_fails_before_the_server_starts() {
    for scheme in SCHEMES {
        let url = free_url(scheme);
        let bmi = Bmi::initialize(Config::client()).unwrap();
        let context = bmi.open_context().unwrap();
        let peer = bmi.addr_lookup(&url).unwrap();
        let side = Side { bmi, context, peer };
        let sent = side
            .bmi
            .post_sendunexpected(side.post(b"request".to_vec(), 1), 0);
        let id = pending(sent);
        let early_outcome = test_often(&side, id);
        let server = Bmi::initialize(Config::server(&url)).unwrap();
        let outcome = early_outcome.unwrap_or_else(|| {
            until("the operation", || {
                let request = unexpected(&server, 0);
                assert!(
                    request.is_none(),
                    "{scheme}: the request waited for the server"
                );
                side.test(id).map(|completion| completion.outcome)
            })
        });
        assert_eq!(outcome, Err(Code::ECONNREFUSED), "{scheme}");
        // The next request goes to the server that has started now.
        let post = side.post(b"and now?".to_vec(), 1);
        let mut sent = side.bmi.post_sendunexpected(post, 0).unwrap();
        until("a request", || {
            if let Posted::Pending(id) = sent
                && let Some(completion) = side.test(id)
            {
                completion.outcome.expect(scheme);
                sent = Posted::Done(completion);
            }
            unexpected(&server, 0)
        });
    }
}

#[test]
fn a_request_waits_for_a_late_server_if_the_environment_sets_a_timeout() {
    for scheme in SCHEMES {
        let url = free_url(scheme);
        let variable = format!("FI_{}_PEER_TIMEOUT", scheme.to_uppercase());
        let mut client = Process::start_with("early", &url, &[(&variable, "60s")]);
        assert_eq!(client.read_line(), "posted");
        let server = Bmi::initialize(Config::server(&url)).unwrap();
        until("the request", || unexpected(&server, 0));
        client.expect_success_while(|| drop(unexpected(&server, 0)));
    }
}

#[test]
fn a_receive_after_a_refused_connection_fails_with_the_same_code() {
    for scheme in SCHEMES {
        let bmi = Bmi::initialize(Config::client()).unwrap();
        let context = bmi.open_context().unwrap();
        let peer = bmi.addr_lookup(&format!("{scheme}://localhost:7")).unwrap();
        let side = Side { bmi, context, peer };
        let sent = side
            .bmi
            .post_sendunexpected(side.post(b"request".to_vec(), 1), 0);
        assert_eq!(side.wait(sent).outcome, Err(Code::ECONNREFUSED));
        for _ in 0..2 {
            assert_eq!(outcome_of_recv(&side), Err(Code::ECONNREFUSED));
        }
    }
}

#[test]
fn receives_from_a_killed_server_fail_until_it_restarts() {
    for scheme in SCHEMES {
        let url = free_url(scheme);
        let mut killed = Process::start("idle-server", &url);
        assert_eq!(killed.read_line(), "started");
        let bmi = Bmi::initialize(Config::client()).unwrap();
        let context = bmi.open_context().unwrap();
        let peer = bmi.addr_lookup(&url).unwrap();
        let side = Side { bmi, context, peer };
        let hello = side
            .bmi
            .post_sendunexpected(side.post(b"hello".to_vec(), 1), 0);
        side.wait(hello).outcome.unwrap();
        let receive = pending(side.recv(9, 1));
        killed.kill();
        assert_eq!(outcome(&side.bmi, receive, side.context), Err(Code::EPIPE));
        for _ in 0..2 {
            let late_outcome = outcome_of_recv(&side);
            assert!(
                matches!(late_outcome, Err(Code::ECONNREFUSED | Code::EPIPE)),
                "{late_outcome:?}"
            );
        }
        let server = Bmi::initialize(Config::server(&url)).unwrap();
        let response = pending(side.recv(9, 1));
        let sent = side
            .bmi
            .post_sendunexpected(side.post(b"still there?".to_vec(), 1), 0);
        let request = until("a request", || {
            side.drive();
            unexpected(&server, 0)
        });
        let ctx = server.open_context().unwrap();
        let post = selvedge_bmi::Post::new(request.addr, b"yes".to_vec(), 1, ctx);
        server.post_send(post).unwrap();
        side.wait(sent).outcome.unwrap();
        assert_eq!(outcome(&side.bmi, response, side.context), Ok(3));
    }
}
