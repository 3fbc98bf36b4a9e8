//! Authorization keys over TLS: neither the key nor the certificate replaces the other.

use selvedge::info::EpType;
use selvedge::{Errno, Info};

use crate::endpoint::{CopyingEndpoint, exchange, info};

pub(crate) fn keyed_info(ep_type: EpType, key: &[u8]) -> Info {
    let mut info = info(ep_type, &[("FI_TCP_PEER_TIMEOUT", "100ms")]);
    info.ep_attr.auth_key = key.into();
    info
}

fn open_keyed(key: &[u8]) -> CopyingEndpoint {
    CopyingEndpoint::open(&keyed_info(EpType::Rdm, key))
}

#[test]
fn valid_certificates_do_not_replace_the_key() {
    let (a, b, c) = (open_keyed(b"one"), open_keyed(b"one"), open_keyed(b"other"));
    exchange(&a, &b);
    exchange(&b, &a);
    for (sender, receiver) in [(&a, &c), (&c, &a)] {
        let addr = sender.insert_endpoint(receiver);
        sender.tsend(addr, 1, b"refused", 1).unwrap();
        let error = sender.wait(&[receiver]).unwrap_err();
        assert_eq!(error.errno, Errno::ConnRefused, "{error:?}");
        assert!(error.detail.contains("auth_key"), "{error:?}");
    }
    exchange(&a, &b);
}
