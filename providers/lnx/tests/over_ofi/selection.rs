//! The selection of links, and peers that cannot be reached.

use selvedge::{Address, Errno};
use selvedge_testkit::skip::{Need, skip};

use crate::common::{MessageEndpoint, Tx, pattern};
use crate::provider::{self, LIBRARY_LINK, has_library, hints};

/// The error of discovery with these links; `library` is the value of `FI_OFI_LIBRARY`.
fn refusal(links: &str, library: &str) -> String {
    let params = [("FI_LNX_PROV_LINKS", links), ("FI_OFI_LIBRARY", library)];
    let registry = provider::registry().with_params(params.into_iter().collect());
    registry.infos(&hints()).unwrap_err().to_string()
}

#[test]
fn a_selection_of_links_that_cannot_be_read_names_value_and_remedy() {
    for (links, reason) in [
        ("shm", "expected two links, NEAR+FAR, such as shm+ofi"),
        ("shm+verbs", "no link has the provider \"verbs\""),
        (
            "shm;ofi_rxm+tcp",
            "no link has the provider \"shm;ofi_rxm\"",
        ),
        ("shm+tcp+ofi", "no link has the provider \"tcp+ofi\""),
    ] {
        let error = refusal(links, "");
        assert!(error.contains(reason), "{links}: {error}");
        let has_names = error.contains("links are shm, tcp, ofi");
        assert_eq!(has_names, links != "shm", "{error}");
    }
}

#[test]
fn a_link_over_a_library_that_is_off_names_the_parameter() {
    let error = refusal("shm+ofi", "");
    assert!(error.contains("a link over ofi"), "{error}");
    assert!(
        error.contains("because ofi is off: set FI_OFI_LIBRARY"),
        "{error}"
    );
}

#[test]
fn a_provider_of_the_library_that_cannot_be_a_link_is_refused_with_a_reason() {
    if !has_library() {
        return skip(
            Need::Libfabric,
            "the system has no libfabric with tcp;ofi_rxm",
        );
    }
    for (links, reason) in [
        ("shm+absent;ofi", "a link over absent;ofi"),
        ("shm+tcp;ofi_rxm;ofi:no-such-domain", "no-such-domain"),
    ] {
        let error = refusal(links, "system");
        assert!(error.contains(reason), "{links}: {error}");
    }
}

#[test]
fn a_selection_of_links_requests_lnx() {
    if !has_library() {
        return skip(
            Need::Libfabric,
            "the system has no libfabric with tcp;ofi_rxm",
        );
    }
    let links = format!("shm+{LIBRARY_LINK}");
    let params = [("FI_LNX_PROV_LINKS", &*links), ("FI_OFI_LIBRARY", "system")];
    let registry = provider::registry().with_params(params.into_iter().collect());
    let info = registry.infos(&hints()).unwrap().remove(0);
    assert_eq!(info.fabric_attr.prov_name, "lnx");
    let Some(Address::Str(name)) = info.src_addr else {
        panic!("the info has no name");
    };
    assert!(name.contains("|fi_shm://"), "{name}");
}

/// A name on another host, at a port where no process listens.
fn absent_peer(side: &MessageEndpoint) -> Address {
    let name = side.ep.address().unwrap().to_string();
    let (near, _) = name.trim_end_matches('\0').rsplit_once('|').unwrap();
    let (_, near) = near.split_once('|').unwrap();
    Address::Str(format!("lnx://0000000000000abc|{near}|127.0.0.1:1"))
}

#[test]
fn operations_to_a_peer_that_cannot_be_reached_fail_after_the_timeout() {
    if !has_library() {
        return skip(
            Need::Libfabric,
            "the system has no libfabric with tcp;ofi_rxm",
        );
    }
    let links = format!("shm+{LIBRARY_LINK}");
    let params = [
        ("FI_LNX_PROV_LINKS", &*links),
        ("FI_LNX_CONNECT_TIMEOUT", "50ms"),
    ];
    let side = provider::with_params(&params, &hints()).endpoint();
    let peer = side.av.insert_one(&absent_peer(&side)).unwrap();
    for (len, context) in [(8, 1), (100_000, 2)] {
        side.send(&Tx::tagged(peer, 7, &pattern(1, len)).context(context));
    }
    let mut contexts = [0; 2].map(|_| {
        let done = side.wait(&[]);
        let error = done.error();
        assert_eq!((error.errno, done.src), (Errno::HostUnreach, peer));
        assert!(error.detail.contains("|127.0.0.1:1"), "{}", error.detail);
        assert!(error.detail.contains("50ms"), "{}", error.detail);
        done.context()
    });
    contexts.sort_unstable();
    assert_eq!(contexts, [1, 2]);
}
