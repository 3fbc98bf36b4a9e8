//! The address vector: names by index.

use std::fmt;
use std::sync::Arc;

use selvedge::{Address, AddressVector, Domain, Errno, Error, FiAddr, Result, av};
use selvedge_kit::av::{Table, insert_all, insert_symmetric};
use selvedge_kit::fork_guard::ForkGuard;
use selvedge_kit::{DomainId, OfDomain};

use crate::name::{Name, host_of};

/// A table of peers' names. An insertion does not connect to the peer.
pub(crate) struct Av {
    fork_guard: ForkGuard,
    domain: DomainId,
    identity: av::Identity,
    table: Table<Name>,
    /// The domains of the links, which resolve nodes and services.
    links: [Arc<dyn Domain>; 2],
    /// The number of this host.
    host: u64,
}

impl Av {
    pub(crate) fn open(
        attr: &av::Attr,
        domain: &DomainId,
        links: [Arc<dyn Domain>; 2],
        host: u64,
    ) -> Self {
        Self {
            fork_guard: ForkGuard::current(),
            domain: domain.clone(),
            identity: av::Identity::new(domain),
            table: Table::with_capacity(attr.count),
            links,
            host,
        }
    }

    /// A number that changes with every insertion and removal.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.table.epoch()
    }

    /// The source address of a name in completions, or [`FiAddr::UNSPEC`].
    pub(crate) fn source(&self, name: &Name) -> FiAddr {
        self.table.source(name).unwrap_or(FiAddr::UNSPEC)
    }

    /// The name behind an index.
    pub(crate) fn name(&self, addr: FiAddr) -> Option<Name> {
        self.table.lookup(addr)
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
        insert_all(addrs, out, |addr| {
            let name = Name::from_address(addr);
            if name.is_none() {
                log::warn!(target: "selvedge::lnx::av", "{}", self.rejection(addr));
            }
            Ok(name.map(|name| self.table.insert(name)))
        })
    }

    fn rejection(&self, addr: &Address) -> Error {
        let message = format!(
            "address {addr} is refused: it has no addresses on two links; use the address of an \
             endpoint of lnx"
        );
        Error::new(Errno::Inval, message)
    }

    fn insert_service(&self, node: &str, service: &str) -> Result<FiAddr, Error> {
        self.fork_guard.check_for(self)?;
        let [near, far] = &self.links;
        let near = match service {
            "" => resolve(&**near, node, "")?,
            _ => resolve(&**near, "", service)?,
        };
        let far = resolve(&**far, node, service)?;
        let host = host_of(&far, self.host);
        Ok(self.table.insert(Name { host, near, far }))
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
        self.table.set_id(addr, id)
    }

    fn members(&self) -> Result<Vec<FiAddr>> {
        self.fork_guard.check()?;
        Ok(self.table.members())
    }

    fn identity(&self) -> Option<&av::Identity> {
        Some(&self.identity)
    }

    fn remove(&self, addrs: &[FiAddr]) -> Result {
        self.fork_guard.check()?;
        self.table.remove(addrs)
    }

    fn lookup(&self, addr: FiAddr) -> Result<Address> {
        self.fork_guard.check()?;
        self.name(addr)
            .map(|name| name.to_address())
            .ok_or(Errno::Inval)
    }
}

/// The address of a node and a service on a link.
fn resolve(link: &dyn Domain, node: &str, service: &str) -> Result<Address, Error> {
    let av = link.av(&av::Attr::default())?;
    let addr = av.insert_service(node, service)?;
    av.lookup(addr).map_err(|errno| {
        let message =
            format!("node {node:?} with service {service:?}: the link has no address for it");
        Error::new(errno, message)
    })
}

impl fmt::Debug for Av {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "address vector of {} names of {:?}",
            self.table.len(),
            self.domain
        )
    }
}
