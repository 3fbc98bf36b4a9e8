//! The tcp provider, with the parameters of a test.

use selvedge::info::EpType;
use selvedge::{Address, Caps, Hints, Registry};

use crate::common::Sut;

/// Whether small messages may overtake a large message: a stream keeps the order of messages.
pub(crate) const SMALL_MAY_OVERTAKE_LARGE: bool = false;

/// An address without a port.
pub(crate) fn invalid_address() -> Address {
    Address::Ip("127.0.0.1:0".parse().unwrap())
}

/// Every protocol for large messages, selected by `FI_TCP_MAX_SAVED_SIZE`.
pub(crate) const PROTOCOLS: [&str; 2] = ["eager", "rendezvous"];

/// Sizes on both sides of every threshold: copied, inject, read ahead, read directly.
pub(crate) const SIZES: [usize; 20] = [
    0,
    1,
    7,
    8,
    39,
    64,
    1024,
    2047,
    2048,
    2049,
    4095,
    4096,
    4097,
    16384,
    65535,
    65536,
    65537,
    200_000,
    1 << 20,
    (1 << 20) + 1,
];

/// Hints with all capabilities for messages and tags.
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

/// Returns the provider with these parameters.
pub(crate) fn with_params(params: &[(&str, &str)], hints: &Hints) -> Sut {
    let default_params = [("FI_TCP_IFACE", "lo".to_owned())];
    let requested = params.iter().map(|&(name, value)| (name, value.to_owned()));
    let all = default_params
        .into_iter()
        .chain(crate::variables())
        .chain(requested);
    let registry = Registry::new()
        .with(&selvedge_tcp::PROVIDER)
        .with_params(all.collect());
    Sut::new(registry, "tcp", hints)
}

/// Returns the provider with its defaults.
pub(crate) fn with_defaults() -> Sut {
    with_params(&[], &hints())
}

/// Returns the provider with one protocol for large messages.
pub(crate) fn with_protocol(protocol: &str) -> Sut {
    let params: &[_] = match protocol {
        "rendezvous" => &[("FI_TCP_MAX_SAVED_SIZE", "4096")],
        _ => &[],
    };
    with_params(params, &hints())
}
