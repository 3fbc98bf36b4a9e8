//! Where the endpoints of a query are, and whom they are to talk to.

use std::net::SocketAddr;

use selvedge::{AddrFormat, Address, Caps, Errno, Error, Info, InfoFlags, Query, Result};

use super::interface::Interface;
use super::resolve::{resolve, source_for, written};

/// Where an endpoint is, and whom it is to talk to.
#[derive(Debug)]
pub struct Place<'a> {
    interface: Option<&'a Interface>,
    src: Option<SocketAddr>,
    dest: Option<SocketAddr>,
}

impl Place<'_> {
    /// Puts addresses and names into what is offered.
    pub fn name(&self, info: &mut Info) {
        info.src_addr = self.src.map(Address::Ip);
        info.dest_addr = self.dest.map(Address::Ip);
        info.addr_format = match self.src.or(self.dest) {
            Some(SocketAddr::V6(_)) => AddrFormat::SockaddrIn6,
            _ => AddrFormat::SockaddrIn,
        };
        if let Some(interface) = self.interface {
            info.domain_attr.name.clone_from(&interface.name);
            info.fabric_attr.name.clone_from(&interface.network);
            if interface.is_loopback {
                let near = |caps: &mut Caps| caps.remove(Caps::REMOTE_COMM);
                near(&mut info.caps);
                near(&mut info.domain_attr.caps);
            }
        }
    }
}

/// The address that an endpoint of this description is to have, if it names one.
///
/// # Errors
/// [`Errno::Inval`] for one that is no IP address with a port, by its value.
pub fn own_address(info: &Info) -> Result<Option<SocketAddr>, Error> {
    let Some(address) = &info.src_addr else {
        return Ok(None);
    };
    let ip = match address {
        Address::Ip(ip) => Some(*ip),
        Address::Str(text) => written(text),
        _ => None,
    };
    ip.map(Some).ok_or_else(|| {
        let what = format!(
            "source address {:?}: an endpoint of the {} provider has an IP address and a port up \
             to 65535, such as 127.0.0.1:24601 or [::1]:24601; a host's name and a service go to \
             discovery, as node and service with FI_SOURCE",
            address.to_string(),
            info.fabric_attr.prov_name
        );
        Error::new(Errno::Inval, what)
    })
}

/// The places that a query is about: the one that it names, or every interface.
///
/// # Errors
/// When its names name nothing.
pub fn places<'a>(query: &Query<'_>, all: &'a [Interface]) -> Result<Vec<Place<'a>>, Error> {
    let at = |addr: SocketAddr| all.iter().find(|it| it.addr.ip() == addr.ip());
    let hints = query.hints.info();
    let ip = |addr: &Option<Address>| match addr {
        Some(Address::Ip(ip)) => Some(*ip),
        _ => None,
    };
    let (mut src, mut dest) = (ip(&hints.src_addr), ip(&hints.dest_addr));
    if query.node.is_some() || query.service.is_some() {
        let is_numeric = query.flags.contains(InfoFlags::NUMERICHOST);
        let named = resolve(query.node, query.service, is_numeric)?;
        match query.flags.contains(InfoFlags::SOURCE) {
            true => src = Some(named),
            false => dest = Some(named),
        }
    }
    let src = src.or_else(|| dest.and_then(source_for));
    if src.is_some() || dest.is_some() {
        let interface = src.and_then(at);
        return Ok(vec![Place {
            interface,
            src,
            dest,
        }]);
    }
    let each = all.iter().map(|interface| Place {
        interface: Some(interface),
        src: Some(interface.addr),
        dest: None,
    });
    Ok(each.collect())
}
