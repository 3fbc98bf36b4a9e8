//! Listening sockets, at a requested address and within the configured port range.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Once;

use selvedge::{Errno, Error};
use selvedge_kit::close_on_fork::CloseOnFork;

use crate::config::{CONTROL, Config};
use crate::socket::{BoundSocket, listen_at};
use crate::wire::hello::Extension;

/// A listening socket.
pub(crate) type Listener = CloseOnFork<TcpListener>;

/// The default address: any interface, and a port of the system's choice.
pub(crate) const ANYWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// The error of a failed attempt to listen at an address.
pub(crate) fn listen_error(addr: SocketAddr, cause: io::Error) -> Error {
    let errno = cause.raw_os_error().map_or(Errno::Io, Errno::from_raw);
    Error::new(errno, format!("listening at {addr}")).because(cause)
}

/// Listens at an address. Port 0 means a port of the configured range, or of the system's choice.
pub(crate) fn listen(addr: SocketAddr, config: &Config) -> io::Result<Listener> {
    open_at_port(addr, config, listen_at)
}

/// Binds a socket to an address. Port 0 means the same as for [`listen`].
pub(crate) fn bind_at(addr: SocketAddr, config: &Config) -> io::Result<BoundSocket> {
    open_at_port(addr, config, BoundSocket::bind)
}

fn open_at_port<T>(
    addr: SocketAddr,
    config: &Config,
    open: impl Fn(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    match config.ports.filter(|_| addr.port() == 0) {
        None => open(addr),
        Some(range) => open_in_range(addr.ip(), range, open),
    }
}

/// Opens at a port of a range: tries from a random port upwards, then from the lowest.
fn open_in_range<T>(
    ip: IpAddr,
    (low, high): (u16, u16),
    open: impl Fn(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let count = u32::from(high - low) + 1;
    let start = (Extension::new().incarnation >> 8) as u32 % count;
    let mut last = io::ErrorKind::AddrInUse.into();
    for step in 0..count {
        let port = low + ((start + step) % count) as u16;
        match open(SocketAddr::new(ip, port)) {
            Err(cause) if cause.kind() == io::ErrorKind::AddrInUse => last = cause,
            opened => return opened,
        }
    }
    Err(last)
}

/// Warns once per process when an endpoint without authentication listens at a public address.
pub(crate) fn warn_if_public(addr: SocketAddr) {
    static WARNED: Once = Once::new();
    if is_public(addr.ip()) {
        WARNED.call_once(|| {
            log::warn!(
                target: CONTROL,
                "{addr} is reachable from other networks, and its peers are not authenticated: use \
                 TLS (FI_TCP_TLS), give endpoints an auth_key, restrict access by a firewall, or \
                 listen at another interface (FI_TCP_IFACE)"
            );
        });
    }
}

/// Whether the address is in a range that hosts of other networks can reach.
const fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => {
            // Shared address space of carriers, 100.64.0.0/10.
            let is_shared = matches!(v4.octets(), [100, 64..128, ..]);
            !(v4.is_private()
                || v4.is_loopback()
                || v4.is_link_local()
                || v4.is_unspecified()
                || v4.is_documentation()
                || is_shared)
        }
        IpAddr::V6(v6) => v6.segments()[0] & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn private_addresses_are_not_public() {
        let is_public = |text: &str| super::is_public(text.parse().unwrap());
        let private = [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.7.7",
            "169.254.1.1",
            "100.64.0.1",
            "192.0.2.2",
            "0.0.0.0",
            "::",
            "::1",
            "fe80::1",
            "fd00::2",
        ];
        assert!(!private.into_iter().any(is_public));
        for ip in ["8.8.8.8", "172.32.0.1", "100.128.0.1", "2a00::1"] {
            assert!(is_public(ip), "{ip}");
        }
    }
}
