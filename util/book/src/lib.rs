//! The pages of the book, so that what they show in Rust is compiled and run with the tests. What
//! else can be checked of them is in `tests/`.

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
