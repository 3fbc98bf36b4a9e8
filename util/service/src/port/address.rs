//! `ServiceAddress`: a parsed `shm://NAME` or `tcp://HOST:PORT`, and lists of them.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};

use selvedge::Address;

use crate::Error;

/// The longest name over shm, in bytes.
const NAME_MAX: usize = 80;

/// The transport of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Shm,
    Tcp,
}

impl Scheme {
    /// The provider's name.
    pub(crate) const fn provider(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Tcp => "tcp",
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.provider())
    }
}

/// The address of a service by one transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceAddress {
    pub(crate) scheme: Scheme,
    pub(crate) address: Address,
    /// The text that the application wrote.
    pub(crate) text: String,
}

impl ServiceAddress {
    /// Parses addresses that are separated by commas, such as `shm://kv,tcp://host:7000`.
    ///
    /// # Errors
    /// [`Error::Address`] for anything else.
    pub(crate) fn parse_list(text: &str) -> Result<Vec<Self>, Error> {
        text.split(',').map(|one| Self::parse(one.trim())).collect()
    }

    fn parse(text: &str) -> Result<Self, Error> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| {
            invalid(
                text,
                "it has no scheme: write shm://NAME or tcp://HOST:PORT",
            )
        })?;
        let (scheme, address) = match scheme {
            "shm" => (Scheme::Shm, name(text, rest)?),
            "tcp" => (Scheme::Tcp, Address::Ip(host(text, rest)?)),
            _ => {
                let reason = format!("the scheme {scheme:?} is unknown: write shm:// or tcp://");
                return Err(invalid(text, &reason));
            }
        };
        let text = text.to_owned();
        Ok(Self {
            scheme,
            address,
            text,
        })
    }
}

fn name(text: &str, name: &str) -> Result<Address, Error> {
    let is_valid = !name.is_empty()
        && name.len() <= NAME_MAX
        && name
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b',');
    if !is_valid {
        let reason = format!("a name has 1 to {NAME_MAX} printable characters without blanks");
        return Err(invalid(text, &reason));
    }
    Ok(Address::Str(format!("fi_shm://{name}")))
}

fn host(text: &str, host: &str) -> Result<SocketAddr, Error> {
    let addresses = host.to_socket_addrs();
    let mut addresses =
        addresses.map_err(|error| invalid(text, &format!("{error}; write tcp://HOST:PORT")))?;
    addresses
        .next()
        .ok_or_else(|| invalid(text, "the host has no address"))
}

fn invalid(address: &str, reason: &str) -> Error {
    Error::Address {
        address: address.to_owned(),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_an_address_for_each_transport() {
        let list = ServiceAddress::parse_list("shm://kv, tcp://127.0.0.1:7000").unwrap();
        assert_eq!(list[0].address, Address::Str("fi_shm://kv".into()));
        assert_eq!(list[1].address, "127.0.0.1:7000".parse().unwrap());
    }

    #[test]
    fn an_unusable_address_is_refused_with_its_text_and_the_reason() {
        for (text, reason) in [
            ("kv", "no scheme"),
            ("http://kv", "\"http\" is unknown"),
            ("shm://", "1 to 80"),
            ("shm://a b", "without blanks"),
            ("tcp://nowhere", "write tcp://HOST:PORT"),
        ] {
            let error = ServiceAddress::parse_list(text).unwrap_err().to_string();
            assert!(error.contains(text) && error.contains(reason), "{error}");
        }
    }
}
