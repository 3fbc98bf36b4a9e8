//! The address vector: names by index.

use selvedge::{Address, AddressVector, Errno, FiAddr, Result, av};
use selvedge_kit::av::Table;
use selvedge_kit::birth::Birth;

use crate::name::Name;

/// Names of peers. Inserting one makes no contact with it.
#[derive(Debug)]
pub(crate) struct Av {
    birth: Birth,
    table: Table<Name>,
}

impl Av {
    pub(crate) fn open(attr: &av::Attr) -> Self {
        Self {
            birth: Birth::here(),
            table: Table::with_capacity(attr.count),
        }
    }

    /// Changes with every insertion and removal.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.table.epoch()
    }

    /// The index of a name, or [`FiAddr::UNSPEC`].
    pub(crate) fn find(&self, name: &Name) -> FiAddr {
        self.table.find(name).unwrap_or(FiAddr::UNSPEC)
    }

    /// The name behind an index.
    pub(crate) fn name(&self, addr: FiAddr) -> Option<Name> {
        self.table.lookup(addr)
    }
}

impl AddressVector for Av {
    fn insert(&self, addrs: &[Address], out: &mut [FiAddr]) -> Result<usize> {
        self.birth.check()?;
        let out = out.get_mut(..addrs.len()).ok_or(Errno::Inval)?;
        let mut inserted = 0;
        for (addr, slot) in addrs.iter().zip(out) {
            let name = addr.as_str().and_then(|text| text.parse().ok());
            *slot = match name {
                Some(name) => {
                    inserted += 1;
                    self.table.insert(name)
                }
                None => {
                    log::warn!(
                        target: "selvedge::lnx::av",
                        "address {addr} is refused: it does not name two links"
                    );
                    FiAddr::NOTAVAIL
                }
            };
        }
        Ok(inserted)
    }

    fn remove(&self, addrs: &[FiAddr]) -> Result {
        self.birth.check()?;
        self.table.remove(addrs)
    }

    fn lookup(&self, addr: FiAddr) -> Result<Address> {
        self.birth.check()?;
        self.name(addr)
            .map(|name| name.to_address())
            .ok_or(Errno::Inval)
    }
}
