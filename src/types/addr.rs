//! Addresses of endpoints, and their indices in an address vector.

use std::ffi::CStr;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use crate::{Errno, Error};

/// Index of a peer in an address vector (`fi_addr_t`).
#[expect(clippy::exhaustive_structs, reason = "a number of the man page's")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct FiAddr(pub u64);

impl fmt::Debug for FiAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::UNSPEC => f.write_str("FiAddr::UNSPEC"),
            Self(index) => write!(f, "FiAddr({index})"),
        }
    }
}

impl FiAddr {
    /// `FI_ADDR_UNSPEC`: any peer, or an unknown peer.
    pub const UNSPEC: Self = Self(u64::MAX);
    /// `FI_ADDR_NOTAVAIL`: an address that could not be inserted.
    pub const NOTAVAIL: Self = Self(u64::MAX);

    /// Returns the address of context `index` of the scalable endpoint at this address
    /// (`fi_rx_addr`, fi_av(3)). The address vector must have been opened with `bits` upper bits
    /// for the context ([`crate::av::Attr::rx_ctx_bits`]). The function only computes the address;
    /// its use fails if the context does not exist.
    ///
    /// # Examples
    ///
    /// ```
    /// use selvedge::FiAddr;
    ///
    /// let peer = FiAddr(5);
    /// assert_eq!(peer.rx_addr(0, 4), peer);
    /// assert_eq!(peer.rx_addr(3, 4), FiAddr(0x3000_0000_0000_0005));
    /// ```
    #[must_use]
    pub const fn rx_addr(self, index: usize, bits: u32) -> Self {
        match (u64::BITS - 1).checked_sub(bits) {
            Some(below) if bits > 0 => Self(self.0 | (index as u64) << (below + 1)),
            _ => self,
        }
    }
}

/// The format of an address (`fi_info.addr_format`, with libfabric's numbers).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
#[non_exhaustive]
pub enum AddrFormat {
    /// Any format.
    #[default]
    Unspec = 0,
    /// Any socket address.
    Sockaddr = 1,
    /// IPv4 socket address.
    SockaddrIn = 2,
    /// IPv6 socket address.
    SockaddrIn6 = 3,
    /// InfiniBand socket address.
    SockaddrIb = 4,
    /// Address of Intel's PSM.
    Psmx = 5,
    /// Address of Cray's uGNI.
    Gni = 6,
    /// Address of Blue Gene/Q.
    Bgq = 7,
    /// Address of Mellanox' MXM.
    Mlx = 8,
    /// A string: `scheme://...`, or a name that the provider defines.
    Str = 9,
    /// Address of Intel's PSM2.
    Psmx2 = 10,
    /// Address of an unreliable-datagram queue pair of InfiniBand.
    IbUd = 11,
    /// Address of Amazon's EFA.
    Efa = 12,
    /// Address of Intel's PSM3.
    Psmx3 = 13,
    /// Address of Cornelis' OPX.
    Opx = 14,
    /// Address of HPE's Slingshot.
    Cxi = 15,
    /// Address of UCX.
    Ucx = 16,
    /// IPv4 or IPv6 socket address.
    SockaddrIp = 17,
}

impl AddrFormat {
    /// Returns whether an application that requests `self` can use addresses of another format. The
    /// socket address formats of one family are compatible with each other, and
    /// [`AddrFormat::Unspec`] is compatible with every format.
    pub const fn accepts(self, other: Self) -> bool {
        use AddrFormat::{Sockaddr, SockaddrIn, SockaddrIn6, SockaddrIp, Unspec};
        match (self, other) {
            (Unspec, _) | (_, Unspec) => true,
            (Sockaddr | SockaddrIp, Sockaddr | SockaddrIn | SockaddrIn6 | SockaddrIp) => true,
            (SockaddrIn | SockaddrIn6, Sockaddr | SockaddrIp) => true,
            (requested, other) => requested as u32 == other as u32,
        }
    }
}

/// The address of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Address {
    /// A string address ([`AddrFormat::Str`]).
    Str(String),
    /// An IP address and port.
    Ip(SocketAddr),
    /// The bytes of an address in another format.
    Raw(AddrFormat, Vec<u8>),
}

impl Address {
    /// Returns the format of this address.
    pub const fn format(&self) -> AddrFormat {
        match self {
            Self::Str(_) => AddrFormat::Str,
            Self::Ip(SocketAddr::V4(_)) => AddrFormat::SockaddrIn,
            Self::Ip(SocketAddr::V6(_)) => AddrFormat::SockaddrIn6,
            Self::Raw(format, _) => *format,
        }
    }

    /// Returns the string of a string address, and `None` for any other address.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(name) => Some(name),
            Self::Ip(_) | Self::Raw(..) => None,
        }
    }

    /// Returns the address as bytes: its text, followed by a zero byte.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.to_string().into_bytes();
        bytes.push(0);
        bytes
    }

    /// Parses the bytes of [`Self::to_bytes`]. Returns `None` if the bytes are truncated or are not
    /// an address.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let text = CStr::from_bytes_with_nul(bytes).ok()?;
        text.to_str().ok()?.parse().ok()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Str(name) => f.write_str(name),
            Self::Ip(ip) => ip.fmt(f),
            Self::Raw(format, bytes) => {
                write!(f, "{format}:")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

impl FromStr for Address {
    type Err = Error;

    /// Parses `1.2.3.4:5` and `[::1]:5` as IP addresses, `FI_ADDR_EFA:00ff` as the bytes of an
    /// address of that format, and any other text as a string address.
    fn from_str(text: &str) -> Result<Self, Error> {
        if let Ok(ip) = text.parse() {
            return Ok(Self::Ip(ip));
        }
        if text.is_empty() || text.contains('\0') {
            return Err(Error::new(
                Errno::Inval,
                format!("address {text:?} is empty or contains a zero byte"),
            ));
        }
        Ok(parse_raw(text).unwrap_or_else(|| Self::Str(text.to_owned())))
    }
}

/// Parses an [`Address::Raw`].
fn parse_raw(text: &str) -> Option<Address> {
    let (format, digits) = text.split_once(':')?;
    let format: AddrFormat = format.parse().ok()?;
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| match pair {
        [high, low] => Some(parse_digit(*high)? << 4 | parse_digit(*low)?),
        _ => None,
    };
    let bytes = pairs.map(byte).collect::<Option<Vec<_>>>()?;
    Some(Address::Raw(format, bytes))
}

fn parse_digit(byte: u8) -> Option<u8> {
    let digit = char::from(byte).to_digit(16)?;
    u8::try_from(digit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_round_trips_as_text_and_bytes() -> Result<(), Error> {
        let table = [
            Address::Str("fi_shm://1:2".into()),
            Address::Ip(SocketAddr::from(([1, 2, 3, 4], 5))),
            Address::Raw(AddrFormat::Efa, vec![0, 255, 16]),
            Address::Raw(AddrFormat::Cxi, Vec::new()),
        ];
        for addr in table {
            assert_eq!(addr.to_string().parse::<Address>()?, addr);
            assert_eq!(Address::from_bytes(&addr.to_bytes()), Some(addr));
        }
        for name in [
            "FI_ADDR_EFA:0",
            "FI_ADDR_EFA:0g",
            "FI_ADDR_EFA:+1",
            "efa:00",
        ] {
            assert_eq!(name.parse::<Address>()?, Address::Str(name.to_owned()));
        }
        Ok(())
    }
}
