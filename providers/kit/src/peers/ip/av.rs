//! The address vector of providers over IP: socket addresses by index.

use std::net::SocketAddr;

use super::resolve::{self, canonical_addr};
use crate::av::{Peer, Vector, insert_all, insert_symmetric};
use crate::coll::Members;
use crate::domain::identity::{DomainId, OfDomain};
use crate::fork_guard::ForkGuard;
use selvedge::{Address, AddressVector, Errno, Error, FiAddr, Result, av};

/// The addresses of peers. An insertion does not connect to the peer.
#[derive(Debug)]
pub struct Av {
    fork_guard: ForkGuard,
    domain: DomainId,
    identity: av::Identity,
    table: Vector<SocketAddr>,
    /// The log target of the vector's warnings.
    target: &'static str,
}

impl Av {
    /// Opens an address vector of a domain. `target` is the log target of the vector's warnings;
    /// `family` identifies provider and domain in the name of a named vector's file.
    ///
    /// # Errors
    /// As [`Vector::open`].
    pub fn open(
        attr: &av::Attr,
        domain: &DomainId,
        family: &str,
        target: &'static str,
    ) -> Result<Self, Error> {
        Ok(Self {
            target,
            fork_guard: ForkGuard::current(),
            domain: domain.clone(),
            identity: av::Identity::new(domain),
            table: Vector::open(attr, family)?,
        })
    }

    /// A number that changes with every insertion and removal.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.table.epoch()
    }

    /// The index of an address, or [`FiAddr::UNSPEC`].
    pub fn find(&self, addr: &SocketAddr) -> FiAddr {
        self.table.table().find(addr).unwrap_or(FiAddr::UNSPEC)
    }

    /// The source that completions report for an address, or [`FiAddr::UNSPEC`].
    pub fn source(&self, addr: &SocketAddr) -> FiAddr {
        self.table.source(addr).unwrap_or(FiAddr::UNSPEC)
    }

    /// The source that completions report for a context of a scalable endpoint, by the context's
    /// address.
    pub fn context_source(&self, addr: &SocketAddr, context: u16) -> FiAddr {
        let first = addr.port().checked_sub(context);
        let source = first.and_then(|port| {
            let first = SocketAddr::new(addr.ip(), port);
            self.table.context_source(&first, context.into())
        });
        source.unwrap_or_else(|| self.source(addr))
    }

    /// The address at an index. If the index also names a context, the address is the context's:
    /// contexts have successive ports.
    pub fn addr(&self, addr: FiAddr) -> Option<SocketAddr> {
        let (peer, context) = self.table.table().split(addr);
        let mut addr = self.table.lookup(peer)?;
        let port = usize::from(addr.port()) + context;
        addr.set_port(u16::try_from(port).ok()?);
        Some(addr)
    }

    /// The context that an index names, or 0.
    pub fn context(&self, addr: FiAddr) -> usize {
        self.table.table().split(addr).1
    }
}

/// Converts an address to its canonical socket address.
///
/// # Errors
/// The reason why the address is not usable.
fn usable_addr(addr: &Address) -> Result<SocketAddr, &'static str> {
    match addr {
        Address::Ip(ip) if ip.port() == 0 => Err("it has no port"),
        Address::Ip(ip) => Ok(canonical_addr(*ip)),
        _ => resolve::parse_addr(&addr.to_string()).ok_or(
            "it is not an IP address and port, such as 192.0.2.1:4711; insert_service resolves a \
             host name",
        ),
    }
}

impl OfDomain for Av {
    fn domain(&self) -> &DomainId {
        &self.domain
    }
}

impl AddressVector for Av {
    fn insert(&self, addrs: &[Address], out: &mut [FiAddr]) -> Result<usize> {
        self.fork_guard.check()?;
        insert_all(addrs, out, |addr| match usable_addr(addr) {
            Ok(addr) => self.table.insert(addr).map(Some),
            Err(reason) => {
                log::warn!(target: self.target, "address {addr} is refused: {reason}");
                Ok(None)
            }
        })
    }

    fn insert_service(&self, node: &str, service: &str) -> Result<FiAddr, Error> {
        self.fork_guard.check_for(self)?;
        let addr = resolve::resolve(Some(node), Some(service), false);
        let addr = addr.inspect_err(|error| log::warn!(target: self.target, "{error}"))?;
        self.insert_one(&Address::Ip(addr))
    }

    fn rejection(&self, addr: &Address) -> Error {
        let reason = usable_addr(addr).err().unwrap_or("the vector is full");
        Error::new(Errno::Inval, format!("address {addr} is refused: {reason}"))
    }

    fn insert_symmetric(
        &self,
        node: &str,
        nodes: usize,
        service: &str,
        services: usize,
        out: &mut [FiAddr],
    ) -> Result<usize, Error> {
        self.fork_guard.check_for(self)?;
        let insert = |node: &str, service: &str| self.insert_service(node, service);
        insert_symmetric((node, nodes), (service, services), out, insert)
    }

    fn set_user_id(&self, addr: FiAddr, id: FiAddr) -> Result {
        self.fork_guard.check()?;
        self.table.table().set_id(addr, id)
    }

    fn remove(&self, addrs: &[FiAddr]) -> Result {
        self.fork_guard.check()?;
        self.table.remove(addrs)
    }

    fn lookup(&self, addr: FiAddr) -> Result<Address> {
        self.fork_guard.check()?;
        let found = self.table.lookup(addr);
        found.map(Address::Ip).ok_or(Errno::Inval)
    }

    fn members(&self) -> Result<Vec<FiAddr>> {
        self.fork_guard.check()?;
        Ok(self.table.members())
    }

    fn identity(&self) -> Option<&av::Identity> {
        Some(&self.identity)
    }
}

impl Members for Av {
    fn vector(&self) -> &av::Identity {
        &self.identity
    }

    fn member(&self, addr: FiAddr) -> Result<Address> {
        self.fork_guard.check()?;
        self.addr(addr).map(Address::Ip).ok_or(Errno::Inval)
    }
}

impl Peer for SocketAddr {
    fn to_address(&self) -> Address {
        Address::Ip(*self)
    }

    fn from_address(address: &Address) -> Option<Self> {
        usable_addr(address).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_address_is_reported_with_reason_and_remedy() {
        let domain = DomainId::unnamed();
        let av = Av::open(&av::Attr::default(), &domain, "test", "selvedge::tcp::av").unwrap();
        let rejection = |text: &str| {
            let error = av.insert_one(&Address::Str(text.into())).unwrap_err();
            assert_eq!(error.errno(), Errno::Inval);
            error.to_string()
        };
        let text = rejection("localhost:1");
        assert!(text.contains("address localhost:1 is refused"), "{text}");
        assert!(text.contains("insert_service"), "{text}");
        let without_port = Address::Ip(SocketAddr::from(([127, 0, 0, 1], 0)));
        let text = av.insert_one(&without_port).unwrap_err().to_string();
        assert!(text.contains("it has no port"), "{text}");
    }
}
