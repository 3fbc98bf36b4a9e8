//! The control connection of `fi_pingpong`: addresses, barriers and counts over TCP, in the
//! protocol of libfabric's program of this name.
//!
//! | message | client sends | server sends |
//! |---|---|---|
//! | name | length, big-endian; address format, in host order; the bytes | the same |
//! | barrier | `q`, NUL | `a`, NUL |
//! | count | ten bytes: decimal digits, then NULs | `cnt ok`, NUL |

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use selvedge::{AddrFormat, Address, Errno};
use selvedge_testkit::failure::failure;

/// The limit of a wait for the peer.
const PEER_TIMEOUT: Duration = Duration::from_secs(30);
/// The time after which a wait for the peer is interrupted to make progress on the fabric.
const READ_TIMEOUT: Duration = Duration::from_millis(1);
/// The longest name, in bytes.
const NAME_MAX: usize = 64;
const COUNT_LEN: usize = 10;
const COUNT_RESPONSE: &[u8] = b"cnt ok\0";

/// A control connection.
#[derive(Debug)]
pub(super) struct Control {
    stream: TcpStream,
    is_client: bool,
}

impl Control {
    /// Connects to a server from local port `from`, or from any port if `from` is 0.
    ///
    /// # Errors
    /// The local port is in use, or no process listens at `server`.
    pub(super) fn connect(server: SocketAddr, from: u16) -> anyhow::Result<Self> {
        use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, bind, socket};
        use std::os::fd::AsRawFd as _;
        let (family, any): (_, IpAddr) = match server {
            SocketAddr::V4(_) => (AddressFamily::Inet, Ipv4Addr::UNSPECIFIED.into()),
            SocketAddr::V6(_) => (AddressFamily::Inet6, Ipv6Addr::UNSPECIFIED.into()),
        };
        let fd = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        bind(
            fd.as_raw_fd(),
            &SockaddrStorage::from(SocketAddr::new(any, from)),
        )
        .with_context(|| format!("cannot connect from port {from}"))?;
        nix::sys::socket::connect(fd.as_raw_fd(), &SockaddrStorage::from(server)).map_err(
            |cause| {
                let errno = Errno::from_raw(cause as i32);
                failure(errno, format!("cannot connect to {server}: {cause}"))
            },
        )?;
        Self::wrap(TcpStream::from(fd), true)
    }

    /// Listens at an address, and waits for one client.
    ///
    /// # Errors
    /// The port is in use.
    pub(super) fn accept(at: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(at).with_context(|| format!("cannot listen on {at}"))?;
        let (stream, _) = listener.accept().context("cannot accept a connection")?;
        Self::wrap(stream, false)
    }

    fn wrap(stream: TcpStream, is_client: bool) -> anyhow::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        stream.set_write_timeout(Some(PEER_TIMEOUT))?;
        Ok(Self { stream, is_client })
    }

    /// Sends the local address to the peer.
    ///
    /// # Errors
    /// The connection is closed.
    pub(super) fn send_name(&mut self, address: &Address) -> anyhow::Result<()> {
        let name = encode(address);
        ensure!(
            name.len() <= NAME_MAX,
            "the address {address} is longer than {NAME_MAX} bytes"
        );
        self.send(&(name.len() as u32).to_be_bytes())?;
        self.send(&(address.format() as u32).to_ne_bytes())?;
        self.send(&name)
    }

    /// Receives the peer's address.
    ///
    /// # Errors
    /// The bytes are no address, or the connection is closed.
    pub(super) fn receive_name(&mut self) -> anyhow::Result<Address> {
        let idle = &mut || Ok(());
        let (mut len, mut format) = ([0; 4], [0; 4]);
        self.receive(&mut len, idle)?;
        self.receive(&mut format, idle)?;
        let (len, format) = (u32::from_be_bytes(len), u32::from_ne_bytes(format));
        ensure!(
            len as usize <= NAME_MAX,
            "the peer sends a name of {len} bytes, more than {NAME_MAX}"
        );
        let mut name = vec![0; len as usize];
        self.receive(&mut name, idle)?;
        decode(&name, format).with_context(|| {
            format!("the peer sends the name {name:02x?}, which is no address of format {format}")
        })
    }

    /// Waits until the peer reaches the barrier, and calls `idle` meanwhile.
    ///
    /// # Errors
    /// The connection is closed, or the peer sends something else.
    pub(super) fn sync(&mut self, idle: &mut Idle<'_>) -> anyhow::Result<()> {
        let mut message = [0; 2];
        if self.is_client {
            self.send(b"q\0")?;
            self.receive(&mut message, idle)?;
            ensure!(
                &message == b"a\0",
                "the server responds to a barrier with {message:02x?}"
            );
        } else {
            self.receive(&mut message, idle)?;
            ensure!(
                &message == b"q\0",
                "the client sends {message:02x?} for a barrier"
            );
            self.send(b"a\0")?;
        }
        Ok(())
    }

    /// Transfers the client's count of received messages to the server. Both sides return it; the
    /// server ignores `own`.
    ///
    /// # Errors
    /// The connection is closed, or the peer sends something else.
    pub(super) fn count(&mut self, own: usize, idle: &mut Idle<'_>) -> anyhow::Result<usize> {
        if self.is_client {
            let mut text = own.to_string().into_bytes();
            text.resize(COUNT_LEN, 0);
            self.send(&text)?;
            let mut message = [0; COUNT_RESPONSE.len()];
            self.receive(&mut message, idle)?;
            ensure!(
                message == COUNT_RESPONSE,
                "the server responds to a count with {message:02x?}"
            );
            return Ok(own);
        }
        let mut text = [0; COUNT_LEN];
        self.receive(&mut text, idle)?;
        self.send(COUNT_RESPONSE)?;
        let digits = text.split(|&byte| byte == 0).next().unwrap_or_default();
        let count = std::str::from_utf8(digits).ok();
        let count = count.and_then(|digits| digits.parse().ok());
        count.with_context(|| format!("the client sends {text:02x?}, which is no count"))
    }

    fn send(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let sent = self.stream.write_all(bytes);
        sent.context("cannot send on the control connection")
    }

    fn receive(&mut self, bytes: &mut [u8], idle: &mut Idle<'_>) -> anyhow::Result<()> {
        let (start, mut received) = (Instant::now(), 0);
        while received < bytes.len() {
            match self.stream.read(&mut bytes[received..]) {
                Ok(0) => bail!("the peer has closed the control connection"),
                Ok(count) => received += count,
                Err(cause) => match cause.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                    _ => return Err(cause).context("cannot receive on the control connection"),
                },
            }
            ensure!(
                start.elapsed() < PEER_TIMEOUT,
                "the peer has sent nothing on the control connection for {PEER_TIMEOUT:?}"
            );
            idle()?;
        }
        Ok(())
    }
}

/// A function that a process calls repeatedly while it waits for the peer.
pub(super) type Idle<'a> = dyn FnMut() -> anyhow::Result<()> + 'a;

/// Encodes an address as libfabric stores it in memory: `sockaddr_in`, `sockaddr_in6`, or a string
/// with its terminating NUL.
fn encode(address: &Address) -> Vec<u8> {
    let Address::Ip(ip) = address else {
        return address.to_bytes();
    };
    let mut bytes = Vec::with_capacity(28);
    let family = if ip.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    bytes.extend((family as u16).to_ne_bytes());
    bytes.extend(ip.port().to_be_bytes());
    match ip {
        SocketAddr::V4(v4) => {
            bytes.extend(v4.ip().octets());
            bytes.extend([0; 8]);
        }
        SocketAddr::V6(v6) => {
            bytes.extend(v6.flowinfo().to_ne_bytes());
            bytes.extend(v6.ip().octets());
            bytes.extend(v6.scope_id().to_ne_bytes());
        }
    }
    bytes
}

fn decode(bytes: &[u8], format: u32) -> Option<Address> {
    if format == AddrFormat::Str as u32 {
        return Address::from_bytes(bytes);
    }
    let family = i32::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    match family {
        libc::AF_INET => {
            let octets: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            Some(Address::Ip(SocketAddr::new(octets.into(), port)))
        }
        libc::AF_INET6 => {
            let octets: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            let scope = u32::from_ne_bytes(bytes.get(24..28)?.try_into().ok()?);
            Some(Address::Ip(
                SocketAddrV6::new(octets.into(), port, 0, scope).into(),
            ))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_libfabric_s_encoding() {
        let v4: Address = "192.0.2.2:36959".parse().unwrap();
        let bytes = [2, 0, 0x90, 0x5f, 192, 0, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0];
        if cfg!(target_endian = "little") {
            assert_eq!(encode(&v4), bytes);
        }
        for text in ["192.0.2.2:36959", "[fd00::2]:5", "fi_shm://a:b"] {
            let address: Address = text.parse().unwrap();
            let decoded = decode(&encode(&address), address.format() as u32);
            assert_eq!(decoded, Some(address));
        }
        assert_eq!(decode(&bytes[..7], AddrFormat::SockaddrIn as u32), None);
        assert_eq!(decode(&[9; 16], AddrFormat::SockaddrIn as u32), None);
    }
}
