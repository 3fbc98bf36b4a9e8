//! `ServiceAddress`: a parsed `shm://NAME`, `tcp://HOST:PORT` or `ofi://ADDRESS/PROVIDER`, and lists
//! of them.

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
    /// A provider of another libfabric.
    Ofi,
}

impl Scheme {
    const fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Tcp => "tcp",
            Self::Ofi => "ofi",
        }
    }

    /// Whether the transport reports that a peer has died, and who has sent a message of a peer
    /// without an index. A libfabric of others does neither.
    pub(crate) const fn reports_peers(self) -> bool {
        matches!(self, Self::Shm | Self::Tcp)
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The address of a service by one transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceAddress {
    pub(crate) scheme: Scheme,
    /// The name of the provider.
    pub(crate) provider: String,
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
                "it has no scheme: write shm://NAME, tcp://HOST:PORT or ofi://HOST:PORT/PROVIDER",
            )
        })?;
        let (scheme, provider, address) = match scheme {
            "shm" => (Scheme::Shm, scheme.to_owned(), name(text, rest)?),
            "tcp" => (
                Scheme::Tcp,
                scheme.to_owned(),
                Address::Ip(host(text, rest)?),
            ),
            "ofi" => of_library(text, rest)?,
            _ => {
                let reason =
                    format!("the scheme {scheme:?} is unknown: write shm://, tcp:// or ofi://");
                return Err(invalid(text, &reason));
            }
        };
        let text = text.to_owned();
        Ok(Self {
            scheme,
            provider,
            address,
            text,
        })
    }
}

/// An address of a provider of libfabric, such as `192.0.2.7:7000/verbs;ofi_rxm`. The last slash
/// precedes the provider.
fn of_library(text: &str, rest: &str) -> Result<(Scheme, String, Address), Error> {
    const REMEDY: &str = "write ofi://HOST:PORT/PROVIDER, such as ofi://192.0.2.7:7000/tcp;ofi_rxm";
    let (address, provider) = rest
        .rsplit_once('/')
        .filter(|(address, provider)| !address.ends_with('/') && !provider.is_empty())
        .ok_or_else(|| {
            invalid(
                text,
                &format!("it names no provider of libfabric: {REMEDY}"),
            )
        })?;
    let parsed = address.parse::<Address>();
    let address = match parsed.map_err(|error| invalid(text, &format!("{error}; {REMEDY}")))? {
        // A text without a scheme of its own is the name of a host.
        Address::Str(host_name) if !host_name.contains("://") => {
            Address::Ip(host(text, &host_name)?)
        }
        address => address,
    };
    Ok((Scheme::Ofi, format!("{provider};ofi"), address))
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
    fn an_address_of_a_library_names_the_provider() {
        let parse = |text| ServiceAddress::parse_list(text).unwrap().remove(0);
        let address = parse("ofi://127.0.0.1:7000/tcp;ofi_rxm");
        assert_eq!(address.provider, "tcp;ofi_rxm;ofi");
        assert_eq!(address.address, "127.0.0.1:7000".parse().unwrap());
        let address = parse("ofi://fi_shm://7/shm");
        assert_eq!(address.provider, "shm;ofi");
        assert_eq!(address.address, Address::Str("fi_shm://7".into()));
        let address = parse("ofi://FI_ADDR_EFA:00ff/efa");
        assert_eq!(address.address.to_string(), "FI_ADDR_EFA:00ff");
    }

    #[test]
    fn an_unusable_address_is_refused_with_its_text_and_the_reason() {
        for (text, reason) in [
            ("kv", "no scheme"),
            ("http://kv", "\"http\" is unknown"),
            ("shm://", "1 to 80"),
            ("shm://a b", "without blanks"),
            ("tcp://nowhere", "write tcp://HOST:PORT"),
            ("ofi://127.0.0.1:7000", "names no provider"),
            ("ofi://127.0.0.1:7000/", "names no provider"),
            ("ofi://fi_shm://1", "names no provider"),
        ] {
            let error = ServiceAddress::parse_list(text).unwrap_err().to_string();
            assert!(error.contains(text) && error.contains(reason), "{error}");
        }
    }
}
