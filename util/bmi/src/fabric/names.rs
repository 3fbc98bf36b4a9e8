//! Translation of URLs into the names of a provider.
//!
//! A provider that reaches only this machine has no hosts. For such a provider a port names a
//! process of this machine, and a host without a port is a name by itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nix::sys::utsname::uname;
use selvedge::{AddrFormat, Address, AddressVector, Caps, Endpoint, FiAddr, Info};
use selvedge_kit::ip::interface;

use crate::url::Url;
use crate::{Code, Error, Result};

/// The node name under which providers without hosts find ports.
const LOCAL_NODE: &str = "bmi";
/// Ports that are tried when the provider does not choose one.
const PORT_RANGE: std::ops::Range<u16> = 49152..u16::MAX;

/// Returns whether the provider ignores hosts.
pub(super) fn is_local(info: &Info) -> bool {
    info.addr_format == AddrFormat::Str && !info.caps.contains(Caps::REMOTE_COMM)
}

/// Returns whether a host is this machine: `localhost`, the machine's name, or the address of a
/// local interface.
fn is_this_machine(host: &str) -> bool {
    let address = host.split('%').next().unwrap_or_default();
    match address.parse() {
        Ok(ip) => is_local_address(ip),
        Err(_) => {
            host == "localhost" || uname().is_ok_and(|name| is_local_name(name.nodename(), host))
        }
    }
}

fn is_local_address(ip: IpAddr) -> bool {
    let is_listed = || {
        let all = interface::all(None).unwrap_or_default();
        all.iter().any(|interface| interface.addr.ip() == ip)
    };
    ip.is_loopback() || ip.is_unspecified() || is_listed()
}

/// Returns whether two names denote the same machine. One of the names may have a domain.
fn is_local_name(local: &std::ffi::OsStr, host: &str) -> bool {
    let Some(local) = local.to_str() else {
        return false;
    };
    let is_short_for = |short: &str, long: &str| {
        long.strip_prefix(short)
            .is_some_and(|domain| domain.is_empty() || domain.starts_with('.'))
    };
    is_short_for(local, host) || is_short_for(host, local)
}

/// The host of a URL, `localhost` by default.
fn host_of(url: &Url) -> &str {
    url.host.as_deref().unwrap_or("localhost")
}

/// The port of a URL; `None` for port 0 and for no port.
fn port_of(url: &Url) -> Option<u16> {
    url.port.filter(|port| *port != 0)
}

/// The ports to try for a process that listens at `url`.
pub(super) fn ports(url: &Url, info: &Info) -> Box<dyn Iterator<Item = Option<u16>>> {
    let is_named = url
        .host
        .as_deref()
        .is_some_and(|host| !is_this_machine(host));
    match url.port {
        None if is_local(info) && is_named => Box::new(std::iter::once(None)),
        Some(0) | None if is_local(info) => {
            let first =
                PORT_RANGE.start + (std::process::id() % u32::from(PORT_RANGE.len() as u16)) as u16;
            Box::new(
                (first..PORT_RANGE.end)
                    .chain(PORT_RANGE.start..first)
                    .map(Some),
            )
        }
        port => Box::new(std::iter::once(port.or(Some(0)))),
    }
}

/// Node and service of the local address under which peers find `url`.
pub(super) fn local_name(
    url: &Url,
    info: &Info,
    bind_specific: bool,
) -> (Option<String>, Option<String>) {
    let port = url.port.map(|port| port.to_string());
    match (is_local(info), &port) {
        (true, Some(_)) => (Some(LOCAL_NODE.to_owned()), port),
        // With a node alone the provider would choose the rest of the name.
        (true, None) => (None, url.host.clone()),
        (false, _) if bind_specific => (url.host.clone(), port),
        (false, _) => (wildcard_for(url).map(str::to_owned), port),
    }
}

/// The wildcard address in the family of the URL's host. `None` for the default family.
pub(super) fn wildcard_for(url: &Url) -> Option<&'static str> {
    let host = url.host.as_deref()?;
    host.parse::<Ipv6Addr>().ok().map(|_| "::")
}

/// The URL with the port that the endpoint was assigned.
pub(super) fn with_bound_port(mut url: Url, ep: &dyn Endpoint) -> Url {
    if let Ok(Address::Ip(ip)) = ep.address() {
        url.port = Some(ip.port());
    }
    url
}

/// The address vector index of the peer that a URL names.
pub(super) fn resolve(av: &dyn AddressVector, info: &Info, url: &Url) -> Result<FiAddr, Error> {
    let (node, port) = match (is_local(info), port_of(url)) {
        (true, Some(_)) => (LOCAL_NODE, url.port),
        (true, None) => (host_of(url), None),
        (false, Some(port)) => (host_of(url), Some(port)),
        (false, None) => return Err(missing_port(url)),
    };
    let service = port.map(|port| port.to_string()).unwrap_or_default();
    av.insert_service(node, &service).map_err(|error| {
        let errno = error.errno();
        let code = match errno.into() {
            Code::EINVAL | Code::ENODATA => Code::EHOSTNTFD,
            code => code,
        };
        let message = format!(
            "address {url}: the host {node:?} is not known ({errno}); check its name, or write its \
             IP address"
        );
        Error::new(code, message)
    })
}

fn missing_port(url: &Url) -> Error {
    let message = format!("address {url}: the port is missing; write the server's port");
    Error::new(Code::ENOPROTOOPT, message)
}

/// The text of a peer's host, without scheme and port.
pub(super) fn host(address: &Address) -> String {
    match address {
        Address::Ip(ip) => ip.ip().to_string(),
        other => {
            let text = other.to_string();
            match text.split_once("://") {
                Some((_, name)) => name.to_owned(),
                None => text,
            }
        }
    }
}

/// Returns whether a peer is in a range. A peer without an IP address is in the ranges of this
/// machine.
pub(super) fn is_in_range(address: &Address, pattern: &str, netmask: Option<u8>) -> Result<bool> {
    match address {
        Address::Ip(ip) => match ip.ip() {
            IpAddr::V4(host) => ipv4_in_range(host, pattern, netmask),
            IpAddr::V6(_) => Err(Code::EOPNOTSUPP),
        },
        _ => {
            let host = pattern.split([':', '/']).next().unwrap_or_default();
            Ok(host == "*" || is_this_machine(host))
        }
    }
}

/// Whether an IPv4 address is in a range. Without `netmask`, `pattern` may have wildcards
/// (`10.1.*`). With `netmask`, `pattern` is a network (`10.1.0.0`) and `netmask` its number of
/// significant bits.
///
/// # Errors
/// [`Code::EINVAL`] for an invalid pattern.
fn ipv4_in_range(host: Ipv4Addr, pattern: &str, netmask: Option<u8>) -> Result<bool> {
    let pattern = pattern.split([':', '/']).next().unwrap_or_default();
    let Some(bits) = netmask else {
        let octets = host.octets();
        let mut wanted = pattern.split('.');
        let mut is_in = true;
        for octet in octets {
            match wanted.next() {
                None | Some("*") => {}
                Some(text) => is_in &= octet == text.parse::<u8>().map_err(|_| Code::EINVAL)?,
            }
        }
        return Ok(is_in);
    };
    let network: Ipv4Addr = pattern.parse().map_err(|_| Code::EINVAL)?;
    let shift = 32_u32.checked_sub(u32::from(bits)).ok_or(Code::EINVAL)?;
    let differs = u64::from(host.to_bits() ^ network.to_bits()) >> shift;
    Ok(differs == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_wildcards_or_networks() {
        let host = "10.1.2.3".parse().unwrap();
        let table = [
            ("10.1.*", None, true),
            ("10.1.2.3", None, true),
            ("10.2.*", None, false),
            ("*", None, true),
            ("10.1.0.0", Some(16), true),
            ("10.1.0.0", Some(24), false),
            ("10.1.2.3:3334", Some(32), true),
            ("0.0.0.0", Some(0), true),
        ];
        for (pattern, netmask, expected) in table {
            assert_eq!(
                ipv4_in_range(host, pattern, netmask),
                Ok(expected),
                "{pattern}"
            );
        }
        assert_eq!(ipv4_in_range(host, "10.x", None), Err(Code::EINVAL));
        assert_eq!(ipv4_in_range(host, "10.1.0.0", Some(33)), Err(Code::EINVAL));
        assert_eq!(ipv4_in_range(host, "node7", Some(8)), Err(Code::EINVAL));
    }
}
