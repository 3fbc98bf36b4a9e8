//! The lnx provider over shm and tcp, with the parameters of a test.

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

/// The two links to peers on the local host: shm (`auto`) and tcp (`bounce`). The names are those
/// of shm's protocols, which shared tests use.
pub(crate) const PROTOCOLS: [&str; 2] = ["auto", "bounce"];

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

static NEAR_SHM: Lnx = Lnx::new(&selvedge_shm::PROVIDER, &selvedge_tcp::PROVIDER);
static NEAR_TCP: Lnx = Lnx::new(&selvedge_tcp::PROVIDER, &selvedge_shm::PROVIDER);

pub(crate) fn registry() -> Registry {
    Registry::new()
        .with(&NEAR_SHM)
        .with_params([("FI_TCP_IFACE", "lo")].into_iter().collect())
}

fn over(lnx: &'static Lnx, params: &[(&str, &str)], hints: &Hints) -> Sut {
    let own = [("FI_TCP_IFACE", "lo")];
    let registry = Registry::new()
        .with(lnx)
        .with_params(own.iter().chain(params).copied().collect());
    Sut::new(registry, "lnx", hints)
}

/// Returns the provider with these parameters.
pub(crate) fn with_params(params: &[(&str, &str)], hints: &Hints) -> Sut {
    over(&NEAR_SHM, params, hints)
}

/// Returns the provider with its defaults.
pub(crate) fn with_defaults() -> Sut {
    with_params(&[], &hints())
}

/// The provider with one of the links in [`PROTOCOLS`].
pub(crate) fn with_protocol(protocol: &str) -> Sut {
    let lnx = match protocol {
        "bounce" => &NEAR_TCP,
        _ => &NEAR_SHM,
    };
    over(lnx, &[], &hints())
}
