//! Authorization keys: endpoints with different keys do not connect, and report why.

use std::os::fd::AsFd;

use selvedge::info::EpType;
use selvedge::{Errno, FiAddr, Hints, Registry};
use selvedge_kit::auth::AuthKey;
use selvedge_kit::auth::proof::{Block, Initiator, Responder, Step};
use selvedge_shm::smr::doorbell::Doorbell;

use crate::connect::unique;
use crate::endpoint::{Kind, NumberedEndpoint, content, info};
use crate::hostile::{self, HostileConnection, NONCE, PROOF, QUESTION, REFUSAL, proof_packet};
use crate::process::Watchdog;

fn open_with_keys(domain: &[u8], endpoint: &[u8]) -> NumberedEndpoint {
    let mut info = info(EpType::Rdm, &[]);
    info.domain_attr.auth_key = domain.into();
    info.ep_attr.auth_key = endpoint.into();
    NumberedEndpoint::open(None, &info).unwrap()
}

fn open_with_key(key: &[u8]) -> NumberedEndpoint {
    open_with_keys(b"", key)
}

fn open_with_key_and_name(name: &str) -> NumberedEndpoint {
    let mut info = info(EpType::Rdm, &[]);
    info.ep_attr.auth_key = KEY.into();
    NumberedEndpoint::open(Some(name), &info).unwrap()
}

/// Sends a message in both directions. Returns the result on each side.
fn exchange(
    a: &mut NumberedEndpoint,
    b: &mut NumberedEndpoint,
) -> [Result<(), (Errno, String)>; 2] {
    let (to_b, to_a) = (a.insert(b.name()), b.insert(a.name()));
    a.send(Kind::Delivered, to_b, 8, 1).unwrap();
    b.send(Kind::Delivered, to_a, 8, 2).unwrap();
    a.recv(Kind::Tagged, FiAddr::UNSPEC, 8, 2).unwrap();
    b.recv(Kind::Tagged, FiAddr::UNSPEC, 8, 1).unwrap();
    let sent = |side: &mut NumberedEndpoint, other: &mut NumberedEndpoint, context| loop {
        let event = side.next_with(&mut [other]);
        if event.context == context && event.bytes.is_empty() {
            return match event.error {
                None => Ok(()),
                Some(error) => Err((error.errno, error.detail)),
            };
        }
    };
    [sent(a, b, 1), sent(b, a, 2)]
}

#[test]
fn endpoints_with_different_keys_do_not_connect() {
    let _watchdog = Watchdog::new();
    let keys: [&[u8]; 6] = [
        b"",
        b"k1-secret",
        b"k2-secret",
        b"k1-secret\0",
        b"k1",
        &[7; 64],
    ];
    for (index, local) in keys.iter().enumerate() {
        for remote in &keys[index + 1..] {
            let (mut a, mut b) = (open_with_key(local), open_with_key(remote));
            let names = [b.name(), a.name()];
            for (name, result) in names.iter().zip(exchange(&mut a, &mut b)) {
                let (errno, detail) = result.unwrap_err();
                assert_eq!(errno, Errno::ConnRefused, "{detail}");
                let name = name.strip_prefix("fi_shm://").unwrap();
                assert!(
                    detail.contains("auth_key") && detail.contains(name),
                    "{detail}"
                );
                assert!(!detail.contains("secret"), "{detail}");
            }
        }
    }
}

#[test]
fn endpoints_with_the_same_key_exchange_messages() {
    let _watchdog = Watchdog::new();
    let pairs = [
        (open_with_key(b""), open_with_key(b"")),
        (open_with_key(b"one"), open_with_key(b"one")),
        (open_with_key(&[9; 64]), open_with_key(&[9; 64])),
        // An endpoint without a key has its domain's key.
        (open_with_keys(b"one", b""), open_with_key(b"one")),
        (
            open_with_keys(b"two", b"one"),
            open_with_keys(b"three", b"one"),
        ),
    ];
    for (mut a, mut b) in pairs {
        assert_eq!(exchange(&mut a, &mut b), [Ok(()), Ok(())]);
    }
}

#[test]
fn a_response_without_the_key_is_refused() {
    let _watchdog = Watchdog::new();
    let mut side = open_with_key(b"key");
    let name = unique("keyless");
    let listener = HostileConnection::listen(&name);
    let peer_addr = side.insert(&name);
    side.send(Kind::Delivered, peer_addr, 8, 1).unwrap();
    let forger = listener.accept();
    let (region, (_bell, memory)) = (hostile::region(), Doorbell::create().unwrap());
    let nonce = Box::new(1);
    let hello = hostile::hello(&name, 77, &nonce);
    forger.send(&hello, &[region.fd(), memory.fd().as_fd()]);
    assert_eq!(side.next().errno(), Errno::ConnRefused);
}

const KEY: &[u8] = b"k1-secret";

/// Receives the next packet of an endpoint over a connection, and checks that the packet has no
/// part of the key and no descriptor. Returns its kind, its first field and its bytes, or `None`
/// when the endpoint has closed the connection.
fn next_packet(
    side: &mut NumberedEndpoint,
    hostile: &HostileConnection,
) -> Option<(u32, Block, Vec<u8>)> {
    let mut received = None;
    side.until(|_| {
        received = hostile.receive();
        received.as_ref().is_none_or(|(bytes, _)| !bytes.is_empty())
    });
    let (bytes, fds) = received?;
    assert!(fds.is_empty());
    assert!(
        !bytes
            .windows(4)
            .any(|bytes| KEY.windows(4).any(|key| key == bytes))
    );
    let kind = u32::from_le_bytes(*bytes[12..].first_chunk().unwrap());
    Some((kind, *bytes[16..].first_chunk().unwrap(), bytes))
}

/// Receives an endpoint's next packet, which must have this kind. Returns its first field.
#[track_caller]
fn next_field(side: &mut NumberedEndpoint, hostile: &HostileConnection, kind: u32) -> Block {
    let (received, field, _) = next_packet(side, hostile).unwrap();
    assert_eq!(received, kind);
    field
}

/// Checks that the endpoint refuses the connection for its key.
#[track_caller]
fn expect_refusal(side: &mut NumberedEndpoint, hostile: &HostileConnection) {
    let (kind, field, bytes) = next_packet(side, hostile).unwrap();
    let errno = u32::from_le_bytes(*field.first_chunk().unwrap());
    assert_eq!((kind, errno), (REFUSAL, Errno::KeyRejected.as_raw() as u32));
    assert!(String::from_utf8_lossy(&bytes).contains("auth_key"));
    hostile.expect_cut_off_by(side);
}

/// Posts a message to the name at which `listener` listens. Returns the connection.
fn accept_from(
    side: &mut NumberedEndpoint,
    listener: &HostileConnection,
    dest: FiAddr,
    number: u64,
) -> HostileConnection {
    side.send(Kind::Delivered, dest, 8, number).unwrap();
    listener.accept()
}

#[test]
fn a_process_with_the_name_of_a_peer_learns_a_proof_and_no_key() {
    let _watchdog = Watchdog::new();
    let (mut side, name) = (open_with_key(KEY), unique("name-of-a-peer"));
    let listener = HostileConnection::listen(&name);
    let dest = side.insert(&name);
    let forger = accept_from(&mut side, &listener, dest, 1);
    next_field(&mut side, &forger, QUESTION);
    forger.send(&proof_packet(NONCE, &[7; 32], ""), &[]);
    let proof = next_field(&mut side, &forger, PROOF);
    // The hostile peer has no other proof than the one of the endpoint.
    forger.send(&proof_packet(PROOF, &proof, ""), &[]);
    assert_eq!(next_packet(&mut side, &forger), None);
    assert_eq!(side.next().errno(), Errno::ConnRefused);
}

#[test]
fn a_client_without_a_valid_proof_gets_no_proof() {
    let _watchdog = Watchdog::new();
    let mut side = open_with_key(KEY);
    let caller = HostileConnection::connect(&side);
    caller.send(&proof_packet(QUESTION, &[1; 32], "caller"), &[]);
    let nonce = next_field(&mut side, &caller, NONCE);
    caller.send(&proof_packet(PROOF, &nonce, ""), &[]);
    expect_refusal(&mut side, &caller);
    for first in [NONCE, PROOF] {
        let caller = HostileConnection::connect(&side);
        caller.send(&proof_packet(first, &[1; 32], ""), &[]);
        assert_eq!(next_packet(&mut side, &caller).unwrap().0, REFUSAL);
        caller.expect_cut_off_by(&mut side);
    }
}

#[test]
fn a_hello_before_a_proof_and_an_unneeded_question_are_refused() {
    let _watchdog = Watchdog::new();
    let (region, (_bell, memory)) = (hostile::region(), Doorbell::create().unwrap());
    let fds = [region.fd(), memory.fd()];
    let mut side = open_with_key(KEY);
    let caller = HostileConnection::connect(&side);
    caller.send(&hostile::hello("caller", 1, &7), &fds);
    expect_refusal(&mut side, &caller);
    let caller = HostileConnection::connect(&side);
    caller.send(&proof_packet(QUESTION, &[1; 32], "caller"), &[]);
    next_field(&mut side, &caller, NONCE);
    caller.send(&hostile::hello("caller", 1, &7), &fds);
    expect_refusal(&mut side, &caller);
    let mut side = open_with_key(b"");
    let caller = HostileConnection::connect(&side);
    caller.send(&proof_packet(QUESTION, &[1; 32], "caller"), &[]);
    expect_refusal(&mut side, &caller);
}

#[test]
fn a_replayed_proof_is_refused() {
    let _watchdog = Watchdog::new();
    let (mut side, mut other) = (open_with_key(KEY), open_with_key(KEY));
    let name = unique("in-the-middle");
    let listener = HostileConnection::listen(&name);
    let dest = side.insert(&name);
    let (to_side, to_other) = (
        accept_from(&mut side, &listener, dest, 1),
        HostileConnection::connect(&other),
    );
    let question = next_field(&mut side, &to_side, QUESTION);
    to_other.send(&proof_packet(QUESTION, &question, "side"), &[]);
    let nonce = next_field(&mut other, &to_other, NONCE);
    to_side.send(&proof_packet(NONCE, &nonce, ""), &[]);
    let proof = next_field(&mut side, &to_side, PROOF);
    to_other.send(&proof_packet(PROOF, &proof, ""), &[]);
    let response = next_field(&mut other, &to_other, PROOF);
    // Another connection repeats the packets.
    let replayer = HostileConnection::connect(&other);
    replayer.send(&proof_packet(QUESTION, &question, "side"), &[]);
    assert_ne!(next_field(&mut other, &replayer, NONCE), nonce);
    replayer.send(&proof_packet(PROOF, &proof, ""), &[]);
    expect_refusal(&mut other, &replayer);
    let mut late = open_with_key(KEY);
    let dest = late.insert(&name);
    let to_late = accept_from(&mut late, &listener, dest, 1);
    assert_ne!(next_field(&mut late, &to_late, QUESTION), question);
    to_late.send(&proof_packet(NONCE, &nonce, ""), &[]);
    assert_ne!(next_field(&mut late, &to_late, PROOF), proof);
    to_late.send(&proof_packet(PROOF, &response, ""), &[]);
    assert_eq!(next_packet(&mut late, &to_late), None);
    assert_eq!(late.next().errno(), Errno::ConnRefused);
}

#[test]
fn a_peer_with_the_key_is_accepted_and_no_packet_contains_the_key() {
    let _watchdog = Watchdog::new();
    let (mut side, key) = (open_with_key(KEY), AuthKey::new(KEY).unwrap());
    let peer = HostileConnection::connect(&side);
    let (mut initiator, question) = Initiator::start();
    peer.send(&proof_packet(QUESTION, &question, "honest"), &[]);
    let nonce = next_field(&mut side, &peer, NONCE);
    let Ok(Step::SendProof(proof)) = initiator.receive(&key, &nonce) else {
        panic!("the nonce is not accepted")
    };
    peer.send(&proof_packet(PROOF, &proof, ""), &[]);
    let response = next_field(&mut side, &peer, PROOF);
    assert_eq!(initiator.receive(&key, &response), Ok(Step::Done));
    let (region, (_bell, memory)) = (hostile::region(), Doorbell::create().unwrap());
    let hello = hostile::hello(&unique("honest"), 1, &7);
    peer.send(&hello, &[region.fd(), memory.fd()]);
    let mut received = Vec::new();
    side.until(|_| {
        received = peer.receive().expect("the endpoint refuses the hello").0;
        !received.is_empty()
    });
    assert_eq!(received[12], 1, "a hello");
    assert!(
        !received
            .windows(4)
            .any(|bytes| KEY.windows(4).any(|key| key == bytes))
    );
}

#[test]
fn a_post_connects_again_when_a_listener_ends_before_its_proof() {
    let _watchdog = Watchdog::new();
    let (mut side, name) = (open_with_key(KEY), unique("dies"));
    let listener = HostileConnection::listen(&name);
    let dest = side.insert(&name);
    for number in 0..3 {
        side.send(Kind::Delivered, dest, 8, number).unwrap();
    }
    for steps in 0..2 {
        let mut peer = None;
        side.until(|_| {
            peer = listener.try_accept();
            peer.is_some()
        });
        let peer = peer.unwrap();
        next_field(&mut side, &peer, QUESTION);
        if steps == 1 {
            let mut responder = Responder::new(&AuthKey::new(KEY).unwrap());
            let nonce = responder
                .receive(&AuthKey::new(KEY).unwrap(), &[1; 32])
                .unwrap();
            peer.send(&proof_packet(NONCE, &nonce, ""), &[]);
            next_field(&mut side, &peer, PROOF);
        }
    }
    drop(listener);
    let mut late = open_with_key_and_name(&name);
    for number in 0..3 {
        late.recv(Kind::Tagged, FiAddr::UNSPEC, 8, number).unwrap();
    }
    for _ in 0..3 {
        side.next_with(&mut [&mut late]).ok();
    }
}

/// Opens an endpoint with the key and this limit of a connection's silence.
fn open_with_hello_timeout(timeout: &str) -> NumberedEndpoint {
    let params = [
        ("FI_SHM_PEER_TIMEOUT", "0"),
        ("FI_SHM_HELLO_TIMEOUT", timeout),
    ];
    let mut info = info(EpType::Rdm, &params);
    info.ep_attr.auth_key = KEY.into();
    NumberedEndpoint::open(None, &info).unwrap()
}

#[test]
fn a_connection_attempt_outlasts_a_peer_without_progress() {
    let _watchdog = Watchdog::new();
    let (mut side, mut other) = (
        open_with_hello_timeout("100ms"),
        open_with_hello_timeout("100ms"),
    );
    let drive_for = |side: &mut NumberedEndpoint, millis| {
        let start = std::time::Instant::now();
        while start.elapsed().as_millis() < millis {
            side.drive();
            assert!(side.poll().is_none());
        }
    };
    let to_other = side.insert(other.name());
    side.send(Kind::Tagged, to_other, 8, 7).unwrap();
    // This is longer than the retries for a peer that exists and has no room.
    drive_for(&mut side, 5500);
    drive_for(&mut other, 300);
    other.recv(Kind::Tagged, FiAddr::UNSPEC, 8, 7).unwrap();
    side.next_with(&mut [&mut other]).ok();
}

#[test]
fn a_post_connects_again_when_a_listener_ends_between_its_proof_and_the_hello() {
    let _watchdog = Watchdog::new();
    let (mut side, name) = (open_with_hello_timeout("100ms"), unique("ends"));
    let (listener, key) = (HostileConnection::listen(&name), AuthKey::new(KEY).unwrap());
    let dest = side.insert(&name);
    side.send(Kind::Tagged, dest, 8, 7).unwrap();
    let mut peer = None;
    side.until(|_| {
        peer = listener.try_accept();
        peer.is_some()
    });
    let (peer, mut responder) = (peer.unwrap(), Responder::new(&key));
    let question = next_field(&mut side, &peer, QUESTION);
    let nonce = responder.receive(&key, &question).unwrap();
    peer.send(&proof_packet(NONCE, &nonce, ""), &[]);
    let proof = next_field(&mut side, &peer, PROOF);
    let response = responder.receive(&key, &proof).unwrap();
    peer.send(&proof_packet(PROOF, &response, ""), &[]);
    // The side makes no progress for longer than its connection may be silent.
    let start = std::time::Instant::now();
    while start.elapsed().as_millis() <= 100 {
        std::thread::yield_now();
    }
    drop((peer, listener));
    let mut late = open_with_key_and_name(&name);
    late.recv(Kind::Tagged, FiAddr::UNSPEC, 8, 7).unwrap();
    side.next_with(&mut [&mut late]).ok();
}

#[test]
fn injected_messages_before_a_proof_are_sent_when_their_endpoint_closes() {
    let _watchdog = Watchdog::new();
    // The side that closes is at every step of the proof.
    for steps in 0..6 {
        let (mut side, mut other) = (open_with_key(KEY), open_with_key(KEY));
        let dest = side.insert(other.name());
        for number in 0..3 {
            other.recv(Kind::Tagged, FiAddr::UNSPEC, 8, number).unwrap();
            side.send(Kind::TaggedInject, dest, 8, number).unwrap();
        }
        for _ in 0..steps {
            other.drive();
            side.drive();
        }
        let closing = std::thread::spawn(move || drop(side));
        while !closing.is_finished() {
            other.drive();
        }
        closing.join().unwrap();
        (0..10_000).for_each(|_| other.drive());
        for number in 0..3 {
            let event = other.poll().expect("an injected message is lost").ok();
            assert_eq!(event.bytes, content(number, 8));
        }
    }
}

#[test]
fn closing_waits_no_longer_than_a_proof_may_take() {
    let _watchdog = Watchdog::new();
    let (mut side, other) = (open_with_hello_timeout("100ms"), open_with_key(KEY));
    let dest = side.insert(other.name());
    side.send(Kind::TaggedInject, dest, 8, 1).unwrap();
    // The peer makes no progress. The watchdog bounds the time of closing.
    drop(side);
    // Closing waits neither for an absent peer, nor without injected messages.
    for kind in [Kind::TaggedInject, Kind::Tagged] {
        let mut side = open_with_hello_timeout("3600s");
        let (absent, peer_addr) = (unique("absent"), other.name());
        let dest = side.insert(if kind == Kind::Tagged {
            peer_addr
        } else {
            absent
        });
        side.send(kind, dest, 8, 1).unwrap();
        drop(side);
    }
}

#[test]
fn a_restarted_peer_proves_its_key_again() {
    let _watchdog = Watchdog::new();
    let (mut side, name) = (open_with_key(KEY), unique("comes-back"));
    let dest = side.insert(&name);
    for incarnation in 0..3 {
        let mut other = open_with_key_and_name(&name);
        other
            .recv(Kind::Tagged, FiAddr::UNSPEC, 8, incarnation)
            .unwrap();
        // Posts connect to a peer again after a disconnect.
        while let Err(errno) = side.send(Kind::Tagged, dest, 8, incarnation) {
            assert!(matches!(errno, Errno::Again | Errno::NotConn), "{errno}");
            side.drive();
            other.drive();
        }
        side.next_with(&mut [&mut other]).ok();
        assert_eq!(other.next_with(&mut [&mut side]).ok().context, incarnation);
        side.recv(Kind::Tagged, dest, 8, 100 + incarnation).unwrap();
        drop(other);
        assert_eq!(side.next().errno(), Errno::ConnReset);
    }
}

#[test]
fn both_sides_may_connect_at_once() {
    let _watchdog = Watchdog::new();
    for round in 0..20 {
        let (mut a, mut b) = (open_with_key(KEY), open_with_key(KEY));
        let (to_b, to_a) = (a.insert(b.name()), b.insert(a.name()));
        a.send(Kind::Tagged, to_b, 8, 1).unwrap();
        b.send(Kind::Tagged, to_a, 8, 2).unwrap();
        // One side is ahead of the other by some steps of the proof.
        for _ in 0..round {
            a.drive();
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
        assert_eq!(exchange(&mut a, &mut b), [Ok(()), Ok(())]);
    }
}

#[test]
fn unfinished_proofs_delay_no_other_peer_and_time_out() {
    let _watchdog = Watchdog::new();
    let mut side = open_with_hello_timeout("500ms");
    let silent: Vec<_> = (0..40).map(|_| HostileConnection::connect(&side)).collect();
    for caller in &silent {
        caller.send(&proof_packet(QUESTION, &[1; 32], "silent"), &[]);
    }
    let mut other = open_with_key(KEY);
    assert_eq!(exchange(&mut side, &mut other), [Ok(()), Ok(())]);
    for caller in &silent {
        while next_packet(&mut side, caller).is_some() {}
    }
}

#[test]
fn discovery_refuses_keys_that_are_too_long() {
    let registry = Registry::new().with(&selvedge_shm::PROVIDER);
    let request = |ep: usize, domain: usize| {
        registry.infos(&Hints::new().edit(|info| {
            info.ep_attr.auth_key = vec![3; ep];
            info.domain_attr.auth_key = vec![4; domain];
        }))
    };
    for (ep, domain) in [(0, 0), (1, 0), (64, 64)] {
        for info in request(ep, domain).unwrap() {
            assert_eq!(info.ep_attr.auth_key, vec![3; ep]);
            assert_eq!(info.domain_attr.auth_key, vec![4; domain]);
        }
    }
    for (ep, domain, field) in [
        (65, 0, "auth_key_size"),
        (0, 65, "domain_attr.auth_key_size"),
    ] {
        let error = request(ep, domain).unwrap_err().to_string();
        let expected = format!("{field}: requested 65, has 64");
        assert!(error.contains(&expected), "{error}");
    }
    let mut info = info(EpType::Rdm, &[]);
    info.ep_attr.auth_key = vec![1; 65];
    let error = NumberedEndpoint::open(None, &info).err().unwrap();
    assert_eq!(error.errno(), Errno::Inval);
}
