//! Authorization keys: both sides of a connection prove that they have the same key before any
//! other message.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use selvedge::info::EpType;
use selvedge::{Errno, FiAddr, Info};
use selvedge_testkit::local::{LocalEndpoint, until};

use crate::endpoint::{CopyingEndpoint, exchange, info};
use crate::hostile::{hello, wait_for_close};

/// A client begins a connection with a key with this magic and a nonce of 32 random bytes.
const PROOF_MAGIC: &[u8] = b"SLVGKEY2";

pub(crate) fn keyed_info(ep_type: EpType, key: &[u8]) -> Info {
    keyed_info_with(ep_type, key, &[("FI_TCP_PEER_TIMEOUT", "100ms")])
}

fn keyed_info_with(ep_type: EpType, key: &[u8], params: &[(&str, &str)]) -> Info {
    let mut info = info(ep_type, params);
    info.ep_attr.auth_key = key.into();
    info
}

fn keyed(key: &[u8]) -> CopyingEndpoint {
    CopyingEndpoint::open(&keyed_info(EpType::Rdm, key))
}

/// Opens an endpoint that soon gives up connections.
fn hasty(key: &[u8]) -> CopyingEndpoint {
    let timeouts = ["FI_TCP_CONNECT_TIMEOUT", "FI_TCP_PEER_TIMEOUT"].map(|name| (name, "100ms"));
    CopyingEndpoint::open(&keyed_info_with(EpType::Rdm, key, &timeouts))
}

/// Sends a message to `to`, which must refuse the connection. Returns the detail of the error.
fn send_fails(a: &CopyingEndpoint, to: FiAddr, driven: &[&LocalEndpoint]) -> String {
    a.tsend(to, 1, b"refused", 1).unwrap();
    let error = a.wait(driven).unwrap_err();
    assert_eq!(error.errno, Errno::ConnRefused, "{error:?}");
    assert!(!error.detail.contains("secret"), "{error:?}");
    error.detail
}

#[test]
fn endpoints_with_the_same_key_exchange_messages() {
    let mut domain_info = keyed_info(EpType::Rdm, b"");
    domain_info.domain_attr.auth_key = b"one".into();
    for (a, b) in [
        (keyed(b"one"), keyed(b"one")),
        (keyed(&[9; 64]), keyed(&[9; 64])),
        (keyed(b"one"), CopyingEndpoint::open(&domain_info)),
    ] {
        exchange(&a, &b);
        exchange(&b, &a);
    }
}

/// An endpoint sends to itself over a connection, as it does to any peer.
#[test]
fn an_endpoint_with_a_key_sends_to_itself() {
    let a = keyed(b"one");
    let own_addr = a.insert_endpoint(&a);
    let buffer = a.trecv(own_addr, 1, 5, 1);
    a.tsend(own_addr, 1, b"hello", 1).unwrap();
    for _ in 0..2 {
        a.wait_for(1, &[]);
    }
    assert_eq!(buffer.bytes(), b"hello");
}

#[test]
fn endpoints_with_the_same_key_may_connect_at_once() {
    for _ in 0..20 {
        let (a, b) = (keyed(b"one"), keyed(b"one"));
        let (to_a, to_b) = (b.insert_endpoint(&a), a.insert_endpoint(&b));
        a.trecv(to_b, 1, 1, 2);
        b.trecv(to_a, 1, 1, 2);
        a.tsend(to_b, 1, b"x", 1).unwrap();
        b.tsend(to_a, 1, b"y", 1).unwrap();
        let mut done = 0;
        until(|| {
            for side in [&a, &b] {
                done += side.poll().map_or(0, |entry| entry.map(|_| 1).unwrap());
            }
            (done == 4).then_some(())
        });
    }
}

#[test]
fn endpoints_with_different_keys_fail_to_connect_and_do_not_disturb_others() {
    let keys: [&[u8]; 5] = [b"", b"secret1", b"secret2", b"secret1\0", &[7; 64]];
    for (index, key) in keys.iter().enumerate() {
        for other_key in &keys[index + 1..] {
            let (a, b, c) = (hasty(key), hasty(other_key), keyed(other_key));
            let to_b = a.insert_endpoint(&b);
            let detail = send_fails(&a, to_b, &[&b, &c]);
            let name = b.addr().to_string();
            assert!(detail.contains(&name), "{detail}");
            // An endpoint without a key does not learn why the peer refused the connection.
            assert!(key.is_empty() || detail.contains("auth_key"), "{detail}");
            let to_a = b.insert_endpoint(&a);
            let detail = send_fails(&b, to_a, &[&a, &c]);
            assert!(detail.contains("auth_key"), "{detail}");
            exchange(&c, &b);
        }
    }
}

/// An impostor that listens at the address of a peer receives the magic, the nonce and the proof,
/// but no hello.
#[test]
fn a_listener_without_the_key_is_rejected_and_learns_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let impostor = std::thread::spawn({
        let listener = listener.try_clone().unwrap();
        move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut received = [0; 40];
            stream.read_exact(&mut received).unwrap();
            stream.write_all(&received[8..]).unwrap();
            let mut proof = [0; 32];
            stream.read_exact(&mut proof).unwrap();
            // The impostor sends the endpoint's own proof back, which is no proof of a listener.
            stream.write_all(&proof).unwrap();
            let mut remainder = Vec::new();
            // Ends at a close or with a reset.
            let _ = stream.read_to_end(&mut remainder);
            (received, remainder)
        }
    });
    let a = keyed(b"secret");
    let to = a.insert(listener.local_addr().unwrap());
    let detail = send_fails(&a, to, &[]);
    assert!(detail.contains("another auth_key"), "{detail}");
    let (received, remainder) = impostor.join().unwrap();
    assert!(received.starts_with(PROOF_MAGIC));
    assert_eq!(remainder, b"", "nothing follows the proof");
}

#[test]
fn connections_without_a_proof_of_the_key_are_closed() {
    let (a, b) = (keyed(b"secret"), keyed(b"secret"));
    let magic_and_nonce = [PROOF_MAGIC, &[1; 32]].concat();
    for first_bytes in [
        hello(1000),
        b"SLVGKEY1".to_vec(),
        [&magic_and_nonce[..], &hello(1000)].concat(),
    ] {
        let mut stream = TcpStream::connect(a.addr()).unwrap();
        stream.write_all(&first_bytes).unwrap();
        wait_for_close(&a, stream);
        exchange(&b, &a);
    }
}

/// A proof would let an attacker find a weak key by trial, so an unauthenticated client gets none.
#[test]
fn a_client_without_a_valid_proof_gets_no_proof() {
    let (a, b) = (keyed(b"secret"), keyed(b"secret"));
    let mut stream = TcpStream::connect(a.addr()).unwrap();
    let timeout = Some(Duration::from_millis(1));
    stream.set_read_timeout(timeout).unwrap();
    stream.write_all(&[PROOF_MAGIC, &[1; 32]].concat()).unwrap();
    let mut received = Vec::new();
    let mut has_sent_false_proof = false;
    until(|| {
        a.progress();
        let mut bytes = [0; 256];
        match stream.read(&mut bytes) {
            Ok(0) => return Some(()),
            Ok(count) => received.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Some(()),
            Err(_) if received.len() >= 32 && !has_sent_false_proof => {
                has_sent_false_proof = true;
                stream.write_all(&[7; 32]).unwrap();
            }
            Err(_) => {}
        }
        None
    });
    assert_eq!(received.len(), 32, "a nonce, and no proof");
    exchange(&b, &a);
}

/// An attacker sends the recorded bytes of an accepted connection on another connection, which is
/// rejected.
#[test]
fn a_replayed_handshake_is_rejected() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (a, b) = (keyed(b"secret"), keyed(b"secret"));
    let recorded = relay_once(&listener, &a, &b);
    let mut stream = TcpStream::connect(b.addr()).unwrap();
    stream.write_all(&recorded).unwrap();
    wait_for_close(&b, stream);
    exchange(&a, &b);
}

/// Relays one connection from `a` to `b` until a message has arrived. Returns all bytes that `a`
/// sent.
fn relay_once(listener: &TcpListener, a: &CopyingEndpoint, b: &CopyingEndpoint) -> Vec<u8> {
    let to = a.insert(listener.local_addr().unwrap());
    b.trecv(FiAddr::UNSPEC, 1, 1, 2);
    a.tsend(to, 1, b"x", 1).unwrap();
    let (mut client, _) = listener.accept().unwrap();
    let mut server = TcpStream::connect(b.addr()).unwrap();
    for stream in [&client, &server] {
        let timeout = Some(Duration::from_millis(1));
        stream.set_read_timeout(timeout).unwrap();
    }
    let mut recorded = Vec::new();
    until(|| {
        a.progress();
        let mut bytes = [0; 4096];
        if let Ok(count) = client.read(&mut bytes) {
            recorded.extend_from_slice(&bytes[..count]);
            server.write_all(&bytes[..count]).unwrap();
        }
        let arrived = b.poll().map(|entry| entry.unwrap());
        if let Ok(count) = server.read(&mut bytes) {
            client.write_all(&bytes[..count]).unwrap();
        }
        arrived
    });
    recorded
}
