//! `Name`: the name of an endpoint, by which its peers connect to it.
//!
//! The default name is `pid:domain_idx:endpoint_idx`. An address is a name alone, or a name behind
//! `fi_shm://` or `fi_ns://`; the scheme is not part of the name.

use std::fmt;
use std::hash::{BuildHasher, RandomState};

use selvedge::{Address, Errno, Error};

use crate::smr::layout::NAME_MAX;

/// The scheme in printed addresses.
const SCHEME: &str = "fi_shm://";

/// Separates the name of a scalable endpoint from the number of a context.
const CONTEXT: char = '#';

/// The length of the longest address in bytes, including the terminating zero.
pub(crate) const ADDRESS_MAX: usize = SCHEME.len() + NAME_MAX + 1;

/// The name of an endpoint, without a scheme.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Name(Box<str>);

impl Name {
    /// Returns the name of an endpoint that is opened with the source address `address`. If the
    /// address is a wildcard, `default` completes the name.
    ///
    /// # Errors
    /// As [`Self::plain`].
    pub(crate) fn of_source(
        address: &Address,
        default: impl FnOnce() -> Self,
    ) -> Result<Self, Error> {
        let name = Self::try_from(address)?;
        match name.wildcard_prefix() {
            Some(prefix) => Self::plain(&format!("{prefix}{}", default())),
            None => Ok(name),
        }
    }

    /// Returns the fixed prefix of a wildcard name; `None` for another name.
    fn wildcard_prefix(&self) -> Option<&str> {
        let prefix = self.0.strip_suffix(ANY)?;
        (prefix.is_empty() || prefix.ends_with(':')).then_some(prefix)
    }

    /// Returns the default name of an endpoint of this process.
    pub(crate) fn of_endpoint(domain: u32, endpoint: u32) -> Self {
        Self(format!("{}:{domain}:{endpoint}", std::process::id()).into())
    }

    /// Returns this name with a random suffix, which no other process can have guessed and bound.
    ///
    /// # Errors
    /// [`Errno::Inval`] when the result is too long.
    pub(crate) fn with_random_suffix(&self) -> Result<Self, Error> {
        Self::plain(&format!("{self}-{:016x}", random()))
    }

    /// Parses a name without a scheme, as a hello contains it.
    ///
    /// # Errors
    /// [`Errno::Inval`] for an empty, too long or unprintable name, or one with a scheme.
    pub(crate) fn plain(text: &str) -> Result<Self, Error> {
        let printable = text.bytes().all(|b| b.is_ascii_graphic());
        if text.is_empty() || text.len() > NAME_MAX || !printable || text.contains("://") {
            let reason = format!(
                "shm address {text:?}: a name has 1 to {NAME_MAX} printable ASCII characters \
                 behind an optional fi_shm:// or fi_ns://"
            );
            return Err(Error::new(Errno::Inval, reason));
        }
        Ok(Self(text.into()))
    }

    /// Returns the name of a context of the scalable endpoint with this name. Context 0 has the
    /// endpoint's name.
    ///
    /// # Errors
    /// [`Errno::Inval`] when the result is too long.
    pub(crate) fn of_context(&self, context: usize) -> Result<Self, Error> {
        match context {
            0 => Ok(self.clone()),
            context => Self::plain(&format!("{self}{CONTEXT}{context}")),
        }
    }

    /// Splits the name of a context into the scalable endpoint's name and the context's number.
    /// `None` for another name.
    pub(crate) fn as_context(&self) -> Option<(Self, usize)> {
        let (endpoint, number) = self.0.rsplit_once(CONTEXT)?;
        let endpoint = Self::plain(endpoint).ok()?;
        let context = number.parse().ok()?;
        (endpoint.of_context(context).ok()? == *self).then_some((endpoint, context))
    }

    /// Returns the name without a scheme.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the address that peers insert into their address vectors.
    pub(crate) fn to_address(&self) -> Address {
        Address::Str(format!("{SCHEME}{self}"))
    }
}

/// The last character of a wildcard source address. Discovery returns such an address if no service
/// is given; each endpoint that is opened with it gets a unique name.
const ANY: &str = "*";

/// Whether a source address is a wildcard.
pub(crate) fn is_wildcard(address: &Address) -> bool {
    Name::try_from(address).is_ok_and(|name| name.wildcard_prefix().is_some())
}

/// Returns the source address for a node and a service; a wildcard if there is no service.
pub(crate) fn source_address(node: Option<&str>, service: Option<&str>) -> Address {
    let node_alone = node.filter(|node| service.is_none() && !node.contains("://"));
    let any = || Address::Str(format!("{SCHEME}{ANY}"));
    match node_alone {
        Some(node) => Address::Str(format!("{SCHEME}{node}:{ANY}")),
        None => service_address(node, service).unwrap_or_else(any),
    }
}

/// Returns the address for a node and a service: `node:service`, or the only one of them. `None` if
/// there is neither.
pub(crate) fn service_address(node: Option<&str>, service: Option<&str>) -> Option<Address> {
    let text = match (node, service) {
        (None, None) => return None,
        (Some(name), None) | (None, Some(name)) => name.to_owned(),
        (Some(node), Some(service)) => format!("{node}:{service}"),
    };
    Some(Address::Str(if text.contains("://") {
        text
    } else {
        format!("{SCHEME}{text}")
    }))
}

impl TryFrom<&Address> for Name {
    type Error = Error;

    fn try_from(address: &Address) -> Result<Self, Error> {
        let Some(text) = address.as_str() else {
            let reason = format!("address {address} is not a string address (FI_ADDR_STR)");
            return Err(Error::new(Errno::Inval, reason));
        };
        let text = text.strip_suffix('\0').unwrap_or(text);
        let plain = text
            .strip_prefix(SCHEME)
            .or_else(|| text.strip_prefix("fi_ns://"));
        Self::plain(plain.unwrap_or(text))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns a random number from the standard library's hasher, which the system seeds.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Result<Name, Error> {
        Name::try_from(&Address::Str(text.into()))
    }

    #[test]
    fn schemes_are_not_part_of_the_name() {
        for text in ["fi_shm://7:0:1", "fi_ns://7:0:1", "7:0:1", "7:0:1\0"] {
            assert_eq!(name(text).unwrap().as_str(), "7:0:1");
        }
        assert_eq!(
            name("7:0:1").unwrap().to_address().to_string(),
            "fi_shm://7:0:1"
        );
    }

    #[test]
    fn the_name_of_a_context_contains_that_of_its_endpoint() {
        let endpoint = name("7:0:1").unwrap();
        assert_eq!(endpoint.of_context(0).unwrap(), endpoint);
        assert_eq!(endpoint.as_context(), None);
        let third = endpoint.of_context(3).unwrap();
        assert_eq!(third.as_str(), "7:0:1#3");
        assert_eq!(third.as_context(), Some((endpoint, 3)));
        for no_context in ["7:0:1#", "7#0", "7#03", "7#+3", "#3", "7#3x"] {
            assert_eq!(name(no_context).unwrap().as_context(), None, "{no_context}");
        }
        let longest = name(&"x".repeat(NAME_MAX)).unwrap();
        assert!(longest.of_context(1).is_err());
    }

    #[test]
    fn the_error_for_a_malformed_address_contains_it() {
        for text in [
            "",
            "fi_shm://",
            "a b",
            "fi_tcp://x",
            "a\0b",
            "\u{fc}",
            &"x".repeat(89),
        ] {
            let error = name(text).unwrap_err();
            assert_eq!(error.errno(), Errno::Inval);
        }
        let error = name("a b").unwrap_err().to_string();
        assert!(error.contains("\"a b\""), "{error}");
    }
}
