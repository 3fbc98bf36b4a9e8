//! `RemoteAddr`: an address in a peer's registered memory. `RemoteRegion`: a region of such memory,
//! and its encoding for messages.

use crate::rma::RmaIov;
use crate::{Errno, Error, FiAddr, Result};

/// An address in a peer's registered memory, such as a [`crate::owned::SharedRegion`] of that peer.
#[expect(
    clippy::exhaustive_structs,
    reason = "three numbers that callers write"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddr {
    /// The peer.
    pub peer: FiAddr,
    /// The address of the first byte, as in [`RmaIov::addr`].
    pub addr: u64,
    /// The region's key.
    pub key: u64,
}

impl RemoteAddr {
    /// The `len` bytes from this address on.
    pub(super) const fn iov(&self, len: usize) -> RmaIov {
        RmaIov {
            addr: self.addr,
            len,
            key: self.key,
        }
    }
}

/// A region of memory as its owner describes it to peers: the first address, the length and the
/// key. [`crate::owned::SharedRegion::remote`] returns it.
///
/// The owner sends the bytes of [`Self::to_bytes`] in a message; a peer restores the region by
/// `RemoteRegion::try_from(&message[..])`, and addresses a byte by [`Self::at`]. The bytes are the
/// same on every machine. Programs that use serde serialize the array of bytes.
///
/// A peer may describe memory that does not exist: an access of it completes with an error.
///
/// # Examples
///
/// ```
/// use selvedge::FiAddr;
/// use selvedge::owned::RemoteRegion;
///
/// let region = RemoteRegion::new(0x1000, 64, 7);
/// let received = RemoteRegion::try_from(&region.to_bytes()[..])?;
/// assert_eq!(received, region);
/// let word = received.at(FiAddr(0), 8, 8)?;
/// assert_eq!((word.addr, word.key), (0x1008, 7));
/// # Ok::<(), selvedge::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteRegion {
    addr: u64,
    len: u64,
    key: u64,
}

impl RemoteRegion {
    /// The number of bytes of [`Self::to_bytes`].
    pub const ENCODED_LEN: usize = 32;

    /// The version of the encoding.
    const VERSION: u64 = 1;

    /// Describes `len` bytes from the remote address `addr` on ([`RmaIov::addr`]).
    pub const fn new(addr: u64, len: u64, key: u64) -> Self {
        Self { addr, len, key }
    }

    /// Returns the length in bytes.
    pub const fn len(self) -> u64 {
        self.len
    }

    /// Returns whether the region has no bytes.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Returns the address of the `len` bytes at `offset`, at the peer `owner`.
    ///
    /// # Errors
    /// [`Errno::Inval`] for bytes beyond the region's end.
    pub fn at(self, owner: FiAddr, offset: u64, len: u64) -> Result<RemoteAddr, Error> {
        let end = offset.checked_add(len).filter(|end| *end <= self.len);
        match (end, self.addr.checked_add(offset)) {
            (Some(_), Some(addr)) => Ok(RemoteAddr {
                peer: owner,
                addr,
                key: self.key,
            }),
            _ => {
                let size = self.len;
                let message = format!(
                    "{len} bytes at the offset {offset} of a remote region of {size} bytes are \
                     beyond its end; choose a smaller offset or length"
                );
                Err(Error::new(Errno::Inval, message))
            }
        }
    }

    /// Returns the encoding: four little-endian words of 64 bits, which are the version 1, the
    /// address, the length and the key.
    pub fn to_bytes(self) -> [u8; Self::ENCODED_LEN] {
        let words = [Self::VERSION, self.addr, self.len, self.key];
        let mut bytes = [0; Self::ENCODED_LEN];
        for (to, word) in bytes.chunks_exact_mut(size_of::<u64>()).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

impl TryFrom<&[u8]> for RemoteRegion {
    type Error = Error;

    /// Restores a region from the bytes of [`Self::to_bytes`].
    ///
    /// # Errors
    /// [`Errno::Inval`] for another number of bytes or another version of the encoding, or for a
    /// region that extends beyond the last address.
    fn try_from(bytes: &[u8]) -> Result<Self, Error> {
        let (words, rest) = bytes.as_chunks();
        let &[version, addr, len, key] = words else {
            return Err(wrong_length(bytes.len()));
        };
        if !rest.is_empty() {
            return Err(wrong_length(bytes.len()));
        }
        let [version, addr, len, key] = [version, addr, len, key].map(u64::from_le_bytes);
        if version != Self::VERSION {
            let message = format!(
                "the encoding of a remote region has the version {version}, and this side reads \
                 version {}; let both sides use the same version of Selvedge",
                Self::VERSION
            );
            return Err(Error::new(Errno::Inval, message));
        }
        if addr.checked_add(len).is_none() {
            let message = format!(
                "a remote region of {len} bytes at the address {addr:#x} extends beyond the last \
                 address; the sender is faulty"
            );
            return Err(Error::new(Errno::Inval, message));
        }
        Ok(Self { addr, len, key })
    }
}

fn wrong_length(len: usize) -> Error {
    let message = format!(
        "the encoding of a remote region has {len} bytes instead of {}; pass exactly the bytes of \
         `RemoteRegion::to_bytes`",
        RemoteRegion::ENCODED_LEN
    );
    Error::new(Errno::Inval, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A region whose words have different bytes.
    const REGION: RemoteRegion = RemoteRegion::new(0x0102_0304_0506_0708, 0x1112, 0x2122_2324);

    fn error_text(bytes: &[u8]) -> String {
        let error = RemoteRegion::try_from(bytes).unwrap_err();
        assert_eq!(error.errno(), Errno::Inval);
        error.to_string()
    }

    #[test]
    fn the_encoding_of_a_remote_region_is_fixed() {
        let expected = [
            [1, 0, 0, 0, 0, 0, 0, 0],
            [8, 7, 6, 5, 4, 3, 2, 1],
            [0x12, 0x11, 0, 0, 0, 0, 0, 0],
            [0x24, 0x23, 0x22, 0x21, 0, 0, 0, 0],
        ];
        assert_eq!(REGION.to_bytes(), expected.as_flattened());
        assert_eq!(
            RemoteRegion::try_from(expected.as_flattened()).ok(),
            Some(REGION)
        );
    }

    #[test]
    fn an_encoding_of_another_length_or_version_is_refused() {
        let bytes = REGION.to_bytes();
        for len in (0..bytes.len()).chain([33, 40]) {
            let mut wrong = bytes.to_vec();
            wrong.resize(len, 0);
            let text = error_text(&wrong);
            assert!(
                text.contains(&format!("{len} bytes instead of 32")),
                "{text}"
            );
        }
        let mut newer = bytes;
        newer[0] = 2;
        assert!(error_text(&newer).contains("version 2"));
        let endless = RemoteRegion::new(u64::MAX, 2, 0);
        assert!(error_text(&endless.to_bytes()).contains("beyond the last address"));
    }

    #[test]
    fn an_address_is_within_its_region() {
        let region = RemoteRegion::new(100, 10, 7);
        let at = |offset, len| {
            region
                .at(FiAddr(3), offset, len)
                .map_err(|error| error.errno())
        };
        let expected = RemoteAddr {
            peer: FiAddr(3),
            addr: 104,
            key: 7,
        };
        assert_eq!(at(4, 6), Ok(expected));
        for (offset, len) in [(4, 7), (11, 0), (u64::MAX, 1), (1, u64::MAX)] {
            assert_eq!(at(offset, len), Err(Errno::Inval));
        }
    }
}
