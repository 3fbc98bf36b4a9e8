//! The wire protocol of a connection: libfabric's, and Selvedge's extensions between two Selvedge
//! endpoints. docs/WIRE.md describes every byte.
//!
//! This module does no I/O. Received bytes are copied, parsed into closed types and checked before
//! they have any effect. No byte of a peer can make this code panic; lints check that.

#![cfg_attr(
    not(test),
    deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)
)]

pub(crate) mod frame;
#[cfg(test)]
mod fuzz;
pub(crate) mod hello;
pub(crate) mod proof;

/// A violation of the protocol by a peer, as a noun phrase. A violation ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProtocolError(pub(crate) &'static str);

/// The byte order of the numbers on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ByteOrder {
    /// Both sides have the same byte order and use it.
    #[default]
    Native,
    /// The sides differ, and both use network byte order.
    Network,
}

impl ByteOrder {
    pub(crate) fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Native => u16::from_ne_bytes(bytes),
            Self::Network => u16::from_be_bytes(bytes),
        }
    }

    pub(crate) fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Self::Native => u64::from_ne_bytes(bytes),
            Self::Network => u64::from_be_bytes(bytes),
        }
    }

    pub(crate) fn put_u16(self, number: u16) -> [u8; 2] {
        match self {
            Self::Native => number.to_ne_bytes(),
            Self::Network => number.to_be_bytes(),
        }
    }

    pub(crate) fn put_u64(self, number: u64) -> [u8; 8] {
        match self {
            Self::Native => number.to_ne_bytes(),
            Self::Network => number.to_be_bytes(),
        }
    }
}

/// Returns the `N` bytes at an offset. Bytes beyond the end would be zeros; callers check the
/// length before.
pub(crate) fn bytes_at<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let chunk = bytes.get(offset..).and_then(<[u8]>::first_chunk);
    chunk.copied().unwrap_or([0; N])
}

/// Returns the byte at an offset, or zero beyond the end.
pub(crate) fn byte_at(bytes: &[u8], offset: usize) -> u8 {
    bytes.get(offset).copied().unwrap_or(0)
}
