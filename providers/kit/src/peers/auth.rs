//! Authorization keys (`auth_key` of fi_endpoint(3) and fi_domain(3)): only endpoints with equal
//! keys communicate.
//!
//! A key is never logged or sent, and is compared in constant time.

pub mod proof;

use std::fmt;
use std::hint::black_box;

use selvedge::{Errno, Error, Info};

/// The largest length of a key in bytes.
pub const KEY_MAX: usize = 64;

/// A key, or the absence of one. An absent key equals only an absent key.
#[derive(Clone, Copy)]
pub struct AuthKey {
    len: usize,
    /// Zero-filled.
    bytes: [u8; KEY_MAX],
}

impl AuthKey {
    /// The key of an endpoint, or the key of its domain if the endpoint has none.
    ///
    /// # Errors
    /// [`Errno::Inval`] for a key longer than [`KEY_MAX`].
    pub fn of(info: &Info) -> Result<Self, Error> {
        let ep_key = &info.ep_attr.auth_key;
        let key = if ep_key.is_empty() {
            &info.domain_attr.auth_key
        } else {
            ep_key
        };
        Self::new(key).ok_or_else(|| {
            let message = format!(
                "auth_key has {} bytes, but at most {KEY_MAX} are supported",
                key.len()
            );
            Error::new(Errno::Inval, message)
        })
    }

    /// No key.
    pub const fn none() -> Self {
        Self {
            len: 0,
            bytes: [0; KEY_MAX],
        }
    }

    /// Whether there is no key.
    pub const fn is_none(&self) -> bool {
        self.len == 0
    }

    /// Makes a key of these bytes. `None` if there are more than [`KEY_MAX`].
    pub fn new(key: &[u8]) -> Option<Self> {
        let mut bytes = [0; KEY_MAX];
        bytes.get_mut(..key.len())?.copy_from_slice(key);
        let len = key.len();
        Some(Self { len, bytes })
    }

    /// The bytes of the key. They must not be logged or sent.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Compares keys in a time that does not depend on the number of equal bytes.
impl PartialEq for AuthKey {
    fn eq(&self, other: &Self) -> bool {
        let pairs = self.bytes.iter().zip(&other.bytes);
        let differing = pairs.fold(0, |bits, (a, b)| black_box(bits | (a ^ b)));
        differing == 0 && self.len == other.len
    }
}

impl Eq for AuthKey {}

impl fmt::Debug for AuthKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AuthKey({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(bytes: &[u8]) -> AuthKey {
        AuthKey::new(bytes).unwrap()
    }

    #[test]
    fn keys_are_equal_byte_by_byte_and_in_length() {
        assert_eq!(key(b"abc"), key(b"abc"));
        for other in [&b""[..], b"ab", b"abc\0", b"abd", b"bbc", &[0; KEY_MAX]] {
            assert_ne!(key(b"abc"), key(other));
        }
        assert_ne!(key(b""), key(b"\0"));
        assert!(AuthKey::new(&[1; KEY_MAX]).is_some());
        assert!(AuthKey::new(&[1; KEY_MAX + 1]).is_none());
    }

    #[test]
    fn a_key_is_not_shown() {
        assert_eq!(format!("{:?}", key(b"secret")), "AuthKey(6 bytes)");
    }

    #[test]
    fn an_endpoint_without_a_key_has_its_domain_s() -> Result<(), Error> {
        let mut info = Info::default();
        assert_eq!(AuthKey::of(&info)?, key(b""));
        info.domain_attr.auth_key = b"domain".into();
        assert_eq!(AuthKey::of(&info)?, key(b"domain"));
        info.ep_attr.auth_key = b"own".into();
        assert_eq!(AuthKey::of(&info)?, key(b"own"));
        info.ep_attr.auth_key = vec![1; KEY_MAX + 1];
        assert_eq!(AuthKey::of(&info).unwrap_err().errno(), Errno::Inval);
        Ok(())
    }
}
