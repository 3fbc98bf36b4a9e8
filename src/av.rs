//! Address vectors: fi_av(3).

mod identity;
mod set;

use std::any::Any;
use std::fmt;

use crate::{Address, Errno, Error, FiAddr, Result};

pub use identity::Identity;
pub use set::{Range, Set, SetAttr};

/// How indices are given out (`enum fi_av_type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Type {
    /// The provider's choice.
    #[default]
    Unspec = 0,
    /// Deprecated: opaque handles.
    Map = 1,
    /// Indices from zero on, the lowest free one first.
    Table = 2,
}

/// How an address vector is opened (`struct fi_av_attr`).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Attr {
    /// How indices are given out.
    pub av_type: Type,
    /// Expected number of addresses; 0 for the provider's default. It is a hint, not a limit.
    pub count: usize,
    /// How many of the upper bits of an index say which context of a scalable endpoint is meant
    /// ([`FiAddr::rx_addr`]); 0 for none.
    pub rx_ctx_bits: u32,
    /// A name by which processes of this host have the vector in common, where there is
    /// [`crate::Caps::SHARED_AV`].
    pub name: Option<Named>,
}

/// The name of an address vector that processes of one user on one host have in common, by what this
/// process does with it. Indices are the same in all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// Makes it. It is gone when this process closes it, or ends; whoever has it open keeps what is in it.
    /// While there is one, there is no second of this name and this domain.
    Make(String),
    /// Opens it for reading (`FI_READ`): insertions and removals are refused with [`Errno::Acces`].
    Read(String),
}

/// A table of peers.
///
/// Inserting an address that is already there gives the index that it has (libfabric leaves this
/// undefined). Indices of removed addresses are given out again, the lowest first.
pub trait AddressVector: Any + fmt::Debug + Send + Sync {
    /// Adds addresses; `out[i]` is the handle of `addrs[i]`, or [`FiAddr::NOTAVAIL`]
    /// (fi_av_insert(3)). Says how many were inserted.
    ///
    /// # Errors
    /// [`Errno::Inval`] when `out` is shorter than `addrs`; nothing was inserted then. A malformed
    /// address only fails its own slot.
    fn insert(&self, addrs: &[Address], out: &mut [FiAddr]) -> Result<usize>;

    /// Adds one address.
    ///
    /// # Errors
    /// [`Errno::Inval`] when the address is malformed or of a format that this vector does not
    /// carry, with [`Self::refusal`]; those of [`Self::insert`].
    fn insert_one(&self, addr: &Address) -> Result<FiAddr, Error> {
        let mut out = [FiAddr::NOTAVAIL];
        match self.insert(std::slice::from_ref(addr), &mut out) {
            Ok(1) => Ok(out[0]),
            Ok(_) => Err(self.refusal(addr)),
            Err(errno) => {
                let what = format!("address {addr} cannot be inserted");
                Err(Error::new(errno, what))
            }
        }
    }

    /// Says of an address that this vector does not take why that is, and what to do.
    fn refusal(&self, addr: &Address) -> Error {
        let what = format!("address {addr} is none that this address vector takes");
        Error::new(Errno::Inval, what)
    }

    /// Adds the address that `node` and `service` resolve to, as fi_getinfo(3) resolves them
    /// (fi_av_insertsvc(3)). Either may be empty, for none.
    ///
    /// # Errors
    /// [`Errno::Inval`] when they name nothing; [`Errno::NoSys`] where addresses are not resolved
    /// from names.
    fn insert_service(&self, node: &str, service: &str) -> Result<FiAddr, Error> {
        Err(unresolved(node, service))
    }

    /// Adds the addresses of `services` services on each of `nodes` nodes, in the order of nodes
    /// (fi_av_insertsym(3)). The names are counted up from those given, by the number at their end.
    /// `out` and the answer are as for [`Self::insert`].
    ///
    /// # Errors
    /// [`Errno::Inval`] when `out` is too short, or a name that has to be counted has no number at
    /// its end; nothing was inserted then. [`Errno::NoSys`] where addresses are not resolved from
    /// names.
    fn insert_symmetric(
        &self,
        node: &str,
        nodes: usize,
        service: &str,
        services: usize,
        out: &mut [FiAddr],
    ) -> Result<usize, Error> {
        let _ = (nodes, services, out);
        Err(unresolved(node, service))
    }

    /// Has completions name a peer by a number of the application's, in place of its index
    /// (fi_av_set_user_id(3)). Posts name it by its index all the same. It ends when the peer is
    /// removed.
    ///
    /// # Errors
    /// [`Errno::Inval`] when the peer is not in the table, or for [`FiAddr::UNSPEC`] as its number;
    /// [`Errno::NoSys`] where there is no such thing ([`crate::Caps::AV_USER_ID`]).
    fn set_user_id(&self, addr: FiAddr, id: FiAddr) -> Result {
        let _ = (addr, id);
        Err(Errno::NoSys)
    }

    /// Removes peers (fi_av_remove(3)).
    ///
    /// # Errors
    /// [`Errno::Inval`] when one of them is not in the table; nothing was removed then.
    fn remove(&self, addrs: &[FiAddr]) -> Result;

    /// The address behind a handle (fi_av_lookup(3)).
    ///
    /// # Errors
    /// [`Errno::Inval`] when it is not in the table.
    fn lookup(&self, addr: FiAddr) -> Result<Address>;

    /// The indices in use, in their order: what sets are made of.
    ///
    /// # Errors
    /// [`Errno::NoSys`] where the vector does not know.
    fn members(&self) -> Result<Vec<FiAddr>> {
        Err(Errno::NoSys)
    }

    /// The identity of this vector, by which its sets are refused where another vector is in use.
    /// `None` where the vector has none: its sets are told from those of vectors with an identity
    /// alone.
    fn identity(&self) -> Option<&Identity> {
        None
    }
}

fn unresolved(node: &str, service: &str) -> Error {
    let what = format!(
        "node {node:?} with service {service:?}: this address vector resolves no names; insert the \
         peer's address"
    );
    Error::new(Errno::NoSys, what)
}
