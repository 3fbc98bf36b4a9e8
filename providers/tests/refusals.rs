//! Unsupported calls fail with one sentence that names the provider.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use selvedge::info::RxAttr;
use selvedge::param::Params;
use selvedge::{Errno, Error, Hints, Info, eq};

/// The maximum length of a one-sentence error in bytes.
const SENTENCE_MAX: usize = 100;

fn info(provider: &str) -> Info {
    let registry = selvedge_providers::builtin().with_params(Params::default());
    let hints = Hints::new().provider(provider);
    registry.infos(&hints).unwrap().remove(0)
}

/// Checks that an error is `NoSys` with one sentence that begins with the provider's name.
#[track_caller]
fn expect_one_sentence(provider: &str, error: &Error) {
    assert_eq!(error.errno(), Errno::NoSys, "{error}");
    let text = error.message();
    assert!(text.starts_with(provider), "{text}");
    assert!(text.len() < SENTENCE_MAX, "{} bytes: {text}", text.len());
}

#[test]
fn the_debug_name_of_a_domain_starts_with_its_provider() {
    for provider in ["shm", "tcp", "udp", "lnx"] {
        let domain = info(provider).open().unwrap();
        let name = format!("{domain:?}");
        assert!(name.starts_with(&format!("{provider} domain ")), "{name}");
        assert!(
            name.len() < SENTENCE_MAX / 2,
            "{} bytes: {name}",
            name.len()
        );
    }
}

#[test]
fn unsupported_domain_calls_fail_with_one_sentence() {
    for provider in ["udp", "lnx"] {
        let info = info(provider);
        let domain = info.open().unwrap();
        expect_one_sentence(provider, &domain.srx(&RxAttr::default()).unwrap_err());
        expect_one_sentence(provider, &domain.scalable_endpoint(&info).unwrap_err());
    }
}

#[test]
fn unsupported_fabric_calls_fail_with_one_sentence() {
    for provider in ["shm", "udp", "lnx"] {
        let info = info(provider);
        let fabric = info.fabric().unwrap();
        let eq = fabric.eq(&eq::Attr::default()).unwrap();
        let error = fabric.passive_endpoint(&info, eq).unwrap_err();
        expect_one_sentence(provider, &error);
    }
}
