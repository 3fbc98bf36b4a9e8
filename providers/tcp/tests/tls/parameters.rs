//! Parameters of TLS: invalid ones make discovery fail, and each domain may have its own.

use std::sync::Arc;

use selvedge::info::EpType;
use selvedge::{Errno, Hints, Registry};

use crate::certificates::{authority, default_certificate, write_pem};
use crate::endpoint::{CopyingEndpoint, exchange, info};

/// Returns the error of discovery with one parameter changed.
fn open_error(name: &str, value: &str) -> String {
    let variables = default_certificate().variables().into_iter();
    let all = variables.map(|(key, default)| {
        if key == name {
            (key, value.to_owned())
        } else {
            (key, default)
        }
    });
    let registry = Registry::new()
        .with(&selvedge_tcp::PROVIDER)
        .with_params(all.collect());
    registry.infos(&Hints::new()).unwrap_err().to_string()
}

#[test]
fn bad_parameters_are_named_with_their_values() {
    let empty = write_pem("empty", "");
    let empty = empty.to_str().unwrap();
    let foreign = authority().issue();
    let table = [
        ("FI_TCP_TLS", "sometimes", "require"),
        ("FI_TCP_TLS_CERT", "", "is not set"),
        ("FI_TCP_TLS_KEY", "", "is not set"),
        ("FI_TCP_TLS_CA", "", "is not set"),
        ("FI_TCP_TLS_CERT", "/nowhere/at/all", "No such file"),
        ("FI_TCP_TLS_KEY", "/nowhere/at/all", "No such file"),
        ("FI_TCP_TLS_CA", "/nowhere/at/all", "No such file"),
        ("FI_TCP_TLS_CERT", empty, "no certificate"),
        ("FI_TCP_TLS_KEY", empty, "no private key"),
        ("FI_TCP_TLS_CA", empty, "no certificate"),
        ("FI_TCP_TLS_KEY", foreign.key.to_str().unwrap(), "TLS_CERT"),
        ("FI_TCP_TLS_NAME", "not a name", "neither"),
    ];
    for (name, value, reason) in table {
        let text = open_error(name, value);
        for expected in [name, value, reason] {
            assert!(text.contains(expected), "{name}={value}: {text}");
        }
    }
}

/// Domains of one process may have different parameters.
#[test]
fn a_program_sets_the_parameters_of_one_domain() {
    let params = selvedge::param::Params::from_env();
    let params = default_certificate()
        .variables()
        .into_iter()
        .fold(params, |params, (name, value)| params.set(name, value));
    let registry = Registry::new().with(&selvedge_tcp::PROVIDER);
    let hints = info(EpType::Rdm, &[]);
    let hints = Hints::new()
        .caps(hints.caps)
        .ep_type(EpType::Rdm)
        .src_addr("127.0.0.1:0".parse().unwrap());
    let secured = registry.with_params(params).infos(&hints).unwrap();
    let (a, b) = (CopyingEndpoint::open(&secured[0]), CopyingEndpoint::new());
    exchange(&a, &b);
    let plain = Registry::new()
        .with(&selvedge_tcp::PROVIDER)
        .with_params([("FI_TCP_PEER_TIMEOUT", "100ms")].into_iter().collect());
    let c = CopyingEndpoint::open(&plain.infos(&hints).unwrap()[0]);
    let to = c.insert_endpoint(&a);
    c.tsend(to, 1, b"in the clear", 1).unwrap();
    let error = c.wait(&[&a, &b]).unwrap_err();
    assert_eq!(error.errno, Errno::ConnRefused, "{error:?}");
    assert!(Arc::strong_count(a.domain()) > 0);
}
