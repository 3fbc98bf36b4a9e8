//! Authorization keys: ends of a connection prove to each other that they have the same one, and say
//! nothing else before.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use selvedge::info::EpType;
use selvedge::{Errno, FiAddr, Info};

use crate::hostile::{greeting, waits_for_the_end};
use crate::side::{Side, exchange, info, until};

/// What a connection with a key begins with: a word, and 32 random bytes.
const QUESTION: &[u8] = b"SLVGKEY2";

pub(crate) fn keyed_info(ep_type: EpType, key: &[u8]) -> Info {
    let mut info = info(ep_type, &[("FI_TCP_PEER_TIMEOUT", "100ms")]);
    info.ep_attr.auth_key = key.into();
    info
}

fn keyed(key: &[u8]) -> Side {
    Side::open(&keyed_info(EpType::Rdm, key))
}

/// What becomes of a message of `a` to an address.
fn refused(a: &Side, to: FiAddr, others: &[&Side]) -> String {
    a.tsend(to, 1, b"to nobody", 1).unwrap();
    let error = a.wait(others).unwrap_err();
    assert_eq!(error.errno, Errno::ConnRefused, "{error:?}");
    assert!(!error.detail.contains("secret"), "{error:?}");
    error.detail
}

#[test]
fn endpoints_with_one_key_talk() {
    let mut of_domain = keyed_info(EpType::Rdm, b"");
    of_domain.domain_attr.auth_key = b"one".into();
    for (a, b) in [
        (keyed(b"one"), keyed(b"one")),
        (keyed(&[9; 64]), keyed(&[9; 64])),
        (keyed(b"one"), Side::open(&of_domain)),
    ] {
        exchange(&a, &b);
        exchange(&b, &a);
    }
}

/// It reaches itself by a connection, too.
#[test]
fn an_endpoint_with_a_key_talks_to_itself() {
    let a = keyed(b"one");
    let me = a.knows(&a);
    let landing = a.trecv(me, 1, 5, 1);
    a.tsend(me, 1, b"hello", 1).unwrap();
    for _ in 0..2 {
        a.wait_for(1, &[]);
    }
    assert_eq!(landing.bytes(), b"hello");
}

#[test]
fn endpoints_with_one_key_may_connect_at_once() {
    for _ in 0..20 {
        let (a, b) = (keyed(b"one"), keyed(b"one"));
        let (to_a, to_b) = (b.knows(&a), a.knows(&b));
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
fn endpoints_with_different_keys_do_not_talk_and_harm_no_others() {
    let keys: [&[u8]; 5] = [b"", b"secret1", b"secret2", b"secret1\0", &[7; 64]];
    for (place, ours) in keys.iter().enumerate() {
        for theirs in &keys[place + 1..] {
            let (a, b, c) = (keyed(ours), keyed(theirs), keyed(theirs));
            let to_b = a.knows(&b);
            let detail = refused(&a, to_b, &[&b, &c]);
            let name = b.addr().to_string();
            assert!(detail.contains(&name), "{detail}");
            // Whoever has a key knows what is wrong.
            assert!(ours.is_empty() || detail.contains("auth_key"), "{detail}");
            let to_a = b.knows(&a);
            let detail = refused(&b, to_a, &[&a, &c]);
            assert!(detail.contains("auth_key"), "{detail}");
            exchange(&b, &c);
        }
    }
}

/// A listener at the address of a peer hears the question and the proof, and no greeting.
#[test]
fn a_listener_without_the_key_is_not_believed_and_told_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let impostor = std::thread::spawn({
        let listener = listener.try_clone().unwrap();
        move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut heard = [0; 40];
            stream.read_exact(&mut heard).unwrap();
            stream.write_all(&heard[8..]).unwrap();
            let mut proof = [0; 32];
            stream.read_exact(&mut proof).unwrap();
            // The proof itself is not the listener's.
            stream.write_all(&proof).unwrap();
            let mut rest = Vec::new();
            // The end, or a reset.
            let _ = stream.read_to_end(&mut rest);
            (heard, rest)
        }
    });
    let a = keyed(b"secret");
    let to = a.insert(listener.local_addr().unwrap());
    let detail = refused(&a, to, &[]);
    assert!(detail.contains("another auth_key"), "{detail}");
    let (heard, rest) = impostor.join().unwrap();
    assert!(heard.starts_with(QUESTION));
    assert_eq!(rest, b"", "nothing follows");
}

#[test]
fn strangers_who_do_not_prove_the_key_are_turned_out() {
    let (a, b) = (keyed(b"secret"), keyed(b"secret"));
    let asked = [QUESTION, &[1; 32]].concat();
    for said in [
        greeting(1000),
        b"SLVGKEY1".to_vec(),
        [&asked[..], &greeting(1000)].concat(),
    ] {
        let mut stream = TcpStream::connect(a.addr()).unwrap();
        stream.write_all(&said).unwrap();
        waits_for_the_end(&a, stream);
        exchange(&b, &a);
    }
}

/// A proof of a weak key is enough to find the key by trying: a stranger gets none.
#[test]
fn a_caller_that_has_not_proved_the_key_gets_no_proof() {
    let (a, b) = (keyed(b"secret"), keyed(b"secret"));
    let mut stream = TcpStream::connect(a.addr()).unwrap();
    let wait = Some(Duration::from_millis(1));
    stream.set_read_timeout(wait).unwrap();
    stream.write_all(&[QUESTION, &[1; 32]].concat()).unwrap();
    let mut heard = Vec::new();
    let mut has_tried = false;
    until(|| {
        a.drive();
        let mut bytes = [0; 256];
        match stream.read(&mut bytes) {
            Ok(0) => return Some(()),
            Ok(count) => heard.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Some(()),
            Err(_) if heard.len() >= 32 && !has_tried => {
                has_tried = true;
                stream.write_all(&[7; 32]).unwrap();
            }
            Err(_) => {}
        }
        None
    });
    assert_eq!(heard.len(), 32, "a nonce, and no proof");
    exchange(&b, &a);
}

/// The same bytes that convinced once are worth nothing on another connection.
#[test]
fn what_an_honest_caller_said_convinces_nobody_again() {
    let wall = TcpListener::bind("127.0.0.1:0").unwrap();
    let (a, b) = (keyed(b"secret"), keyed(b"secret"));
    let recorded = relay_once(&wall, &a, &b);
    let mut stream = TcpStream::connect(b.addr()).unwrap();
    stream.write_all(&recorded).unwrap();
    waits_for_the_end(&b, stream);
    exchange(&a, &b);
}

/// Passes one connection of `a` on to `b`; what `a` has said, from the question to its message.
fn relay_once(wall: &TcpListener, a: &Side, b: &Side) -> Vec<u8> {
    let to = a.insert(wall.local_addr().unwrap());
    b.trecv(FiAddr::UNSPEC, 1, 1, 2);
    a.tsend(to, 1, b"x", 1).unwrap();
    let (mut near, _) = wall.accept().unwrap();
    let mut far = TcpStream::connect(b.addr()).unwrap();
    for stream in [&near, &far] {
        let wait = Some(Duration::from_millis(1));
        stream.set_read_timeout(wait).unwrap();
    }
    let mut said = Vec::new();
    until(|| {
        a.drive();
        let mut bytes = [0; 4096];
        if let Ok(count) = near.read(&mut bytes) {
            said.extend_from_slice(&bytes[..count]);
            far.write_all(&bytes[..count]).unwrap();
        }
        let arrived = b.poll().map(|entry| entry.unwrap());
        if let Ok(count) = far.read(&mut bytes) {
            near.write_all(&bytes[..count]).unwrap();
        }
        arrived
    });
    said
}
