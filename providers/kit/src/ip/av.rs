//! The address vector: socket addresses by index.

use std::net::{SocketAddr, SocketAddrV6};

use super::resolve;
use crate::av::{Table, insert_symmetric};
use crate::birth::Birth;
use selvedge::{Address, AddressVector, Errno, FiAddr, Result, av};

/// Addresses of peers. Inserting one makes no contact with it.
#[derive(Debug)]
pub struct Av {
    birth: Birth,
    table: Table<SocketAddr>,
    /// Where its warnings are logged.
    target: &'static str,
}

/// An address as peers are known by: without what says nothing about where it is.
pub fn known_as(addr: SocketAddr) -> SocketAddr {
    match addr {
        SocketAddr::V4(_) => addr,
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => SocketAddr::new(v4.into(), v6.port()),
            None => SocketAddrV6::new(*v6.ip(), v6.port(), 0, v6.scope_id()).into(),
        },
    }
}

impl Av {
    /// Opens one whose warnings are logged as `target`'s.
    pub fn open(attr: &av::Attr, target: &'static str) -> Self {
        Self {
            target,
            birth: Birth::here(),
            table: Table::with_capacity(attr.count),
        }
    }

    /// Changes with every insertion and removal.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.table.epoch()
    }

    /// The index of an address, or [`FiAddr::UNSPEC`].
    pub fn find(&self, addr: &SocketAddr) -> FiAddr {
        self.table.find(addr).unwrap_or(FiAddr::UNSPEC)
    }

    /// What completions call an address, or [`FiAddr::UNSPEC`].
    pub fn source(&self, addr: &SocketAddr) -> FiAddr {
        self.table.source(addr).unwrap_or(FiAddr::UNSPEC)
    }

    /// The address behind an index.
    pub fn addr(&self, addr: FiAddr) -> Option<SocketAddr> {
        self.table.lookup(addr)
    }
}

/// # Errors
/// Why nothing can be sent there.
fn checked(addr: &Address) -> Result<SocketAddr, &'static str> {
    match addr {
        Address::Ip(ip) if ip.port() == 0 => Err("it has no port"),
        Address::Ip(ip) => Ok(known_as(*ip)),
        _ => resolve::written(&addr.to_string()).ok_or("it is no IP address and port"),
    }
}

impl AddressVector for Av {
    fn insert(&self, addrs: &[Address], out: &mut [FiAddr]) -> Result<usize> {
        self.birth.check()?;
        let out = out.get_mut(..addrs.len()).ok_or(Errno::Inval)?;
        let mut inserted = 0;
        for (addr, slot) in addrs.iter().zip(out) {
            *slot = match checked(addr) {
                Ok(addr) => {
                    inserted += 1;
                    self.table.insert(addr)
                }
                Err(why) => {
                    log::warn!(target: self.target, "address {addr} is refused: {why}");
                    FiAddr::NOTAVAIL
                }
            };
        }
        Ok(inserted)
    }

    fn insert_service(&self, node: &str, service: &str) -> Result<FiAddr> {
        let addr = resolve::resolve(Some(node), Some(service), false);
        let addr = addr.map_err(|error| error.errno())?;
        self.insert_one(&Address::Ip(addr))
    }

    fn insert_symmetric(
        &self,
        node: &str,
        nodes: usize,
        service: &str,
        services: usize,
        out: &mut [FiAddr],
    ) -> Result<usize> {
        self.birth.check()?;
        let insert = |node: &str, service: &str| self.insert_service(node, service);
        insert_symmetric((node, nodes), (service, services), out, insert)
    }

    fn set_user_id(&self, addr: FiAddr, id: FiAddr) -> Result {
        self.birth.check()?;
        self.table.set_id(addr, id)
    }

    fn remove(&self, addrs: &[FiAddr]) -> Result {
        self.birth.check()?;
        self.table.remove(addrs)
    }

    fn lookup(&self, addr: FiAddr) -> Result<Address> {
        self.birth.check()?;
        self.addr(addr).map(Address::Ip).ok_or(Errno::Inval)
    }

    fn members(&self) -> Result<Vec<FiAddr>> {
        self.birth.check()?;
        Ok(self.table.members())
    }
}
