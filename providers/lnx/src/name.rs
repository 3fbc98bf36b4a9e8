//! Names: the addresses of an endpoint on both links, and the number of its host.

use std::fmt;
use std::net::UdpSocket;
use std::str::FromStr;

use selvedge::Address;

/// `lnx://HOST|NEAR|FAR`: a number for the host, and the addresses of both links.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Name {
    pub(crate) host: u64,
    pub(crate) near: Address,
    pub(crate) far: Address,
}

const SCHEME: &str = "lnx://";

impl Name {
    /// Parses an address; `None` if it is not an lnx name.
    pub(crate) fn from_address(addr: &Address) -> Option<Self> {
        let text = addr.as_str()?;
        text.strip_suffix('\0').unwrap_or(text).parse().ok()
    }

    pub(crate) fn to_address(&self) -> Address {
        Address::Str(self.to_string())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, near, far } = self;
        write!(f, "{SCHEME}{host:016x}|{near}|{far}")
    }
}

/// The error for a text that is not a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidName;

impl FromStr for Name {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let rest = text.strip_prefix(SCHEME).ok_or(InvalidName)?;
        let mut fields = rest.split('|');
        let mut field = || {
            fields
                .next()
                .filter(|field| !field.is_empty())
                .ok_or(InvalidName)
        };
        let host = field()?;
        let is_number = host.len() == 16 && host.bytes().all(|it| it.is_ascii_hexdigit());
        let host = u64::from_str_radix(host, 16).ok().filter(|_| is_number);
        let mut address = || field()?.parse().map_err(|_| InvalidName);
        let (near, far) = (address()?, address()?);
        match fields.next() {
            None => Ok(Self {
                host: host.ok_or(InvalidName)?,
                near,
                far,
            }),
            Some(_) => Err(InvalidName),
        }
    }
}

/// The number of the host with this name, or of this host if the name is empty.
///
/// Processes have the same number if near links can work between them: they run in one boot of one
/// system, in one network namespace, with one `/dev/shm`, and as one user. The name of the system
/// distinguishes virtual machines that were started from one snapshot, which share a boot.
pub(crate) fn host(name: &str) -> u64 {
    if !name.is_empty() {
        return digest(name.as_bytes());
    }
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let boot = read("/proc/sys/kernel/random/boot_id");
    let net = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    let shm = nix::sys::stat::stat("/dev/shm").map_or(0, |stat| stat.st_dev);
    let user = nix::unistd::getuid();
    let system = read("/proc/sys/kernel/hostname");
    let (boot, system, net) = (boot.trim(), system.trim(), net.display());
    digest(format!("{boot}|{net}|{shm}|{user}|{system}").as_bytes())
}

/// The number of any other host, if only an address is known.
pub(crate) const OTHER_HOST: u64 = 0;

/// The number of the host that has this address on the far link: `local` for this host, otherwise
/// [`OTHER_HOST`]. An address of a fabric, such as efa's or cxi's, tells no host, so it is of
/// another one; a name is of this host.
pub(crate) fn host_of(far: &Address, local: u64) -> u64 {
    match far {
        // A process can listen only on addresses of its own host.
        Address::Ip(ip) if UdpSocket::bind((ip.ip(), 0)).is_err() => OTHER_HOST,
        Address::Raw(..) => OTHER_HOST,
        _ => local,
    }
}

/// FNV-1a, which is the same in every build.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use selvedge_testkit::fuzz::fuzz;

    use super::*;

    /// The payload of a hello.
    #[test]
    fn a_name_of_any_bytes_is_parsed_or_rejected() {
        fuzz("names", include_str!("../corpus/names.txt"), |input| {
            let name = std::str::from_utf8(input).ok()?.parse::<Name>().ok();
            if let Some(name) = &name {
                assert_eq!(name.to_string().parse().as_ref(), Ok(name));
            }
            Some(name.map(|name| std::mem::discriminant(&name.far)))
        });
    }

    #[test]
    fn a_name_round_trips_and_malformed_names_are_rejected() {
        let name = Name {
            host: 0xabc,
            near: Address::Str("fi_shm://1:2".into()),
            far: "[::1]:5".parse().unwrap(),
        };
        let text = name.to_string();
        assert_eq!(text, "lnx://0000000000000abc|fi_shm://1:2|[::1]:5");
        assert_eq!(text.parse(), Ok(name));
        let last = text.rfind('|').expect("the name has two separators");
        for cut in 0..=last {
            assert_eq!(
                text[..cut].parse::<Name>(),
                Err(InvalidName),
                "{}",
                &text[..cut]
            );
        }
        for bad in [
            "fi_shm://1:2",
            "lnx://abc|a|1.2.3.4:5",
            "lnx://+000000000000abc|a|b",
            "lnx://0000000000000abc|a|b|c",
            "lnx://0000000000000abc||b",
        ] {
            assert_eq!(bad.parse::<Name>(), Err(InvalidName), "{bad}");
        }
    }

    #[test]
    fn an_address_is_of_this_host_if_a_socket_can_bind_to_it() {
        for (addr, host) in [
            ("127.0.0.1:5", 7),
            ("0.0.0.0:5", 7),
            ("192.0.2.1:5", 0),
            ("fi_shm://x", 7),
            ("FI_ADDR_EFA:00ff", 0),
        ] {
            let addr: Address = addr.parse().unwrap();
            assert_eq!(host_of(&addr, 7), host, "{addr}");
        }
    }

    #[test]
    fn equal_host_names_have_equal_numbers() {
        assert_eq!(host(""), host(""));
        assert_eq!(host("a"), host("a"));
        assert_ne!(host("a"), host("b"));
    }
}
