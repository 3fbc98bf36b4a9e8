//! Authorization keys: endpoints with different ones do not talk, and say so.

use std::os::fd::AsFd;

use selvedge::info::EpType;
use selvedge::{Errno, FiAddr, Hints, Registry};
use selvedge_shm::smr::doorbell::Doorbell;

use crate::contact::unique;
use crate::hostile::{self, Hostile};
use crate::process::Watchdog;
use crate::side::{Kind, Side, info};

fn with_keys(domain: &[u8], endpoint: &[u8]) -> Side {
    let mut info = info(EpType::Rdm, &[]);
    info.domain_attr.auth_key = domain.into();
    info.ep_attr.auth_key = endpoint.into();
    Side::open(None, &info).unwrap()
}

fn keyed(key: &[u8]) -> Side {
    with_keys(b"", key)
}

/// Sends in both directions; what becomes of it on each side.
fn exchange(a: &mut Side, b: &mut Side) -> [Result<(), (Errno, String)>; 2] {
    let (to_b, to_a) = (a.insert(b.name()), b.insert(a.name()));
    a.send(Kind::Delivered, to_b, 8, 1).unwrap();
    b.send(Kind::Delivered, to_a, 8, 2).unwrap();
    a.recv(Kind::Tagged, FiAddr::UNSPEC, 8, 2).unwrap();
    b.recv(Kind::Tagged, FiAddr::UNSPEC, 8, 1).unwrap();
    let sent = |side: &mut Side, other: &mut Side, context| loop {
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
fn endpoints_with_different_keys_do_not_talk() {
    let _watchdog = Watchdog::new();
    let keys: [&[u8]; 6] = [
        b"",
        b"k1-secret",
        b"k2-secret",
        b"k1-secret\0",
        b"k1",
        &[7; 64],
    ];
    for (place, ours) in keys.iter().enumerate() {
        for theirs in &keys[place + 1..] {
            let (mut a, mut b) = (keyed(ours), keyed(theirs));
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
fn endpoints_with_one_key_talk() {
    let _watchdog = Watchdog::new();
    let pairs = [
        (keyed(b""), keyed(b"")),
        (keyed(b"one"), keyed(b"one")),
        (keyed(&[9; 64]), keyed(&[9; 64])),
        // An endpoint has its domain's key unless it has one of its own.
        (with_keys(b"one", b""), keyed(b"one")),
        (with_keys(b"two", b"one"), with_keys(b"three", b"one")),
    ];
    for (mut a, mut b) in pairs {
        assert_eq!(exchange(&mut a, &mut b), [Ok(()), Ok(())]);
    }
}

#[test]
fn an_answer_without_the_key_is_refused_too() {
    let _watchdog = Watchdog::new();
    let mut side = keyed(b"key");
    let name = unique("keyless");
    let listener = Hostile::listen(&name);
    let them = side.insert(&name);
    side.send(Kind::Delivered, them, 8, 1).unwrap();
    let liar = listener.accept();
    let (region, (_bell, memory)) = (hostile::region(), Doorbell::create().unwrap());
    let nonce = Box::new(1);
    let hello = hostile::hello(&name, 77, &nonce);
    liar.say(&hello, &[region.fd(), memory.fd().as_fd()]);
    assert_eq!(side.next().errno(), Errno::ConnRefused);
}

#[test]
fn discovery_knows_how_long_a_key_may_be() {
    let registry = Registry::new().with(&selvedge_shm::PROVIDER);
    let ask = |ep: usize, domain: usize| {
        registry.infos(&Hints::new().edit(|asked| {
            asked.ep_attr.auth_key = vec![3; ep];
            asked.domain_attr.auth_key = vec![4; domain];
        }))
    };
    for (ep, domain) in [(0, 0), (1, 0), (64, 64)] {
        for info in ask(ep, domain).unwrap() {
            assert_eq!(info.ep_attr.auth_key, vec![3; ep]);
            assert_eq!(info.domain_attr.auth_key, vec![4; domain]);
        }
    }
    for (ep, domain, field) in [
        (65, 0, "auth_key_size"),
        (0, 65, "domain_attr.auth_key_size"),
    ] {
        let error = ask(ep, domain).unwrap_err().to_string();
        let expected = format!("{field}: asked for 65, has 64");
        assert!(error.contains(&expected), "{error}");
    }
    let mut info = info(EpType::Rdm, &[]);
    info.ep_attr.auth_key = vec![1; 65];
    let error = Side::open(None, &info).err().unwrap();
    assert_eq!(error.errno(), Errno::Inval);
}
