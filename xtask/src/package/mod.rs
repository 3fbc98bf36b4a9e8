//! Packages, made of an installation below a staging folder: `cargo xtask deb` and
//! `cargo xtask wheel`.

mod deb;
mod libraries;
mod staging;
mod wheel;

pub(crate) use deb::deb;
pub(crate) use wheel::wheel;
