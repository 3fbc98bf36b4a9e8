//! Peers that TLS rejects: operations fail in bounded time with an error that names the peer and
//! the reason, and other connections are not affected.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rcgen::{CertificateParams, SanType, date_time_ymd};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion, version};
use selvedge::info::EpType;
use selvedge::{Caps, Errno, Hints, Registry};
use selvedge_testkit::local::until;

use crate::certificates::{Authority, Certificate, authority, default_certificate};
use crate::endpoint::{CopyingEndpoint, exchange};

/// Opens a side with this certificate, or without TLS.
pub(crate) fn open_with(certificate: Option<&Certificate>) -> CopyingEndpoint {
    let variables = certificate.map(Certificate::variables).unwrap_or_default();
    let timeout = [("FI_TCP_PEER_TIMEOUT", "300ms".to_owned())];
    let registry = Registry::new()
        .with(&selvedge_tcp::PROVIDER)
        .with_params(variables.into_iter().chain(timeout).collect());
    let hints = Hints::new()
        .caps(Caps::MSG | Caps::TAGGED | Caps::SOURCE | Caps::DIRECTED_RECV)
        .ep_type(EpType::Rdm)
        .src_addr("127.0.0.1:0".parse().unwrap());
    CopyingEndpoint::open(&registry.infos(&hints).unwrap()[0])
}

/// Sends a message that must fail, while two other sides exchange messages. Returns the error text.
#[track_caller]
fn expect_send_error(sender: &CopyingEndpoint, receiver: &CopyingEndpoint) -> String {
    let (c, d) = (CopyingEndpoint::new(), CopyingEndpoint::new());
    exchange(&c, &d);
    let addr = sender.insert_endpoint(receiver);
    sender.tsend(addr, 1, b"refused", 1).unwrap();
    let error = sender.wait(&[receiver, &c]).unwrap_err();
    assert_eq!((error.errno, error.src), (Errno::ConnRefused, addr));
    let name = receiver.addr().to_string();
    assert!(error.detail.contains(&name), "{}", error.detail);
    exchange(&c, &d);
    exchange(&d, &c);
    error.detail
}

/// Checks that messages fail in both directions, and that the error of a message from `a` to `b`
/// contains `reason`.
#[track_caller]
fn expect_errors_in_both_directions(a: &CopyingEndpoint, b: &CopyingEndpoint, reason: &str) {
    let detail = expect_send_error(a, b);
    assert!(detail.contains(reason), "{detail}");
    expect_send_error(b, a);
}

#[test]
fn a_plaintext_and_a_tls_peer_fail_to_connect_with_the_reason() {
    let (plain, secured) = (open_with(None), CopyingEndpoint::new());
    expect_errors_in_both_directions(&plain, &secured, "uses TLS");
    let (secured_too, other) = (open_with(Some(default_certificate())), open_with(None));
    let detail = expect_send_error(&secured_too, &other);
    assert!(detail.contains("HandshakeFailure"), "{detail}");
    exchange(&plain, &other);
    exchange(&secured, &secured_too);
}

#[test]
fn certificates_of_another_authority_are_rejected() {
    let foreign = Authority::new();
    let a = open_with(Some(&foreign.issue()));
    expect_errors_in_both_directions(&a, &CopyingEndpoint::new(), "UnknownIssuer");
    // This side trusts the default authority, and presents a certificate of another authority.
    let mut certificate = foreign.issue();
    certificate.ca.clone_from(&authority().file);
    let b = open_with(Some(&certificate));
    let detail = expect_send_error(&b, &CopyingEndpoint::new());
    assert!(detail.contains("ended TLS"), "{detail}");
    let detail = expect_send_error(&CopyingEndpoint::new(), &b);
    assert!(detail.contains("UnknownIssuer"), "{detail}");
}

#[test]
fn expired_certificates_are_rejected() {
    let old = authority().sign(|params| params.not_after = date_time_ymd(2001, 1, 1));
    let a = open_with(Some(&old));
    let detail = expect_send_error(&CopyingEndpoint::new(), &a);
    assert!(detail.contains("xpired"), "{detail}");
    let detail = expect_send_error(&a, &CopyingEndpoint::new());
    assert!(detail.contains("CertificateExpired"), "{detail}");
}

#[test]
fn a_certificate_must_match_the_address_connected_to() {
    let other_address = |params: &mut CertificateParams| {
        let address = "192.0.2.1".parse().unwrap();
        params.subject_alt_names = vec![SanType::IpAddress(address)];
    };
    let a = open_with(Some(&authority().sign(other_address)));
    let b = CopyingEndpoint::new();
    let detail = expect_send_error(&b, &a);
    assert!(detail.contains("not valid for"), "{detail}");
    // The side can connect to other peers.
    exchange(&a, &CopyingEndpoint::new());
}

#[test]
fn certificates_on_both_sides_must_have_the_configured_name() {
    let with_names = |cert: &str, peers: &str| {
        let mut certificate = authority().sign(|params| {
            *params = CertificateParams::new([cert.to_owned()]).unwrap();
        });
        certificate.name = peers.to_owned();
        open_with(Some(&certificate))
    };
    let sides = [
        with_names("fabric.test", "fabric.test"),
        with_names("fabric.test", "fabric.test"),
    ];
    exchange(&sides[0], &sides[1]);
    exchange(&sides[1], &sides[0]);
    let other = with_names("other.test", "fabric.test");
    let detail = expect_send_error(&sides[0], &other);
    assert!(detail.contains("not valid for"), "{detail}");
    let detail = expect_send_error(&other, &sides[0]);
    assert!(detail.contains("ended TLS"), "{detail}");
}

/// Connects a TLS client that is no endpoint, with or without a certificate, and with these TLS
/// versions. Returns the text of the error, or "a response".
fn raw_tls_client(
    side: &CopyingEndpoint,
    certificate: Option<&Certificate>,
    versions: &[&'static SupportedProtocolVersion],
) -> String {
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_file(&authority().file).unwrap();
    roots.add(root).unwrap();
    let crypto = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(crypto)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    let config = match certificate {
        None => config.with_no_client_auth(),
        Some(certificate) => {
            let chain = vec![CertificateDer::from_pem_file(&certificate.cert).unwrap()];
            let key = PrivateKeyDer::from_pem_file(&certificate.key).unwrap();
            config.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let mut stream = TcpStream::connect(side.addr()).unwrap();
    let name = ServerName::from(side.addr().ip());
    let mut connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let client = std::thread::spawn(move || {
        let mut tls = rustls::Stream::new(&mut connection, &mut stream);
        let written = tls.write_all(&crate::unauthenticated::hello(1000));
        let mut response = [0; 40];
        match written.and_then(|()| tls.read_exact(&mut response)) {
            Ok(()) => "a response".to_owned(),
            Err(cause) => cause.to_string(),
        }
    });
    until(|| {
        side.progress();
        client.is_finished().then_some(())
    });
    client.join().unwrap()
}

#[test]
fn clients_without_a_certificate_or_with_an_older_tls_version_are_rejected() {
    let (a, b) = (CopyingEndpoint::new(), CopyingEndpoint::new());
    let outcome = raw_tls_client(&a, None, &[&version::TLS13]);
    assert!(outcome.contains("CertificateRequired"), "{outcome}");
    let outcome = raw_tls_client(&a, Some(default_certificate()), &[&version::TLS12]);
    assert!(outcome.contains("ProtocolVersion"), "{outcome}");
    exchange(&a, &b);
    // A client with a certificate and TLS 1.3 gets a response.
    let outcome = raw_tls_client(
        &a,
        Some(default_certificate()),
        &[&version::TLS12, &version::TLS13],
    );
    assert_eq!(outcome, "a response");
}
