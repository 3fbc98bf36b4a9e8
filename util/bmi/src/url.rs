//! The string form of addresses: `scheme://host:port`.
//!
//! A zone in the scheme (`tcp-fast://host:port`) is ignored, and alternatives are separated by
//! commas. White space ends the text. The scheme's method interprets host and port.

use std::fmt;

use crate::{Code, Error};

/// Size of the longest text in bytes, with C's terminating zero.
pub const MAX_ADDR_LEN: usize = 2048;

/// One alternative of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// The scheme, which selects the method.
    pub scheme: String,
    /// The host; `None` for `NULL` and for an empty host.
    pub host: Option<String>,
    /// The port; `None` if there is none.
    pub port: Option<u16>,
}

impl Url {
    /// Parses a text with all its alternatives.
    ///
    /// # Errors
    /// [`Code::EINVAL`] for a text that is no address, [`Code::ENAMETOOLONG`].
    pub fn parse_all(text: &str) -> Result<Vec<Self>, Error> {
        if text.len() >= MAX_ADDR_LEN {
            let message = format!("an address of {} bytes is too long", text.len());
            return Err(Error::new(Code::ENAMETOOLONG, message));
        }
        canonical(text).split(',').map(Self::parse).collect()
    }

    fn parse(text: &str) -> Result<Self, Error> {
        let invalid =
            |reason: &str| Error::new(Code::EINVAL, format!("address {text:?}: {reason}"));
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| invalid("expected scheme://host:port, such as tcp://node7:3334"))?;
        let scheme = scheme.split('-').next().unwrap_or_default();
        if scheme.is_empty() {
            return Err(invalid("the scheme is missing"));
        }
        let (host, port) = match rest.rsplit_once(':') {
            // The colons of an IPv6 address are inside brackets.
            Some((host, port)) if !port.contains(']') => (host, Some(port)),
            _ => (rest, None),
        };
        let port = match port {
            Some(port) => Some(port.parse().map_err(|_| {
                invalid(&format!("the port {port:?} is no number from 0 to 65535"))
            })?),
            None => None,
        };
        if host.starts_with('[') != host.ends_with(']') {
            return Err(invalid(
                "a bracket of the host is missing: [address]:port is expected",
            ));
        }
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() && port.is_none() {
            return Err(invalid("there is neither host nor port"));
        }
        Ok(Self {
            scheme: scheme.to_owned(),
            host: (!host.is_empty() && host != "NULL").then(|| host.to_owned()),
            port,
        })
    }
}

/// The text up to the first white space.
pub(crate) fn canonical(text: &str) -> &str {
    text.split_ascii_whitespace().next().unwrap_or_default()
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.host.as_deref().unwrap_or("NULL");
        if host.contains(':') {
            write!(f, "{}://[{host}]", self.scheme)?
        } else {
            write!(f, "{}://{host}", self.scheme)?
        }
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_one(text: &str) -> Url {
        Url::parse_all(text).unwrap().remove(0)
    }

    #[test]
    fn addresses_have_a_scheme_a_host_and_a_port() {
        let url = parse_one("tcp://node7:3334");
        assert_eq!((url.scheme.as_str(), url.port), ("tcp", Some(3334)));
        assert_eq!(url.host.as_deref(), Some("node7"));
        assert_eq!(
            parse_one("tcp://NULL:3334\n").to_string(),
            "tcp://NULL:3334"
        );
        assert_eq!(parse_one("tcp-zone1://node7:1").scheme, "tcp");
        assert_eq!(parse_one("shm://name").port, None);
        assert_eq!(parse_one("tcp://[::1]:80").host.as_deref(), Some("::1"));
        assert_eq!(parse_one("tcp://[::1]:80").to_string(), "tcp://[::1]:80");
        let urls = Url::parse_all("ib://a:1,tcp://a:2 trailing").unwrap();
        assert_eq!(urls.len(), 2);
        assert_eq!(urls[1].port, Some(2));
    }

    #[test]
    fn an_invalid_address_is_refused_with_its_text() {
        for text in [
            "",
            "node7",
            "://a:1",
            "tcp://",
            "tcp://a:b",
            "tcp://a:70000",
            "tcp://[::1:80",
            "tcp://::1]",
            "tcp://a:1,,",
        ] {
            let error = Url::parse_all(text).unwrap_err();
            assert_eq!(error.code(), Code::EINVAL, "{text:?}");
        }
        let long = format!("tcp://{}:1", "x".repeat(MAX_ADDR_LEN));
        assert_eq!(
            Url::parse_all(&long).unwrap_err().code(),
            Code::ENAMETOOLONG
        );
        assert!(
            Url::parse_all("tcp://a:b")
                .unwrap_err()
                .to_string()
                .contains("tcp://a:b")
        );
    }
}
