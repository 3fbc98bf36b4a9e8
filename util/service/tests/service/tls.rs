//! Connections with TLS, and certificates that this file issues.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use selvedge_service::{Error, Event, Listener, Options, PeerCredentials, connect_with};

use crate::{bounded, pattern};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> &'static Authority {
    static AUTHORITY: OnceLock<Authority> = OnceLock::new();
    AUTHORITY.get_or_init(|| {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    })
}

fn write(name: &str, text: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(std::process::id().to_string());
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{name}.pem"));
    std::fs::write(&path, text).unwrap();
    path
}

/// Options with a certificate for this name, issued by `authority`.
fn options(authority: &Authority, file: &str, name: &str) -> Options {
    let params = CertificateParams::new([name.to_owned(), "fabric.test".to_owned()]).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    let certificate = write(&format!("{file}-cert"), &certificate.pem());
    let key = write(&format!("{file}-key"), &key.serialize_pem());
    let authorities = write(&format!("{file}-ca"), &authority.pem());
    let short = Duration::from_millis(1500);
    Options::new()
        .tls(certificate, key, authorities)
        .tls_name("fabric.test")
        .connect_timeout(short)
}

#[test]
fn both_sides_have_the_verified_name_of_the_other_with_tls() {
    bounded(|| {
        let server = options(authority(), "server", "server.test");
        let listener = Listener::bind_with("tcp://127.0.0.1:0", &server).unwrap();
        let address = listener.addresses().unwrap().remove(0);
        thread::scope(|scope| {
            scope.spawn(move || {
                let client = options(authority(), "client", "client.test");
                let connection = connect_with(&address, &client).wait().unwrap();
                assert_eq!(names(connection.identity()), ["server.test", "fabric.test"]);
                for len in [0, 8, 4064, 4065, 1 << 20] {
                    let request = pattern(len, 1);
                    let response = connection.request(&request).wait().unwrap();
                    assert!(*response == *request, "{len} bytes");
                }
            });
            let event = listener.event().wait().unwrap();
            let Event::Connected(peer) = event else {
                panic!("{event:?}");
            };
            assert_eq!(names(peer.identity()), ["client.test", "fabric.test"]);
            crate::serve_until_lost(&listener, <[u8]>::to_vec);
        });
    });
}

fn names(identity: Option<&PeerCredentials>) -> Vec<String> {
    match identity {
        Some(PeerCredentials::Certificate { names, .. }) => names.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_client_without_a_trusted_certificate_is_no_client() {
    bounded(|| {
        let server = options(authority(), "strict", "server.test");
        let listener = Listener::bind_with("tcp://127.0.0.1:0", &server).unwrap();
        let address = listener.addresses().unwrap().remove(0);
        let other = CertificateParams::default();
        let other = CertifiedIssuer::self_signed(other, KeyPair::generate().unwrap()).unwrap();
        let short = Duration::from_millis(1500);
        for client in [
            options(&other, "unknown", "client.test"),
            Options::new().connect_timeout(short),
        ] {
            thread::scope(|scope| {
                let failed = scope.spawn(|| connect_with(&address, &client).wait().unwrap_err());
                while !failed.is_finished() {
                    let event = listener.event().wait_timeout(Duration::from_millis(20));
                    assert!(matches!(event, Err(Error::Timeout(_))), "{event:?}");
                }
                let error = failed.join().unwrap();
                assert!(matches!(error, Error::NoServer { .. }), "{error}");
            });
        }
    });
}
