//! Name resolution: from nodes and services to socket addresses. The system's resolver may block,
//! so it is called only if an application names a node.

use std::net::{IpAddr, SocketAddr, SocketAddrV6, ToSocketAddrs, UdpSocket};

use selvedge::{Errno, Error, Result};

/// Resolves a node and a service; either may be missing. Without a node, the result is the wildcard
/// address of this host. A service is a port number. If `is_numeric`, the node must be a numeric
/// address.
///
/// # Errors
/// [`Errno::NoData`] if there is no such address. The message contains the node, the service and
/// the reason.
pub fn resolve(
    node: Option<&str>,
    service: Option<&str>,
    is_numeric: bool,
) -> Result<SocketAddr, Error> {
    let service = service.unwrap_or_default();
    let node = node.unwrap_or_default();
    let failed = |reason: &str| {
        let message = format!("node {node:?}, service {service:?}: no such address: {reason}");
        Error::new(Errno::NoData, message)
    };
    if let Some(addr) = parse_addr(node).filter(|_| service.is_empty()) {
        return Ok(addr);
    }
    let port = match service {
        "" => 0,
        number => number
            .parse()
            .map_err(|_| failed("the service is not a port number"))?,
    };
    if node.is_empty() {
        return Ok(SocketAddr::from(([0, 0, 0, 0], port)));
    }
    if let Ok(ip) = node.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(canonical_addr(SocketAddr::new(ip, port)));
    }
    if is_numeric {
        return Err(failed(
            "the node is not a numeric address, as FI_NUMERICHOST requires",
        ));
    }
    let mut found = (node, port)
        .to_socket_addrs()
        .map_err(|cause| failed(&cause.to_string()))?;
    let first = found
        .next()
        .ok_or_else(|| failed("the resolver returned none"))?;
    Ok(canonical_addr(first))
}

/// Parses an address in text form: `1.2.3.4:5` or `[::1]:5`, with or without libfabric's prefix
/// `fi_sockaddr_in://`, `fi_sockaddr_in6://` or `fi_sockaddr://`.
pub fn parse_addr(text: &str) -> Option<SocketAddr> {
    let bare = ["fi_sockaddr_in://", "fi_sockaddr_in6://", "fi_sockaddr://"]
        .into_iter()
        .find_map(|scheme| text.strip_prefix(scheme))
        .unwrap_or(text);
    bare.parse().ok().map(canonical_addr)
}

/// The canonical form of an address: an IPv4-mapped address as IPv4, without IPv6 flow information.
pub fn canonical_addr(addr: SocketAddr) -> SocketAddr {
    match addr {
        SocketAddr::V4(_) => addr,
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => SocketAddr::new(v4.into(), v6.port()),
            None => SocketAddrV6::new(*v6.ip(), v6.port(), 0, v6.scope_id()).into(),
        },
    }
}

/// Returns the address of this host that the system selects as the source of packets to `dest`,
/// with port 0; `None` if the system selects none.
pub fn source_for(dest: SocketAddr) -> Option<SocketAddr> {
    let any: IpAddr = match dest {
        SocketAddr::V4(_) => [0, 0, 0, 0].into(),
        SocketAddr::V6(_) => [0_u16; 8].into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((dest.ip(), dest.port().max(1))).ok()?;
    let mut source = socket.local_addr().ok()?;
    source.set_port(0);
    Some(canonical_addr(source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_need_no_resolver() {
        let table = [
            (Some("127.0.0.1"), Some("5"), "127.0.0.1:5"),
            (Some("::1"), Some("5"), "[::1]:5"),
            (Some("[::1]"), Some("5"), "[::1]:5"),
            (None, Some("5"), "0.0.0.0:5"),
            (Some("127.0.0.1"), None, "127.0.0.1:0"),
            (Some("127.0.0.1:7"), None, "127.0.0.1:7"),
            (Some("fi_sockaddr_in://127.0.0.1:7"), None, "127.0.0.1:7"),
            (Some("fi_sockaddr_in6://[::1]:7"), None, "[::1]:7"),
            (Some("::ffff:1.2.3.4"), Some("5"), "1.2.3.4:5"),
        ];
        for (node, service, addr) in table {
            let found = resolve(node, service, true).unwrap();
            assert_eq!(found.to_string(), addr);
        }
    }

    #[test]
    fn a_failed_resolution_names_node_and_service() {
        for (node, service) in [
            ("no.such.host.invalid", "5"),
            ("1.2.3.4", "no such service"),
        ] {
            let error = resolve(Some(node), Some(service), true).unwrap_err();
            assert_eq!(error.errno(), Errno::NoData);
            let text = error.to_string();
            assert!(text.contains(node) && text.contains(service), "{text}");
        }
    }

    #[test]
    fn the_source_for_a_local_destination_is_local() {
        let to = "127.0.0.1:9".parse().unwrap();
        assert_eq!(source_for(to).unwrap().to_string(), "127.0.0.1:0");
    }
}
