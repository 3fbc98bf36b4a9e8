//! Names: from nodes and services to socket addresses. The system's resolver may take its time, so
//! this is only done where an application asks for it by name.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};

use selvedge::{Errno, Error, Result};

use super::av::known_as;

/// The address of a node and a service; either may be missing. Without a node it is any address of
/// this host. A service is a port, or a name that the system knows.
///
/// # Errors
/// [`Errno::NoData`] when they name nothing, with both names and what the resolver says.
pub fn resolve(
    node: Option<&str>,
    service: Option<&str>,
    is_numeric: bool,
) -> Result<SocketAddr, Error> {
    let service = service.unwrap_or_default();
    let node = node.unwrap_or_default();
    let failed = |why: &str| {
        let what = format!("node {node:?} and service {service:?} name no address: {why}");
        Error::new(Errno::NoData, what)
    };
    if let Some(addr) = written(node).filter(|_| service.is_empty()) {
        return Ok(addr);
    }
    let port = match service {
        "" => 0,
        number => number
            .parse()
            .map_err(|_| failed("a service is the number of a port"))?,
    };
    if node.is_empty() {
        return Ok(SocketAddr::from(([0, 0, 0, 0], port)));
    }
    if let Ok(ip) = node.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(known_as(SocketAddr::new(ip, port)));
    }
    if is_numeric {
        return Err(failed(
            "the node is no number, and no name is to be asked for",
        ));
    }
    let mut found = (node, port)
        .to_socket_addrs()
        .map_err(|cause| failed(&cause.to_string()))?;
    let first = found.next().ok_or_else(|| failed("there is none"))?;
    Ok(known_as(first))
}

/// An address in one of the ways in which addresses are written: `1.2.3.4:5`, `[::1]:5`, and both
/// behind libfabric's `fi_sockaddr_in://` or `fi_sockaddr_in6://`.
pub fn written(text: &str) -> Option<SocketAddr> {
    let bare = ["fi_sockaddr_in://", "fi_sockaddr_in6://", "fi_sockaddr://"]
        .into_iter()
        .find_map(|scheme| text.strip_prefix(scheme))
        .unwrap_or(text);
    bare.parse().ok().map(known_as)
}

/// The address of this host that packets to `dest` come from.
pub fn source_for(dest: SocketAddr) -> Option<SocketAddr> {
    let any: IpAddr = match dest {
        SocketAddr::V4(_) => [0, 0, 0, 0].into(),
        SocketAddr::V6(_) => [0_u16; 8].into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((dest.ip(), dest.port().max(1))).ok()?;
    let mut source = socket.local_addr().ok()?;
    source.set_port(0);
    Some(known_as(source))
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
    fn what_names_nothing_is_refused_with_both_names() {
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
    fn packets_to_this_host_come_from_it() {
        let to = "127.0.0.1:9".parse().unwrap();
        assert_eq!(source_for(to).unwrap().to_string(), "127.0.0.1:0");
    }
}
