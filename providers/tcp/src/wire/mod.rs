//! What two endpoints say to each other over a connection: libfabric's protocol, and what Selvedge
//! adds where both ends know it. docs/WIRE.md has every byte.
//!
//! Nothing here does I/O. What comes in is copied, parsed into closed types, and checked, before
//! anybody acts on it. No byte of a peer's makes this panic: that is checked by lints.

#![cfg_attr(
    not(test),
    deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)
)]

pub(crate) mod frame;
#[cfg(test)]
mod fuzz;
pub(crate) mod hello;
pub(crate) mod proof;

/// Bytes that no peer of ours would send. It costs the peer its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProtocolError(pub(crate) &'static str);

/// The order of the bytes of numbers on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ByteOrder {
    /// Both ends have the same, and nothing is turned round.
    #[default]
    Native,
    /// They differ, and both use that of networks.
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

/// `N` bytes from `at` on; zeros beyond the end, which callers have checked.
pub(crate) fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let tail = bytes.get(at..).and_then(<[u8]>::first_chunk);
    tail.copied().unwrap_or([0; N])
}

/// The byte at a place; zero beyond the end.
pub(crate) fn byte_at(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}
