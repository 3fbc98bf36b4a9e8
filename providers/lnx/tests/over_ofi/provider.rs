//! The lnx provider over links of libfabric, with the parameters of a test.

use std::sync::LazyLock;

use selvedge::info::EpType;
use selvedge::{Address, Caps, Hints, Registry};
use selvedge_lnx::Lnx;

use crate::common::Sut;

/// Whether small messages may overtake a large message: large messages use a rendezvous.
pub(crate) const SMALL_MAY_OVERTAKE_LARGE: bool = true;

/// An address of the tcp link, which is not an address of lnx.
pub(crate) fn invalid_address() -> Address {
    Address::Ip("127.0.0.1:1".parse().unwrap())
}

/// One link to peers on the local host. The name is that of a protocol of shm, which shared tests
/// use.
pub(crate) const PROTOCOLS: [&str; 1] = ["auto"];

/// Sizes below and above every threshold of lnx (the size of a frame) and of the links.
pub(crate) const SIZES: [usize; 20] = [
    0,
    1,
    7,
    8,
    39,
    40,
    64,
    1000,
    2000,
    2048,
    4047,
    4048,
    4049,
    4096,
    16384,
    16385,
    65537,
    200_000,
    1 << 20,
    (1 << 20) + 1,
];

/// Hints for every capability of untagged and tagged messages.
pub(crate) fn hints() -> Hints {
    Hints::new()
        .caps(
            Caps::MSG
                | Caps::TAGGED
                | Caps::SOURCE
                | Caps::DIRECTED_RECV
                | Caps::TAGGED_DIRECTED_RECV,
        )
        .ep_type(EpType::Rdm)
}

static LNX: Lnx = Lnx::new(&selvedge_shm::PROVIDER, &selvedge_tcp::PROVIDER)
    .with_unwatched(&[&selvedge_ofi::PROVIDER]);

/// The provider of libfabric that both links use.
pub(crate) const LIBRARY_LINK: &str = "tcp;ofi_rxm;ofi";

/// Whether the system has a libfabric with the provider.
pub(crate) fn has_library() -> bool {
    static HAS_LIBRARY: LazyLock<bool> = LazyLock::new(|| {
        let params = [("FI_OFI_LIBRARY", "system")].into_iter().collect();
        let registry = Registry::new()
            .with(&selvedge_ofi::PROVIDER)
            .with_params(params);
        registry
            .infos(&Hints::anything().provider(LIBRARY_LINK))
            .is_ok()
    });
    *HAS_LIBRARY
}

pub(crate) fn registry() -> Registry {
    Registry::new()
        .with(&LNX)
        .with_params([("FI_TCP_IFACE", "lo")].into_iter().collect())
}

/// The provider over a link of libfabric for peers on this host, or over these links.
fn over(links: &str, params: &[(&str, &str)], hints: &Hints) -> Sut {
    let links = if has_library() { links } else { "tcp+tcp" };
    let own = [
        ("FI_TCP_IFACE", "lo"),
        ("FI_OFI_LIBRARY", "system"),
        ("FI_LNX_PROV_LINKS", links),
    ];
    let registry = Registry::new()
        .with(&LNX)
        .with_params(own.iter().chain(params).copied().collect());
    Sut::new(registry, "lnx", hints)
}

/// Returns the provider with these parameters.
pub(crate) fn with_params(params: &[(&str, &str)], hints: &Hints) -> Sut {
    over("tcp;ofi_rxm;ofi+tcp", params, hints)
}

/// Returns the provider with its defaults.
pub(crate) fn with_defaults() -> Sut {
    with_params(&[], &hints())
}

/// The provider with the link of libfabric.
pub(crate) fn with_protocol(_protocol: &str) -> Sut {
    with_defaults()
}
