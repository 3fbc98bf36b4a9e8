//! The network interfaces of this host, in the order in which providers offer them: by speed,
//! loopback last, and IPv4 before IPv6.

use std::cmp::Reverse;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use selvedge::{Errno, Error};

/// One address of a network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The system's name of the interface.
    pub name: String,
    /// The address, with port 0.
    pub addr: SocketAddr,
    /// The network of the address, such as `1.2.3.0/24`.
    pub network: String,
    /// Whether the interface reaches this host only.
    pub is_loopback: bool,
    /// The speed in megabits per second; 0 where the system reports none.
    pub(super) speed: u64,
}

/// Lists every address of the interfaces that are up. With `only`, lists the addresses of that
/// interface alone.
///
/// # Errors
/// The system's error.
pub fn all(only: Option<&str>) -> Result<Vec<Interface>, Error> {
    let list = getifaddrs().map_err(|cause| {
        let errno = Errno::from_raw(cause as i32);
        Error::new(errno, "listing the network interfaces").because(cause)
    })?;
    let up = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
    let mut found: Vec<_> = list
        .filter(|entry| entry.flags.contains(up))
        .filter(|entry| only.is_none_or(|name| is_named(&entry.interface_name, name)))
        .filter_map(|entry| {
            let addr = socket_addr(entry.address.as_ref()?)?;
            let mask = entry.netmask.as_ref().and_then(socket_addr);
            Some(Interface {
                network: network(addr.ip(), mask.map(|mask| mask.ip())),
                is_loopback: entry.flags.contains(InterfaceFlags::IFF_LOOPBACK),
                speed: speed(&entry.interface_name),
                name: entry.interface_name,
                addr,
            })
        })
        .collect();
    // The sort is stable: equal entries keep the system's order. Link-local addresses come after
    // the others of their kind.
    found.sort_by_key(|it| {
        let is_link_local = matches!(it.addr, SocketAddr::V6(v6) if v6.scope_id() != 0);
        (
            it.is_loopback,
            Reverse(it.speed),
            it.addr.is_ipv6(),
            is_link_local,
        )
    });
    Ok(found)
}

fn is_named(name: &str, requested: &str) -> bool {
    name == requested || (requested == "loopback" && name == "lo")
}

fn socket_addr(addr: &nix::sys::socket::SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = addr.as_sockaddr_in() {
        return Some(SocketAddr::new(v4.ip().into(), 0));
    }
    let v6 = addr.as_sockaddr_in6()?;
    Some(SocketAddrV6::new(v6.ip(), 0, 0, v6.scope_id()).into())
}

fn network(ip: IpAddr, mask: Option<IpAddr>) -> String {
    match (ip, mask) {
        (IpAddr::V4(ip), Some(IpAddr::V4(mask))) => {
            let net = std::net::Ipv4Addr::from_bits(ip.to_bits() & mask.to_bits());
            format!("{net}/{}", mask.to_bits().count_ones())
        }
        (IpAddr::V6(ip), Some(IpAddr::V6(mask))) => {
            let net = std::net::Ipv6Addr::from_bits(ip.to_bits() & mask.to_bits());
            format!("{net}/{}", mask.to_bits().count_ones())
        }
        (ip, _) => ip.to_string(),
    }
}

fn speed(name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/speed"));
    text.ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_addresses_under_their_masks() {
        let table = [
            ("192.0.2.17", "255.255.255.0", "192.0.2.0/24"),
            ("127.0.0.1", "255.0.0.0", "127.0.0.0/8"),
            ("fd00::2", "ffff:ffff:ffff:ffff::", "fd00::/64"),
        ];
        for (ip, mask, text) in table {
            assert_eq!(
                network(ip.parse().unwrap(), Some(mask.parse().unwrap())),
                text
            );
        }
    }

    #[test]
    fn the_loopback_is_last_and_can_be_selected_by_name() {
        let all = all(None).unwrap();
        assert!(all.is_sorted_by_key(|it| it.is_loopback), "{all:?}");
        let only = super::all(Some("lo")).unwrap();
        assert!(only.iter().all(|it| it.is_loopback && it.name == "lo"));
        let v4 = only.iter().find(|it| it.addr.is_ipv4()).unwrap();
        assert_eq!(
            (v4.addr.to_string(), &*v4.network),
            ("127.0.0.1:0".into(), "127.0.0.0/8")
        );
        assert_eq!(super::all(Some("no such interface")).unwrap(), []);
    }
}
