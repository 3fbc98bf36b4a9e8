//! The control connection of `fi_pingpong`: addresses, barriers and counts, over TCP beside the
//! fabric, as libfabric's own program of this name says them.
//!
//! | what | client | server |
//! |---|---|---|
//! | a name | length, big-endian; address format, as the host has it; the bytes | the same |
//! | a barrier | `q`, 0 | `a`, 0 |
//! | a count | ten characters, zeros behind the digits | `cnt ok`, 0 |

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use selvedge::{AddrFormat, Address, Errno};
use selvedge_testkit::failure::failure;

/// How long the peer may be silent.
const PATIENCE: Duration = Duration::from_secs(30);
/// After so long without a word of the peer the fabric has its turn.
const TURN: Duration = Duration::from_millis(1);
/// The longest name.
const NAME_MAX: usize = 64;
const COUNT: usize = 10;
const COUNTED: &[u8] = b"cnt ok\0";

/// The connection.
#[derive(Debug)]
pub(super) struct Control {
    stream: TcpStream,
    is_client: bool,
}

impl Control {
    /// The client's end: from a port of its own, if one is asked for.
    ///
    /// # Errors
    /// When nobody listens there.
    pub(super) fn call(server: SocketAddr, from: u16) -> anyhow::Result<Self> {
        use nix::sys::socket::{
            AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, socket,
        };
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
        connect(fd.as_raw_fd(), &SockaddrStorage::from(server)).map_err(|cause| {
            let errno = Errno::from_raw(cause as i32);
            failure(errno, format!("cannot reach {server}: {cause}"))
        })?;
        Self::over(TcpStream::from(fd), true)
    }

    /// The server's end: waits for a client.
    ///
    /// # Errors
    /// When the port is taken.
    pub(super) fn answer(at: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(at).with_context(|| format!("cannot listen at {at}"))?;
        let (stream, _) = listener.accept().context("cannot take a connection")?;
        Self::over(stream, false)
    }

    fn over(stream: TcpStream, is_client: bool) -> anyhow::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TURN))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream, is_client })
    }

    /// Tells the peer where we are.
    ///
    /// # Errors
    /// When it is gone.
    pub(super) fn send_name(&mut self, address: &Address) -> anyhow::Result<()> {
        let name = encode(address);
        ensure!(name.len() <= NAME_MAX, "{address} is too long a name");
        self.send(&(name.len() as u32).to_be_bytes())?;
        self.send(&(address.format() as u32).to_ne_bytes())?;
        self.send(&name)
    }

    /// Where the peer is.
    ///
    /// # Errors
    /// When it says no address, or is gone.
    pub(super) fn receive_name(&mut self) -> anyhow::Result<Address> {
        let idle = &mut || Ok(());
        let (mut len, mut format) = ([0; 4], [0; 4]);
        self.receive(&mut len, idle)?;
        self.receive(&mut format, idle)?;
        let (len, format) = (u32::from_be_bytes(len), u32::from_ne_bytes(format));
        ensure!(len as usize <= NAME_MAX, "a name of {len} bytes");
        let mut name = vec![0; len as usize];
        self.receive(&mut name, idle)?;
        decode(&name, format)
            .with_context(|| format!("{name:02x?} is no address of format {format}"))
    }

    /// Waits until the peer is here, too, and has `idle` called meanwhile.
    ///
    /// # Errors
    /// When it is gone, or says something else.
    pub(super) fn sync(&mut self, idle: &mut Idle<'_>) -> anyhow::Result<()> {
        let mut word = [0; 2];
        if self.is_client {
            self.send(b"q\0")?;
            self.receive(&mut word, idle)?;
            ensure!(
                &word == b"a\0",
                "the server answers {word:02x?} to a barrier"
            );
        } else {
            self.receive(&mut word, idle)?;
            ensure!(&word == b"q\0", "the client says {word:02x?} for a barrier");
            self.send(b"a\0")?;
        }
        Ok(())
    }

    /// The client tells the server how many messages it has got; both know it then.
    ///
    /// # Errors
    /// When the peer is gone, or says something else.
    pub(super) fn count(&mut self, own: usize, idle: &mut Idle<'_>) -> anyhow::Result<usize> {
        if self.is_client {
            let mut text = own.to_string().into_bytes();
            text.resize(COUNT, 0);
            self.send(&text)?;
            let mut word = [0; COUNTED.len()];
            self.receive(&mut word, idle)?;
            ensure!(word == COUNTED, "the server answers {word:02x?} to a count");
            return Ok(own);
        }
        let mut text = [0; COUNT];
        self.receive(&mut text, idle)?;
        self.send(COUNTED)?;
        let digits = text.split(|&byte| byte == 0).next().unwrap_or_default();
        let count = std::str::from_utf8(digits).ok();
        let count = count.and_then(|digits| digits.parse().ok());
        count.with_context(|| format!("the client counts {text:02x?}"))
    }

    fn send(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let sent = self.stream.write_all(bytes);
        sent.context("the peer takes nothing on the control connection")
    }

    fn receive(&mut self, bytes: &mut [u8], idle: &mut Idle<'_>) -> anyhow::Result<()> {
        let (start, mut have) = (Instant::now(), 0);
        while have < bytes.len() {
            match self.stream.read(&mut bytes[have..]) {
                Ok(0) => bail!("the peer has closed the control connection"),
                Ok(count) => have += count,
                Err(cause) => match cause.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                    _ => return Err(cause).context("the control connection is lost"),
                },
            }
            ensure!(
                start.elapsed() < PATIENCE,
                "the peer says nothing on the control connection for {PATIENCE:?}"
            );
            idle()?;
        }
        Ok(())
    }
}

/// What is done while the peer is silent.
pub(super) type Idle<'a> = dyn FnMut() -> anyhow::Result<()> + 'a;

/// An address as libfabric has it in memory: `sockaddr_in`, `sockaddr_in6`, or a string with its
/// zero.
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
    fn names_are_the_bytes_that_libfabric_sends() {
        let v4: Address = "192.0.2.2:36959".parse().unwrap();
        let bytes = [2, 0, 0x90, 0x5f, 192, 0, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0];
        if cfg!(target_endian = "little") {
            assert_eq!(encode(&v4), bytes);
        }
        for text in ["192.0.2.2:36959", "[fd00::2]:5", "fi_shm://a:b"] {
            let address: Address = text.parse().unwrap();
            let back = decode(&encode(&address), address.format() as u32);
            assert_eq!(back, Some(address));
        }
        assert_eq!(decode(&bytes[..7], AddrFormat::SockaddrIn as u32), None);
        assert_eq!(decode(&[9; 16], AddrFormat::SockaddrIn as u32), None);
    }
}
