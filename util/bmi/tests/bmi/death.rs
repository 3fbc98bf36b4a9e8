//! Peers that die: what they had sent arrives, what was posted to them fails, and everybody else
//! goes on.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use selvedge_bmi::{Bmi, Code, Config, ContextId, OpId, Posted};

use crate::common::{End, IDLE, SCHEMES, bytes, pattern, pending, server_at, unexpected, until};
use crate::process::{Process, next_order, say};

/// A client that sends what it is told to, and otherwise does nothing.
pub(crate) fn sender(url: &str) {
    let bmi = Bmi::initialize(Config::client()).unwrap();
    let context = bmi.open_context().unwrap();
    let peer = bmi.addr_lookup(url).unwrap();
    let end = End { bmi, context, peer };
    let hello = end
        .bmi
        .post_sendunexpected(end.post(b"hello".to_vec(), 1), 0);
    end.end(hello).outcome.unwrap();
    while let Some(order) = next_order() {
        for number in 0..order.parse::<u8>().unwrap() {
            let sent = end.send(&pattern(100, number), 2);
            end.end(sent).outcome.unwrap();
        }
        say("sent");
    }
}

/// A server that posts nothing but its name.
pub(crate) fn idler(scheme: &str) {
    let (bmi, url) = server_at(scheme);
    say(&url);
    until::<()>("its death", || {
        unexpected(&bmi, 0);
        None
    });
}

/// How an operation ended, which one test of a second has to tell.
fn report(bmi: &Bmi, id: OpId, context: ContextId) -> Result<u64, Code> {
    let told = bmi.test(id, Duration::from_secs(1), context).unwrap();
    told.expect("a death is told of within a second").outcome
}

fn outcome(bmi: &Bmi, id: OpId, context: ContextId) -> Result<u64, Code> {
    let done = until("an operation", || {
        bmi.test(id, Duration::from_millis(50), context).unwrap()
    });
    done.outcome
}

/// How a receive ends that is posted now: its post may fail, or its completion.
fn received(end: &End) -> Result<u64, Code> {
    match end.recv(9, 1) {
        Ok(Posted::Pending(id)) => outcome(&end.bmi, id, end.context),
        Ok(Posted::Done(done)) => done.outcome,
        Err(refused) => Err(refused.code),
    }
}

#[test]
fn what_a_client_sent_before_it_was_killed_arrives_and_the_rest_fails_within_a_second() {
    for scheme in SCHEMES {
        let (bmi, url) = server_at(scheme);
        let mut client = Process::start("sender", &url);
        let hello = until("a hello", || unexpected(&bmi, 0));
        let context = bmi.open_context().unwrap();
        let end = End {
            bmi,
            context,
            peer: hello.addr,
        };
        end.bmi.hold(end.peer).unwrap();
        let never: Vec<_> = [(100, 4), (1 << 20, 3)]
            .map(|(len, tag)| pending(end.recv(len, tag)))
            .into();
        client.order("3");
        assert_eq!(client.says(), "sent");
        client.kill();
        for number in 0..3 {
            let done = end.end(end.recv(100, 2));
            assert_eq!(bytes(&done), pattern(100, number));
        }
        for id in never {
            assert_eq!(report(&end.bmi, id, end.context), Err(Code::EPIPE));
        }
        // By its post or by its completion: the address is that of a peer that is gone.
        let late = match end.recv(100, 2) {
            Ok(posted) => end.end(Ok(posted)).outcome,
            Err(refused) => Err(refused.code),
        };
        assert_eq!(late, Err(Code::EPIPE));
        until("the news", || {
            let refused = end.send(b"too late", 2).err()?;
            (refused.code == Code::EPIPE).then_some(())
        });
        end.bmi.let_go(end.peer).unwrap();
        assert_eq!(end.send(b"too late", 2).unwrap_err().code, Code::EPROTO);
        assert_eq!(end.recv(9, 2).unwrap_err().code, Code::EPROTO);
    }
}

#[test]
fn what_is_posted_to_a_server_that_is_killed_fails_and_others_go_on() {
    for scheme in SCHEMES {
        let mut dying = Process::start("idler", scheme);
        let url = dying.says();
        let (alive, other_url) = server_at(scheme);
        let bmi = Bmi::initialize(Config::client()).unwrap();
        let context = bmi.open_context().unwrap();
        let ends = [url, other_url].map(|url| bmi.addr_lookup(&url).unwrap());
        let recv = |peer, tag| {
            let post = selvedge_bmi::Post::new(peer, vec![0; 100], tag, context);
            pending(bmi.post_recv(post))
        };
        // It is there, and has been met.
        let hello = selvedge_bmi::Post::new(ends[0], b"hello".to_vec(), 1, context);
        if let Posted::Pending(id) = bmi.post_sendunexpected(hello, 0).unwrap() {
            outcome(&bmi, id, context).unwrap();
        }
        let large = selvedge_bmi::Post::new(ends[0], vec![0; 1 << 20], 1, context);
        let (own, others) = (recv(ends[0], 1), recv(ends[1], 1));
        let large = pending(bmi.post_send(large));
        let hello = selvedge_bmi::Post::new(ends[1], b"hello".to_vec(), 1, context);
        bmi.post_sendunexpected(hello, 0).unwrap();
        let caller = until("a hello", || {
            bmi.test(others, Duration::ZERO, context).unwrap();
            unexpected(&alive, 0)
        });
        dying.kill();
        for id in [own, large] {
            assert_eq!(report(&bmi, id, context), Err(Code::EPIPE));
        }
        let ctx = alive.open_context().unwrap();
        let answer = selvedge_bmi::Post::new(caller.addr, b"answer".to_vec(), 1, ctx);
        alive.post_send(answer).unwrap();
        assert_eq!(outcome(&bmi, others, context), Ok(6));
    }
}

#[test]
fn clients_that_come_and_go_are_forgotten_without_being_asked_for() {
    for scheme in SCHEMES {
        let (bmi, url) = server_at(scheme);
        let context = bmi.open_context().unwrap();
        for _ in 0..100 {
            let client = Bmi::initialize(Config::client()).unwrap();
            let ctx = client.open_context().unwrap();
            let peer = client.addr_lookup(&url).unwrap();
            let hello = selvedge_bmi::Post::new(peer, b"hello".to_vec(), 1, ctx);
            let end = End {
                bmi: client,
                context: ctx,
                peer,
            };
            let sent = end.bmi.post_sendunexpected(hello, 0);
            until("its message", || {
                end.drive();
                unexpected(&bmi, 0)
            });
            end.end(sent).outcome.unwrap();
        }
        // No test for unexpected messages from here on: contexts alone have it noticed.
        until("them to be forgotten", || {
            bmi.testcontext(1, Duration::from_millis(1), context, |_| ())
                .unwrap();
            (bmi.peers() <= 64).then_some(())
        });
    }
}

#[test]
fn a_server_that_is_started_again_is_found_without_a_new_lookup() {
    for scheme in SCHEMES {
        let first = Bmi::initialize(Config::server(&format!("{scheme}://localhost"))).unwrap();
        let url = format!("{scheme}://localhost:{}", first.listen_port().unwrap());
        let bmi = Bmi::initialize(Config::client()).unwrap();
        let context = bmi.open_context().unwrap();
        let peer = bmi.addr_lookup(&url).unwrap();
        let end = End { bmi, context, peer };
        let ask = |server: &Bmi| {
            until("a request", || {
                if let Ok(Posted::Pending(id)) = end
                    .bmi
                    .post_sendunexpected(end.post(b"hello".to_vec(), 1), 0)
                {
                    let deadline = Instant::now() + Duration::from_millis(50);
                    while end.test(id).is_none() && Instant::now() < deadline {
                        unexpected(server, 0);
                    }
                }
                unexpected(server, 0)
            });
        };
        ask(&first);
        let waiting = pending(end.recv(9, 1));
        drop(first);
        assert_eq!(outcome(&end.bmi, waiting, end.context), Err(Code::EPIPE));
        let second = Bmi::initialize(Config::server(&url)).unwrap();
        ask(&second);
    }
}

#[test]
fn a_server_that_is_not_there_is_an_error_in_time() {
    for scheme in SCHEMES {
        let bmi = Bmi::initialize(Config::client()).unwrap();
        let context = bmi.open_context().unwrap();
        let peer = bmi.addr_lookup(&format!("{scheme}://localhost:7")).unwrap();
        let end = End { bmi, context, peer };
        let receive = pending(end.recv(9, 1));
        let asked = end
            .bmi
            .post_sendunexpected(end.post(b"anybody?".to_vec(), 1), 0);
        assert_eq!(end.end(asked).outcome, Err(Code::ECONNREFUSED));
        assert_eq!(
            outcome(&end.bmi, receive, end.context),
            Err(Code::ECONNREFUSED)
        );
    }
}

/// A client of a server that has not started.
pub(crate) fn early_client(url: &str) {
    let bmi = Bmi::initialize(Config::client()).unwrap();
    let context = bmi.open_context().unwrap();
    let peer = bmi.addr_lookup(url).unwrap();
    let end = End { bmi, context, peer };
    let early = end
        .bmi
        .post_sendunexpected(end.post(b"early".to_vec(), 1), 0);
    let id = pending(early);
    test_often(&end, id);
    say("posted");
    outcome(&end.bmi, id, end.context).unwrap();
}

/// Enough progress for a refusal by the kernel to be read; how the operation ended, if it did.
fn test_often(end: &End, id: OpId) -> Option<Result<u64, Code>> {
    (0..20).find_map(|_| {
        let done = end.bmi.test(id, IDLE, end.context).unwrap();
        done.map(|done| done.outcome)
    })
}

/// A URL at which no server listens, and at which one may be started.
fn free_url(scheme: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    format!("{scheme}://localhost:{port}")
}

#[test]
fn a_server_that_is_not_there_is_given_up_before_it_starts() {
    for scheme in SCHEMES {
        let url = free_url(scheme);
        let bmi = Bmi::initialize(Config::client()).unwrap();
        let context = bmi.open_context().unwrap();
        let peer = bmi.addr_lookup(&url).unwrap();
        let end = End { bmi, context, peer };
        let asked = end
            .bmi
            .post_sendunexpected(end.post(b"anybody?".to_vec(), 1), 0);
        let id = pending(asked);
        let early = test_often(&end, id);
        let server = Bmi::initialize(Config::server(&url)).unwrap();
        let outcome = early.unwrap_or_else(|| {
            until("the operation", || {
                let request = unexpected(&server, 0);
                assert!(request.is_none(), "{scheme}: the server was waited for");
                end.test(id).map(|done| done.outcome)
            })
        });
        assert_eq!(outcome, Err(Code::ECONNREFUSED), "{scheme}");
        // The next request goes to the server that is there now.
        let asked = end
            .bmi
            .post_sendunexpected(end.post(b"and now?".to_vec(), 1), 0);
        until("a request", || {
            end.drive();
            unexpected(&server, 0)
        });
        end.end(asked).outcome.unwrap();
    }
}

#[test]
fn a_server_that_starts_late_is_waited_for_where_the_environment_says_so() {
    for scheme in SCHEMES {
        let url = free_url(scheme);
        let variable = format!("FI_{}_PEER_TIMEOUT", scheme.to_uppercase());
        let mut client = Process::start_with("early", &url, &[(&variable, "60s")]);
        assert_eq!(client.says(), "posted");
        let server = Bmi::initialize(Config::server(&url)).unwrap();
        until("the request", || unexpected(&server, 0));
        client.ends_well_while(|| drop(unexpected(&server, 0)));
    }
}

#[test]
fn a_receive_that_is_posted_after_a_refusal_fails_for_the_same_reason() {
    for scheme in SCHEMES {
        let bmi = Bmi::initialize(Config::client()).unwrap();
        let context = bmi.open_context().unwrap();
        let peer = bmi.addr_lookup(&format!("{scheme}://localhost:7")).unwrap();
        let end = End { bmi, context, peer };
        let asked = end
            .bmi
            .post_sendunexpected(end.post(b"anybody?".to_vec(), 1), 0);
        assert_eq!(end.end(asked).outcome, Err(Code::ECONNREFUSED));
        for _ in 0..2 {
            assert_eq!(received(&end), Err(Code::ECONNREFUSED));
        }
    }
}

#[test]
fn a_receive_that_is_posted_after_a_server_was_killed_fails_until_the_server_is_back() {
    for scheme in SCHEMES {
        let mut dying = Process::start("idler", scheme);
        let url = dying.says();
        let bmi = Bmi::initialize(Config::client()).unwrap();
        let context = bmi.open_context().unwrap();
        let peer = bmi.addr_lookup(&url).unwrap();
        let end = End { bmi, context, peer };
        let hello = end
            .bmi
            .post_sendunexpected(end.post(b"hello".to_vec(), 1), 0);
        end.end(hello).outcome.unwrap();
        let early = pending(end.recv(9, 1));
        dying.kill();
        assert_eq!(outcome(&end.bmi, early, end.context), Err(Code::EPIPE));
        for _ in 0..2 {
            let late = received(&end);
            assert!(
                matches!(late, Err(Code::ECONNREFUSED | Code::EPIPE)),
                "{late:?}"
            );
        }
        let server = Bmi::initialize(Config::server(&url)).unwrap();
        let answer = pending(end.recv(9, 1));
        let asked = end
            .bmi
            .post_sendunexpected(end.post(b"still there?".to_vec(), 1), 0);
        let request = until("a request", || {
            end.drive();
            unexpected(&server, 0)
        });
        let ctx = server.open_context().unwrap();
        let post = selvedge_bmi::Post::new(request.addr, b"yes".to_vec(), 1, ctx);
        server.post_send(post).unwrap();
        end.end(asked).outcome.unwrap();
        assert_eq!(outcome(&end.bmi, answer, end.context), Ok(3));
    }
}
