//! Address vectors: fi_av(3).

mod identity;
mod set;

use std::any::Any;
use std::fmt;

use crate::{Address, Errno, Error, FiAddr, Result};

pub use identity::Identity;
pub use set::{Range, Set, SetAttr};

/// The method by which an address vector assigns indices (`enum fi_av_type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Type {
    /// The provider's choice.
    #[default]
    Unspec = 0,
    /// Deprecated: opaque handles.
    Map = 1,
    /// Indices that begin at 0; the lowest free index is assigned first.
    Table = 2,
}

/// Attributes of an address vector (`struct fi_av_attr`).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Attr {
    /// The method by which indices are assigned.
    pub av_type: Type,
    /// The expected number of addresses; 0 for the provider's default. This is a hint, not a limit.
    pub count: usize,
    /// The number of upper bits of an index that select a context of a scalable endpoint
    /// ([`FiAddr::rx_addr`]); 0 for none.
    pub rx_ctx_bits: u32,
    /// The name of a vector that processes on this host share, under [`crate::Caps::SHARED_AV`].
    pub name: Option<SharedName>,
}

/// The name of an address vector that processes of one user on one host share. Indices are the same
/// in all processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SharedName {
    /// Creates the vector. The name is removed when this process closes the vector or exits;
    /// processes that have opened the vector keep its content. While the name exists, creating a
    /// second vector of the same name and domain fails.
    Create(String),
    /// Opens the vector for reading (`FI_READ`): insertions and removals fail with
    /// [`Errno::Acces`].
    Open(String),
}

/// A table of peer addresses.
///
/// Inserting an address again returns its existing index (libfabric leaves this undefined). Indices
/// of removed addresses are reused, the lowest first.
pub trait AddressVector: Any + fmt::Debug + Send + Sync {
    /// Inserts addresses (fi_av_insert(3)). `out[i]` is set to the index of `addrs[i]`, or to
    /// [`FiAddr::NOTAVAIL`]. Returns the number of inserted addresses.
    ///
    /// # Errors
    /// [`Errno::Inval`] when `out` is shorter than `addrs`; then no address is inserted. A malformed
    /// address is not an error of the call: its entry in `out` is [`FiAddr::NOTAVAIL`].
    fn insert(&self, addrs: &[Address], out: &mut [FiAddr]) -> Result<usize>;

    /// Inserts one address.
    ///
    /// # Errors
    /// [`Self::rejection`] for an address that is malformed or of an unsupported format; the errors
    /// of [`Self::insert`].
    fn insert_one(&self, addr: &Address) -> Result<FiAddr, Error> {
        let mut out = [FiAddr::NOTAVAIL];
        match self.insert(std::slice::from_ref(addr), &mut out) {
            Ok(1) => Ok(out[0]),
            Ok(_) => Err(self.rejection(addr)),
            Err(errno) => {
                let message = format!("address {addr} cannot be inserted");
                Err(Error::new(errno, message))
            }
        }
    }

    /// Returns the error for an address that this vector does not accept, with the reason and the
    /// remedy.
    fn rejection(&self, addr: &Address) -> Error {
        let message = format!("address {addr} is not valid in this address vector");
        Error::new(Errno::Inval, message)
    }

    /// Inserts the address that `node` and `service` resolve to, as in fi_getinfo(3)
    /// (fi_av_insertsvc(3)). Either may be empty.
    ///
    /// # Errors
    /// [`Errno::Inval`] when node and service cannot be resolved; [`Errno::NoSys`] where the vector
    /// does not resolve names.
    fn insert_service(&self, node: &str, service: &str) -> Result<FiAddr, Error> {
        Err(unresolved(node, service))
    }

    /// Inserts the addresses of `services` services on each of `nodes` nodes, in the order of nodes
    /// (fi_av_insertsym(3)). The names of further nodes and services are formed by incrementing the
    /// number at the end of `node` and `service`. `out` and the result are as in [`Self::insert`].
    ///
    /// # Errors
    /// [`Errno::Inval`] when `out` is too short, or a name that has to be incremented does not end in
    /// a number; then no address is inserted. [`Errno::NoSys`] where the vector does not resolve
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

    /// Sets the id by which completions name a peer, in place of its index (fi_av_set_user_id(3)).
    /// Posts still use the index. Removing the peer removes the id.
    ///
    /// # Errors
    /// [`Errno::Inval`] when the peer is not in the table, or `id` is [`FiAddr::UNSPEC`];
    /// [`Errno::NoSys`] without [`crate::Caps::AV_USER_ID`].
    fn set_user_id(&self, addr: FiAddr, id: FiAddr) -> Result {
        let _ = (addr, id);
        Err(Errno::NoSys)
    }

    /// Removes peers (fi_av_remove(3)).
    ///
    /// # Errors
    /// [`Errno::Inval`] when a peer is not in the table; then no peer is removed.
    fn remove(&self, addrs: &[FiAddr]) -> Result;

    /// Returns the address of an index (fi_av_lookup(3)).
    ///
    /// # Errors
    /// [`Errno::Inval`] when the index is not in use.
    fn lookup(&self, addr: FiAddr) -> Result<Address>;

    /// Returns the indices in use, in ascending order. They are the members of a [`Set`].
    ///
    /// # Errors
    /// [`Errno::NoSys`] where the vector does not list its indices.
    fn members(&self) -> Result<Vec<FiAddr>> {
        Err(Errno::NoSys)
    }

    /// Returns the identity of this vector, or `None` if the vector has no identity. An endpoint
    /// rejects a [`Set`] of a vector with another identity than the vector that it is bound to.
    fn identity(&self) -> Option<&Identity> {
        None
    }
}

fn unresolved(node: &str, service: &str) -> Error {
    let message = format!(
        "node {node:?} with service {service:?}: this address vector does not resolve names; insert \
         the peer's address"
    );
    Error::new(Errno::NoSys, message)
}
