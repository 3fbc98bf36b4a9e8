//! Source addresses of endpoints.

use std::sync::Arc;

use selvedge::info::EpType;
use selvedge::{Address, Errno, Error, Info, eq};
use selvedge_testkit::local::{LocalEndpoint, open_domain};

use crate::endpoint::{CopyingEndpoint, info};

fn info_with_source(text: &str, ep_type: EpType) -> Info {
    let mut info = info(ep_type, &[]);
    info.src_addr = Some(text.parse().unwrap());
    info
}

/// Opens each kind of endpoint at an invalid source address, and returns the errors.
fn open_errors(text: &str) -> [Error; 4] {
    let open = |ep_type| {
        let info = info_with_source(text, ep_type);
        let eq = info.fabric().unwrap().eq(&eq::Attr::default()).unwrap();
        let domain = open_domain(&info).unwrap();
        LocalEndpoint::try_open(&domain, |_, config| config.eq = Some(eq)).unwrap_err()
    };
    let scalable = info_with_source(text, EpType::Rdm);
    let scalable = scalable.open().unwrap().scalable_endpoint(&scalable);
    let passive = info_with_source(text, EpType::Msg);
    let fabric = passive.fabric().unwrap();
    let eq = fabric.eq(&eq::Attr::default()).unwrap();
    let passive = fabric.passive_endpoint(&passive, Arc::clone(&eq));
    [
        open(EpType::Rdm),
        open(EpType::Msg),
        scalable.unwrap_err(),
        passive.unwrap_err(),
    ]
}

#[test]
fn an_invalid_source_address_fails_with_its_value() {
    for text in ["localhost:24601", "127.0.0.1:99999", "fi_shm://here"] {
        for error in open_errors(text) {
            assert_eq!(error.errno(), Errno::Inval, "{error}");
            assert!(error.to_string().contains(text), "{error}");
        }
    }
}

#[test]
fn a_source_address_may_be_a_string() {
    let side = CopyingEndpoint::open(&info_with_source(
        "fi_sockaddr_in://127.0.0.1:0",
        EpType::Rdm,
    ));
    let Ok(Address::Ip(addr)) = side.ep.address() else {
        panic!("{:?}", side.ep.address());
    };
    assert!(addr.ip().is_loopback() && addr.port() != 0, "{addr}");
}
