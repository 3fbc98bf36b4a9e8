//! Names: what a URL is to a provider.
//!
//! A provider that reaches no other machine has no hosts: there, a port names a process of this
//! machine, and a host without a port is a name by itself.

use std::net::{IpAddr, Ipv6Addr};

use nix::sys::utsname::uname;
use selvedge::{AddrFormat, Address, AddressVector, Caps, Endpoint, FiAddr, Info};
use selvedge_kit::ip::interface;

use crate::control::info::{host_of, ipv4_in_range};
use crate::url::Url;
use crate::{Code, Error, Result};

/// The node that the ports of providers without hosts belong to.
const HERE: &str = "bmi";
/// Ports that are tried, where the provider does not choose one itself.
const CHOICE: std::ops::Range<u16> = 49152..u16::MAX;

/// Whether hosts mean nothing to a provider.
pub(super) fn is_local(info: &Info) -> bool {
    info.addr_format == AddrFormat::Str && !info.caps.contains(Caps::REMOTE_COMM)
}

/// Whether a host is this machine: `localhost`, its own name, or an address of an interface of it.
fn is_here(host: &str) -> bool {
    let address = host.split('%').next().unwrap_or_default();
    match address.parse() {
        Ok(ip) => is_own_address(ip),
        Err(_) => host == "localhost" || uname().is_ok_and(|own| is_own_name(own.nodename(), host)),
    }
}

fn is_own_address(ip: IpAddr) -> bool {
    let is_listed = || {
        let all = interface::all(None).unwrap_or_default();
        all.iter().any(|own| own.addr.ip() == ip)
    };
    ip.is_loopback() || ip.is_unspecified() || is_listed()
}

/// Whether two names of a machine are the same one with and without its domain.
fn is_own_name(own: &std::ffi::OsStr, host: &str) -> bool {
    let Some(own) = own.to_str() else {
        return false;
    };
    let is_short_for = |short: &str, long: &str| {
        long.strip_prefix(short)
            .is_some_and(|domain| domain.is_empty() || domain.starts_with('.'))
    };
    is_short_for(own, host) || is_short_for(host, own)
}

/// The port of a URL, where it is one: port 0 stands for none.
fn port_of(url: &Url) -> Option<u16> {
    url.port.filter(|port| *port != 0)
}

/// The ports to try for a process that listens at `url`.
pub(super) fn ports(url: &Url, info: &Info) -> Box<dyn Iterator<Item = Option<u16>>> {
    let is_named = url.host.as_deref().is_some_and(|host| !is_here(host));
    match url.port {
        None if is_local(info) && is_named => Box::new(std::iter::once(None)),
        Some(0) | None if is_local(info) => {
            let first = CHOICE.start + (std::process::id() % u32::from(CHOICE.len() as u16)) as u16;
            Box::new((first..CHOICE.end).chain(CHOICE.start..first).map(Some))
        }
        port => Box::new(std::iter::once(port.or(Some(0)))),
    }
}

/// Node and service of the own address that peers find at `url`.
pub(super) fn own(url: &Url, info: &Info, bind_specific: bool) -> (Option<String>, Option<String>) {
    let port = url.port.map(|port| port.to_string());
    match is_local(info) {
        true if port.is_some() => (Some(HERE.to_owned()), port),
        // A node alone would leave the rest of the name to the provider.
        true => (None, url.host.clone()),
        false if bind_specific => (url.host.clone(), port),
        false => (any_like(url).map(str::to_owned), port),
    }
}

/// All of this machine's addresses, of the kind that a URL's host is of; the usual kind has no name.
pub(super) fn any_like(url: &Url) -> Option<&'static str> {
    let host = url.host.as_deref()?;
    host.parse::<Ipv6Addr>().ok().map(|_| "::")
}

/// The URL with the port that an endpoint was given.
pub(super) fn bound(mut url: Url, ep: &dyn Endpoint) -> Url {
    if let Ok(Address::Ip(ip)) = ep.address() {
        url.port = Some(ip.port());
    }
    url
}

/// The index of the peer that a URL names.
pub(super) fn resolve(av: &dyn AddressVector, info: &Info, url: &Url) -> Result<FiAddr, Error> {
    let (node, port) = match is_local(info) {
        true if port_of(url).is_some() => (HERE, url.port),
        true => (host_of(url), None),
        false => (
            host_of(url),
            Some(port_of(url).ok_or_else(|| lacks_port(url))?),
        ),
    };
    let service = port.map(|port| port.to_string()).unwrap_or_default();
    av.insert_service(node, &service).map_err(|error| {
        let errno = error.errno();
        let code = match errno.into() {
            Code::EINVAL | Code::ENODATA => Code::EHOSTNTFD,
            code => code,
        };
        let what = format!(
            "address {url}: the host {node:?} is not known ({errno}); check its name, or write its \
             IP address"
        );
        Error::new(code, what)
    })
}

fn lacks_port(url: &Url) -> Error {
    let what = format!("address {url}: the port is missing; write the one that the server has");
    Error::new(Code::ENOPROTOOPT, what)
}

/// What people know a peer by.
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

/// Whether a peer is in a range; peers without an IP address are in those of this machine.
pub(super) fn is_in_range(address: &Address, pattern: &str, netmask: Option<u8>) -> Result<bool> {
    match address {
        Address::Ip(ip) => match ip.ip() {
            IpAddr::V4(host) => ipv4_in_range(host, pattern, netmask),
            IpAddr::V6(_) => Err(Code::EOPNOTSUPP),
        },
        _ => {
            let host = pattern.split([':', '/']).next().unwrap_or_default();
            Ok(host == "*" || is_here(host))
        }
    }
}
