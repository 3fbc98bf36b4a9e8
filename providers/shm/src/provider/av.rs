//! `Av`: the address vector, which holds endpoint names by index.

use selvedge::{Address, AddressVector, Errno, Error, FiAddr, Result, av};
use selvedge_kit::av::{Peer, Vector, insert_all, insert_symmetric};
use selvedge_kit::coll::Members;
use selvedge_kit::fork_guard::ForkGuard;
use selvedge_kit::{DomainId, OfDomain};

use crate::peers::name::{Name, service_address};

/// An address vector. Inserting a name does not connect to the peer.
#[derive(Debug)]
pub(crate) struct Av {
    fork_guard: ForkGuard,
    domain: DomainId,
    identity: av::Identity,
    table: Vector<Name>,
}

impl Av {
    /// Opens an empty address vector.
    ///
    /// # Errors
    /// As [`Vector::open`].
    pub(crate) fn open(attr: &av::Attr, domain: &DomainId) -> Result<Self, Error> {
        Ok(Self {
            fork_guard: ForkGuard::current(),
            domain: domain.clone(),
            identity: av::Identity::new(domain),
            table: Vector::open(attr, "shm")?,
        })
    }

    /// Returns a number that changes with every insertion and removal.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.table.epoch()
    }

    /// Returns the index of a name, or [`FiAddr::UNSPEC`].
    pub(crate) fn find(&self, name: &Name) -> FiAddr {
        self.table.table().find(name).unwrap_or(FiAddr::UNSPEC)
    }

    /// Returns the address of a name in completions, or [`FiAddr::UNSPEC`].
    pub(crate) fn source(&self, name: &Name) -> FiAddr {
        let source = self.table.source(name);
        let source = source.or_else(|| {
            let (whole, context) = name.as_context()?;
            self.table.context_source(&whole, context)
        });
        source.unwrap_or(FiAddr::UNSPEC)
    }

    /// Returns every name, in the order of indices.
    pub(crate) fn names(&self) -> Vec<Name> {
        self.table
            .peers()
            .into_iter()
            .map(|(_, name)| name)
            .collect()
    }

    /// Returns the name at an index, or the context's name if the index has a context in its upper
    /// bits.
    pub(crate) fn name(&self, addr: FiAddr) -> Option<Name> {
        let (peer, context) = self.table.table().split(addr);
        let name = self.table.lookup(peer)?;
        match context {
            0 => Some(name),
            context => name.of_context(context).ok(),
        }
    }

    /// Whether an index names a context other than the first.
    pub(crate) fn names_context(&self, addr: FiAddr) -> bool {
        self.table.table().split(addr).1 != 0
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
        insert_all(addrs, out, |addr| match Name::try_from(addr) {
            Ok(name) => self.table.insert(name).map(Some),
            Err(error) => {
                log::warn!(target: "selvedge::shm::av", "{error}");
                Ok(None)
            }
        })
    }

    fn insert_service(&self, node: &str, service: &str) -> Result<FiAddr, Error> {
        let non_empty = |name: &'_ str| (!name.is_empty()).then_some(name.to_owned());
        let (node, service) = (non_empty(node), non_empty(service));
        let address = service_address(node.as_deref(), service.as_deref());
        let address = address.ok_or_else(|| {
            let reason = "the node and the service are empty: one of them must name the peer";
            Error::new(Errno::Inval, reason)
        })?;
        self.insert_one(&address)
    }

    fn rejection(&self, addr: &Address) -> Error {
        let refused = Name::try_from(addr).err();
        refused.unwrap_or_else(|| Error::new(Errno::Inval, format!("address {addr} is refused")))
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
        self.table
            .lookup(addr)
            .map(|name| name.to_address())
            .ok_or(Errno::Inval)
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
        let name = self.name(addr).ok_or(Errno::Inval)?;
        Ok(name.to_address())
    }
}

impl Peer for Name {
    fn to_address(&self) -> Address {
        self.to_address()
    }

    fn from_address(address: &Address) -> Option<Self> {
        Self::try_from(address).ok()
    }
}
