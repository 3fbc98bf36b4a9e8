//! Authorization keys over TLS: neither replaces the other.

use selvedge::info::EpType;
use selvedge::{Errno, Info};

use crate::side::{Side, exchange, info};

pub(crate) fn keyed_info(ep_type: EpType, key: &[u8]) -> Info {
    let mut info = info(ep_type, &[("FI_TCP_PEER_TIMEOUT", "100ms")]);
    info.ep_attr.auth_key = key.into();
    info
}

fn keyed(key: &[u8]) -> Side {
    Side::open(&keyed_info(EpType::Rdm, key))
}

#[test]
fn valid_certificates_do_not_replace_the_key() {
    let (a, b, c) = (keyed(b"one"), keyed(b"one"), keyed(b"other"));
    exchange(&a, &b);
    exchange(&b, &a);
    for (from, to) in [(&a, &c), (&c, &a)] {
        let addr = from.insert_peer(to);
        from.tsend(addr, 1, b"to nobody", 1).unwrap();
        let error = from.wait(&[to]).unwrap_err();
        assert_eq!(error.errno, Errno::ConnRefused, "{error:?}");
        assert!(error.detail.contains("auth_key"), "{error:?}");
    }
    exchange(&a, &b);
}
