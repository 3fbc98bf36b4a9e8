//! The method interface: several methods at once, lists for methods without list support, and
//! serialized calls.

use std::thread;
use std::time::Duration;

use selvedge_bmi::{Bmi, Code, Config, Module, Post, Posted};
use selvedge_testkit::skip::{Need, skip};

use crate::common::{Pair, Side, bytes, pattern, pending, unexpected, until};
use crate::mailbox::Mail;

/// The methods over Selvedge, and the mailbox.
fn modules() -> Vec<&'static dyn Module> {
    let mut modules = selvedge_bmi::fabric::modules().to_vec();
    modules.push(&Mail);
    modules
}

fn open(config: Config) -> Bmi {
    Bmi::with_modules(config, modules()).unwrap()
}

fn mail_pair(port: u16) -> Pair {
    let url = format!("mail://NULL:{port}");
    let server = open(Config::server(&url));
    Pair::connect(server, open(Config::client()), &url)
}

#[test]
fn lists_are_packed_for_a_method_without_list_support() {
    let pair = mail_pair(1);
    for (segment_count, buffer_count) in [(1, 1), (3, 1), (1, 7), (1000, 3), (2, 1000)] {
        let message = pattern(5000, segment_count as u8);
        let segments: Vec<_> = message
            .chunks(5000_usize.div_ceil(segment_count))
            .map(<[u8]>::to_vec)
            .collect();
        let buffers = vec![vec![0; 6000_usize.div_ceil(buffer_count)]; buffer_count];
        let receive = pair.server.bmi.post_recv(pair.server.post(buffers, 8));
        let send = pair.client.bmi.post_send(pair.client.post(segments, 8));
        let completion = pair.finish(&pair.server, receive);
        assert!(
            bytes(&completion) == message,
            "{segment_count} segments into {buffer_count}"
        );
        assert!(bytes(&pair.finish(&pair.client, send)) == message);
    }
    let segments = vec![vec![1; 3]; 5];
    let segment_count = pair
        .client
        .bmi
        .post_sendunexpected(pair.client.post(segments, 2), 0);
    let message = pair.until("a message", || unexpected(&pair.server.bmi, 0));
    assert_eq!(*message.buffer, [1; 15]);
    pair.finish(&pair.client, segment_count);
}

#[test]
fn a_method_has_its_own_limits_and_semantics() {
    let pair = mail_pair(2);
    let long = pair.client.post(vec![0; 1001], 1);
    let refused = pair.client.bmi.post_sendunexpected(long, 0).unwrap_err();
    assert_eq!(refused.code, Code::EMSGSIZE);
    assert_eq!(refused.buffers[0].len(), 1001);
    assert_eq!(
        pair.client
            .send(&vec![0; (1 << 20) + 1], 1)
            .unwrap_err()
            .code,
        Code::EMSGSIZE
    );
    assert_eq!(
        pair.client.recv((1 << 20) + 1, 1).unwrap_err().code,
        Code::EINVAL
    );
    let short = pair.server.recv(5, 3);
    pair.finish(&pair.client, pair.client.send(b"too long", 3));
    assert_eq!(
        pair.finish(&pair.server, short).outcome,
        Err(Code::EMSGSIZE)
    );
    let waiting = pending(pair.server.recv(5, 3));
    pair.server.bmi.cancel(waiting);
    assert_eq!(
        pair.server.test(waiting).unwrap().outcome,
        Err(Code::ECANCEL)
    );
}

#[test]
fn one_server_serves_two_methods_at_once() {
    let mut config = Config::server("shm://localhost,mail://NULL:3");
    config.auto_ref_count = true;
    let server = open(config);
    let context = server.open_context().unwrap();
    // The first method with a port.
    let shm = format!("shm://localhost:{}", server.listen_port().unwrap());
    let clients = [shm, "mail://NULL:3".to_owned()].map(|url| {
        let bmi = open(Config::client());
        let (context, peer) = (bmi.open_context().unwrap(), bmi.addr_lookup(&url).unwrap());
        Side { bmi, context, peer }
    });
    for (number, side) in clients.iter().enumerate() {
        let hello = side.post(vec![number as u8], 1);
        side.bmi.post_sendunexpected(hello, 0).unwrap();
    }
    let mut peers = [None; 2];
    until("both clients", || {
        clients.iter().for_each(Side::drive);
        if let Some(hello) = unexpected(&server, 0) {
            peers[hello.buffer[0] as usize] = Some(hello.addr);
        }
        peers.iter().all(Option::is_some).then_some(())
    });
    let receives = peers.map(|peer| {
        let post =
            Post::new(peer.unwrap(), vec![0; 9], 4, context).with_user(peer.unwrap().0 as u64);
        pending(server.post_recv(post))
    });
    clients.iter().for_each(|side| drop(side.send(b"both", 4)));
    let mut completions = Vec::new();
    until("both messages", || {
        clients.iter().for_each(Side::drive);
        let idle = Duration::from_millis(50);
        server
            .testcontext(1, idle, context, |completion| {
                completions.push((completion.id, completion.user));
            })
            .unwrap();
        (completions.len() == 2).then_some(())
    });
    for (id, user) in completions {
        let index = receives.iter().position(|receive| *receive == id).unwrap();
        assert_eq!(user, peers[index].unwrap().0 as u64);
    }
    let host = server.rev_lookup_unexpected(peers[1].unwrap()).unwrap();
    assert!(host.to_str().unwrap().starts_with("box"));
}

#[test]
fn calls_to_a_method_are_serialized() {
    let pair = mail_pair(5);
    // The mailbox has a `Cell`, so the compiler rules out concurrent calls. An operation that one
    // thread posted may be tested by another thread.
    thread::scope(|scope| {
        for tag in 0..8 {
            let (server, client) = (&pair.server, &pair.client);
            scope.spawn(move || {
                for number in 0..200 {
                    let sent = client.send(&[number], tag);
                    let completion = server.wait(server.recv(1, tag));
                    assert_eq!(bytes(&completion), [number]);
                    client.wait(sent);
                }
            });
        }
    });
}

#[test]
fn an_unknown_method_is_refused_by_name() {
    let unknown = Bmi::initialize(Config::server("gm://NULL:1")).unwrap_err();
    assert_eq!(unknown.code(), Code::ENOPROTOOPT);
    assert!(unknown.to_string().contains("gm"), "{unknown}");
    let client = Bmi::initialize(Config::client()).unwrap();
    assert_eq!(
        client.addr_lookup("gm://a:1").unwrap_err().code(),
        Code::ENOPROTOOPT
    );
    let peer = client.addr_lookup("gm://a:1,shm://localhost:4").unwrap();
    assert_eq!(
        client.rev_lookup(peer).unwrap().to_str().unwrap(),
        "gm://a:1,shm://localhost:4"
    );
    assert_eq!(
        client
            .addr_lookup("shm-zone://localhost:4")
            .map(|addr| addr == peer),
        Ok(true)
    );
    assert!(client.transports().contains("shm,"));
    let first_server = Bmi::initialize(Config::server("shm://localhost")).unwrap();
    let url = format!("shm://localhost:{}", first_server.listen_port().unwrap());
    let second_error = Bmi::initialize(Config::server(&url)).unwrap_err();
    assert_eq!(second_error.code(), Code::EADDRINUSE, "{second_error}");
}

#[test]
fn posts_that_complete_at_once_are_not_reported_by_a_test() {
    let pair = mail_pair(6);
    assert!(matches!(pair.client.send(b"now", 1), Ok(Posted::Done(_))));
    pair.server.drive();
    assert!(matches!(pair.server.recv(9, 1), Ok(Posted::Done(_))));
    for side in [&pair.client, &pair.server] {
        assert_eq!(
            side.bmi
                .testcontext(9, Duration::ZERO, side.context, |_| ()),
            Ok(0)
        );
    }
}

#[test]
fn peers_are_found_by_ipv6_addresses() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return skip(Need::System, "the system has no IPv6 loopback");
    }
    let mut config = Config::server("tcp://[::1]:0");
    config.bind_specific = true;
    let server = Bmi::initialize(config).unwrap();
    let url = server.urls().remove(0);
    assert!(url.starts_with("tcp://[::1]:"), "{url}");
    let pair = Pair::connect(server, Bmi::initialize(Config::client()).unwrap(), &url);
    let host = pair.server.bmi.rev_lookup_unexpected(pair.server.peer);
    assert_eq!(host.as_deref(), Some(c"::1"));
    let sent = pair.client.send(b"six", 6);
    let completion = pair.finish(&pair.server, pair.server.recv(9, 6));
    assert_eq!(bytes(&completion), b"six");
    pair.finish(&pair.client, sent).outcome.unwrap();
}

/// Sends one message from a new client to a server at a URL.
fn send_hello(server: &Bmi, url: &str) {
    let client = Bmi::initialize(Config::client()).unwrap();
    let side = Side {
        context: client.open_context().unwrap(),
        peer: client.addr_lookup(url).unwrap(),
        bmi: client,
    };
    let sent = side
        .bmi
        .post_sendunexpected(side.post(b"hello".to_vec(), 1), 0);
    let hello = until("a hello", || {
        side.drive();
        unexpected(server, 0)
    });
    assert_eq!(&*hello.buffer, b"hello");
    side.wait(sent).outcome.unwrap();
}

#[test]
fn every_local_address_is_recognized_and_gets_a_port() {
    let interfaces = selvedge_kit::ip::interface::all(None).unwrap();
    let addresses = interfaces.iter().map(|interface| match interface.addr {
        std::net::SocketAddr::V4(v4) => v4.ip().to_string(),
        std::net::SocketAddr::V6(v6) => format!("[{}]", v6.ip()),
    });
    let node = nix::sys::utsname::uname().unwrap();
    let node = node.nodename().to_str().unwrap();
    let names = [node.to_owned(), format!("{node}.example")];
    for host in addresses.chain(names) {
        let server = Bmi::initialize(Config::server(&format!("shm://{host}"))).unwrap();
        let port = server.listen_port().unwrap();
        assert_ne!(port, 0, "{host}");
        assert_eq!(server.urls(), [format!("shm://{host}:{port}")]);
        send_hello(&server, &server.urls()[0]);
        send_hello(&server, &format!("shm://localhost:{port}"));
    }
}

#[test]
fn a_named_server_is_found_with_port_0_and_without_a_port() {
    let url = format!("shm://metadata-{}", std::process::id());
    let server = Bmi::initialize(Config::server(&url)).unwrap();
    assert_eq!(server.listen_port(), Ok(0));
    assert_eq!(server.urls(), [&*url]);
    send_hello(&server, &url);
    send_hello(&server, &format!("{url}:0"));
}

#[test]
fn an_invalid_address_is_refused_with_a_reason() {
    let client = Bmi::initialize(Config::client()).unwrap();
    for (text, code, reason) in [
        ("bogus", Code::ENOPROTOOPT, "scheme://host:port"),
        ("", Code::ENOPROTOOPT, "scheme://host:port"),
        ("://node7:3334", Code::ENOPROTOOPT, "scheme is missing"),
        ("gm://node7:3334", Code::ENOPROTOOPT, "\"gm\""),
        ("shm://", Code::ENOPROTOOPT, "neither host nor port"),
        ("tcp://nowhere:x", Code::ENOPROTOOPT, "port \"x\""),
        ("tcp://node7:70000", Code::ENOPROTOOPT, "port \"70000\""),
        ("tcp://[::1:7", Code::ENOPROTOOPT, "bracket"),
        ("tcp://127.0.0.1", Code::ENOPROTOOPT, "port is missing"),
        ("tcp://127.0.0.1:0", Code::ENOPROTOOPT, "port is missing"),
        ("tcp://1.2.3.999:7", Code::EHOSTNTFD, "host \"1.2.3.999\""),
    ] {
        let refused = client.addr_lookup(text).unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
        let message = refused.message();
        assert!(
            message.contains(text) && message.contains(reason),
            "{message}"
        );
    }
}
