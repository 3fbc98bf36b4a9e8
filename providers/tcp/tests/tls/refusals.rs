//! Whom TLS does not suit: refused by name and with a reason, in bounded time, and nobody else
//! notices.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rcgen::{CertificateParams, SanType, date_time_ymd};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion, version};
use selvedge::info::EpType;
use selvedge::{Caps, Errno, Hints, Registry};

use crate::papers::{Authority, Papers, authority, usual};
use crate::side::{Side, exchange};

/// A side with these papers, or none.
pub(crate) fn with(papers: Option<&Papers>) -> Side {
    let own = papers.map(Papers::variables).unwrap_or_default();
    let patience = [("FI_TCP_PEER_TIMEOUT", "300ms".to_owned())];
    let registry = Registry::new()
        .with(&selvedge_tcp::PROVIDER)
        .with_params(own.into_iter().chain(patience).collect());
    let hints = Hints::new()
        .caps(Caps::MSG | Caps::TAGGED | Caps::SOURCE | Caps::DIRECTED_RECV)
        .ep_type(EpType::Rdm)
        .src_addr("127.0.0.1:0".parse().unwrap());
    Side::open(&registry.infos(&hints).unwrap()[0])
}

/// Why a message of `from` does not reach `to`, while two others talk with whom they can.
#[track_caller]
fn refused(from: &Side, to: &Side) -> String {
    let (c, d) = (Side::new(), Side::new());
    exchange(&c, &d);
    let addr = from.knows(to);
    from.tsend(addr, 1, b"to nobody", 1).unwrap();
    let error = from.wait(&[to, &c]).unwrap_err();
    assert_eq!((error.errno, error.src), (Errno::ConnRefused, addr));
    let name = to.addr().to_string();
    assert!(error.detail.contains(&name), "{}", error.detail);
    exchange(&c, &d);
    exchange(&d, &c);
    error.detail
}

/// That neither of the two reaches the other, the first for this reason.
#[track_caller]
fn refused_both_ways(a: &Side, b: &Side, why: &str) {
    let detail = refused(a, b);
    assert!(detail.contains(why), "{detail}");
    refused(b, a);
}

#[test]
fn a_peer_in_the_clear_and_one_in_tls_do_not_talk_and_say_why() {
    let (plain, secured) = (with(None), Side::new());
    refused_both_ways(&plain, &secured, "speaks TLS");
    let (again, other) = (with(Some(usual())), with(None));
    let detail = refused(&again, &other);
    assert!(detail.contains("HandshakeFailure"), "{detail}");
    exchange(&plain, &other);
    exchange(&secured, &again);
}

#[test]
fn certificates_of_another_authority_are_not_believed() {
    let foreign = Authority::new();
    let a = with(Some(&foreign.papers()));
    refused_both_ways(&a, &Side::new(), "UnknownIssuer");
    // One that believes ours, and shows what we do not believe.
    let mut papers = foreign.papers();
    papers.ca.clone_from(&authority().file);
    let b = with(Some(&papers));
    let detail = refused(&b, &Side::new());
    assert!(detail.contains("ends TLS"), "{detail}");
    let detail = refused(&Side::new(), &b);
    assert!(detail.contains("UnknownIssuer"), "{detail}");
}

#[test]
fn certificates_whose_time_is_over_are_not_believed() {
    let old = authority().sign(|params| params.not_after = date_time_ymd(2001, 1, 1));
    let a = with(Some(&old));
    let detail = refused(&Side::new(), &a);
    assert!(detail.contains("xpired"), "{detail}");
    let detail = refused(&a, &Side::new());
    assert!(detail.contains("CertificateExpired"), "{detail}");
}

#[test]
fn a_certificate_has_to_be_good_for_the_address_that_is_called() {
    let elsewhere = |params: &mut CertificateParams| {
        let there = "192.0.2.1".parse().unwrap();
        params.subject_alt_names = vec![SanType::IpAddress(there)];
    };
    let a = with(Some(&authority().sign(elsewhere)));
    let b = Side::new();
    let detail = refused(&b, &a);
    assert!(detail.contains("not valid for"), "{detail}");
    // It may call, and be answered.
    exchange(&a, &Side::new());
}

#[test]
fn with_a_name_certificates_have_to_have_it_at_both_ends() {
    let named = |cert: &str, peers: &str| {
        let mut papers = authority().sign(|params| {
            *params = CertificateParams::new([cert.to_owned()]).unwrap();
        });
        papers.name = peers.to_owned();
        with(Some(&papers))
    };
    let sides = [
        named("fabric.test", "fabric.test"),
        named("fabric.test", "fabric.test"),
    ];
    exchange(&sides[0], &sides[1]);
    exchange(&sides[1], &sides[0]);
    let other = named("other.test", "fabric.test");
    let detail = refused(&sides[0], &other);
    assert!(detail.contains("not valid for"), "{detail}");
    let detail = refused(&other, &sides[0]);
    assert!(detail.contains("ends TLS"), "{detail}");
}

/// What comes of a connection by somebody with these certificates, or none, and these releases.
fn stranger(
    door: &Side,
    papers: Option<&Papers>,
    releases: &[&'static SupportedProtocolVersion],
) -> String {
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_file(&authority().file).unwrap();
    roots.add(root).unwrap();
    let crypto = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(crypto)
        .with_protocol_versions(releases)
        .unwrap()
        .with_root_certificates(roots);
    let config = match papers {
        None => config.with_no_client_auth(),
        Some(papers) => {
            let chain = vec![CertificateDer::from_pem_file(&papers.cert).unwrap()];
            let key = PrivateKeyDer::from_pem_file(&papers.key).unwrap();
            config.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let mut stream = TcpStream::connect(door.addr()).unwrap();
    let name = ServerName::from(door.addr().ip());
    let mut connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let asked = std::thread::spawn(move || {
        let mut tls = rustls::Stream::new(&mut connection, &mut stream);
        let said = tls.write_all(&crate::doors::greeting(1000));
        let mut answer = [0; 40];
        match said.and_then(|()| tls.read_exact(&mut answer)) {
            Ok(()) => "an answer".to_owned(),
            Err(cause) => cause.to_string(),
        }
    });
    crate::side::until(|| {
        door.drive();
        asked.is_finished().then_some(())
    });
    asked.join().unwrap()
}

#[test]
fn strangers_without_a_certificate_or_with_an_older_release_are_turned_out() {
    let (a, b) = (Side::new(), Side::new());
    let said = stranger(&a, None, &[&version::TLS13]);
    assert!(said.contains("CertificateRequired"), "{said}");
    let said = stranger(&a, Some(usual()), &[&version::TLS12]);
    assert!(said.contains("ProtocolVersion"), "{said}");
    exchange(&a, &b);
    // Whoever has what it takes is answered.
    let said = stranger(&a, Some(usual()), &[&version::TLS12, &version::TLS13]);
    assert_eq!(said, "an answer");
}
