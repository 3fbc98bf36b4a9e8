//! The pages of the book, whose Rust examples are compiled and run as tests. Further checks are in
//! `tests/`.

#[doc = include_str!("../../../docs/SERVICE.md")]
pub mod service {}

#[doc = include_str!("../../../docs/FIRST-HOUR.md")]
pub mod first_hour {}

#[doc = include_str!("../../../docs/FROM-LIBFABRIC.md")]
pub mod from_libfabric {}

#[doc = include_str!("../../../docs/PROVIDERS.md")]
pub mod providers {}

#[doc = include_str!("../../../docs/SHM.md")]
pub mod shm {}

#[doc = include_str!("../../../docs/TCP-UDP.md")]
pub mod tcp_udp {}

#[doc = include_str!("../../../docs/A-PROVIDER.md")]
pub mod a_provider {}

#[doc = include_str!("../../../docs/TUNING.md")]
pub mod tuning {}
