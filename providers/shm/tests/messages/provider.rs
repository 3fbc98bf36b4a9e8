//! The shm provider, with the parameters of a test.

use selvedge::info::EpType;
use selvedge::{Address, Caps, Hints, Registry};

use crate::common::Sut;

/// Whether small messages may overtake a large message in transfer.
pub(crate) const SMALL_MAY_OVERTAKE_LARGE: bool = true;

/// An address of another format.
pub(crate) fn invalid_address() -> Address {
    Address::Ip("127.0.0.1:1".parse().unwrap())
}

/// Every protocol of large messages, by the value of `FI_SHM_PROTOCOL`.
pub(crate) const PROTOCOLS: [&str; 3] = ["auto", "cma", "bounce"];

/// Sizes on both sides of every threshold: inline with and without data, inject, segment, step.
pub(crate) const SIZES: [usize; 20] = [
    0,
    1,
    7,
    8,
    39,
    40,
    41,
    47,
    48,
    49,
    64,
    4095,
    4096,
    4097,
    16383,
    16384,
    16385,
    65537,
    1 << 20,
    (1 << 20) + 1,
];

/// Hints for all capabilities of messages and tagged messages.
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
    let registry = Registry::new()
        .with(&selvedge_shm::PROVIDER)
        .with_params(params.iter().copied().collect());
    Sut::new(registry, "shm", hints)
}

/// Returns the provider with its defaults.
pub(crate) fn with_defaults() -> Sut {
    with_params(&[], &hints())
}

/// Returns the provider with one protocol for large messages.
pub(crate) fn with_protocol(protocol: &str) -> Sut {
    with_params(&[("FI_SHM_PROTOCOL", protocol)], &hints())
}
