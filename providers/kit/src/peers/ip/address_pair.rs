//! The addresses that the results of a query (fi_getinfo(3)) may have.

use std::net::SocketAddr;

use selvedge::{AddrFormat, Address, Caps, Errno, Error, Info, InfoFlags, Query, Result};

use super::interface::Interface;
use super::nic;
use super::resolve::{parse_addr, resolve, source_for};

/// The source and destination address of one result of a query.
#[derive(Debug)]
pub struct AddressPair<'a> {
    interface: Option<&'a Interface>,
    src: Option<SocketAddr>,
    dest: Option<SocketAddr>,
}

impl AddressPair<'_> {
    /// Writes the addresses, the names of domain and fabric, and the network interface into a
    /// result.
    pub fn fill(&self, info: &mut Info) {
        info.src_addr = self.src.map(Address::Ip);
        info.dest_addr = self.dest.map(Address::Ip);
        info.addr_format = match self.src.or(self.dest) {
            Some(SocketAddr::V6(_)) => AddrFormat::SockaddrIn6,
            _ => AddrFormat::SockaddrIn,
        };
        if let Some(interface) = self.interface {
            info.domain_attr.name.clone_from(&interface.name);
            info.fabric_attr.name.clone_from(&interface.network);
            info.nic = nic::describe(interface);
            if interface.is_loopback {
                let make_local = |caps: &mut Caps| caps.remove(Caps::REMOTE_COMM);
                make_local(&mut info.caps);
                make_local(&mut info.domain_attr.caps);
            }
        }
    }
}

/// The source address that `info` requests for an endpoint, if it names one.
///
/// # Errors
/// [`Errno::Inval`], with the value, for an address that is not an IP address with a port.
pub fn requested_address(info: &Info) -> Result<Option<SocketAddr>, Error> {
    let Some(address) = &info.src_addr else {
        return Ok(None);
    };
    let ip = match address {
        Address::Ip(ip) => Some(*ip),
        Address::Str(text) => parse_addr(text),
        _ => None,
    };
    ip.map(Some).ok_or_else(|| {
        let message = format!(
            "source address {:?}: an endpoint of the {} provider has an IP address and a port up \
             to 65535, such as 127.0.0.1:24601 or [::1]:24601; pass a host name and a service to \
             discovery, as node and service with FI_SOURCE",
            address.to_string(),
            info.fabric_attr.prov_name
        );
        Error::new(Errno::Inval, message)
    })
}

/// The address pairs of a query: the pair that the query names, or one for every interface.
///
/// # Errors
/// [`Errno::NoData`] if the query's node and service resolve to no address.
pub fn address_pairs<'a>(
    query: &Query<'_>,
    all: &'a [Interface],
) -> Result<Vec<AddressPair<'a>>, Error> {
    let interface_of = |addr: SocketAddr| all.iter().find(|it| it.addr.ip() == addr.ip());
    let hints = query.hints.info();
    let ip = |addr: &Option<Address>| match addr {
        Some(Address::Ip(ip)) => Some(*ip),
        _ => None,
    };
    let (mut src, mut dest) = (ip(&hints.src_addr), ip(&hints.dest_addr));
    if query.node.is_some() || query.service.is_some() {
        let is_numeric = query.flags.contains(InfoFlags::NUMERICHOST);
        let named = resolve(query.node, query.service, is_numeric)?;
        if query.flags.contains(InfoFlags::SOURCE) {
            src = Some(named)
        } else {
            dest = Some(named)
        }
    }
    let src = src.or_else(|| dest.and_then(source_for));
    if src.is_some() || dest.is_some() {
        let interface = src.and_then(interface_of);
        return Ok(vec![AddressPair {
            interface,
            src,
            dest,
        }]);
    }
    let each = all.iter().map(|interface| AddressPair {
        interface: Some(interface),
        src: Some(interface.addr),
        dest: None,
    });
    Ok(each.collect())
}
