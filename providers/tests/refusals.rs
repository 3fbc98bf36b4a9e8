//! What a provider lacks is refused in a sentence that names the provider.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use selvedge::info::RxAttr;
use selvedge::param::Params;
use selvedge::{Errno, Error, Hints, Info, eq};

/// The longest refusal that still is a sentence.
const SENTENCE: usize = 100;

fn info(provider: &str) -> Info {
    let registry = selvedge_providers::builtin().with_params(Params::default());
    let hints = Hints::new().provider(provider);
    registry.infos(&hints).unwrap().remove(0)
}

/// Checks a refusal of what is not there.
#[track_caller]
fn is_a_sentence(provider: &str, refused: &Error) {
    assert_eq!(refused.errno(), Errno::NoSys, "{refused}");
    let what = refused.message();
    assert!(what.starts_with(provider), "{what}");
    assert!(what.len() < SENTENCE, "{} bytes: {what}", what.len());
}

#[test]
fn the_name_of_a_domain_is_its_provider_and_few_words() {
    for provider in ["shm", "tcp", "udp", "lnx"] {
        let domain = info(provider).open().unwrap();
        let name = format!("{domain:?}");
        assert!(name.starts_with(&format!("{provider} domain ")), "{name}");
        assert!(name.len() < SENTENCE / 2, "{} bytes: {name}", name.len());
    }
}

#[test]
fn what_a_domain_lacks_is_refused_in_a_sentence() {
    for provider in ["udp", "lnx"] {
        let info = info(provider);
        let domain = info.open().unwrap();
        is_a_sentence(provider, &domain.srx(&RxAttr::default()).unwrap_err());
        is_a_sentence(provider, &domain.scalable_endpoint(&info).unwrap_err());
    }
}

#[test]
fn what_a_fabric_lacks_is_refused_in_a_sentence() {
    for provider in ["shm", "udp", "lnx"] {
        let info = info(provider);
        let fabric = info.fabric().unwrap();
        let eq = fabric.eq(&eq::Attr::default()).unwrap();
        let refused = fabric.passive_endpoint(&info, eq).unwrap_err();
        is_a_sentence(provider, &refused);
    }
}
