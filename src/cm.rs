//! Connection management: fi_cm(3).

use std::any::Any;
use std::fmt;

use crate::{Address, Errno, Error, FiAddr, Result};

/// Connection management of a connected endpoint.
pub trait ConnectionManagement {
    /// Requests a connection from a passive endpoint (fi_connect(3)). The event queue reports the
    /// result.
    ///
    /// # Errors
    /// [`crate::Errno::Inval`] when `data` is longer than [`crate::EpOption::CmDataSize`].
    fn connect(&self, addr: &Address, data: &[u8]) -> Result;
    /// Accepts the request that the endpoint was opened with (fi_accept(3)).
    ///
    /// # Errors
    /// [`crate::Errno::Inval`] when there is no request, or `data` is too long.
    fn accept(&self, data: &[u8]) -> Result;
    /// Closes the connection (fi_shutdown(3)). Both sides receive one [`crate::eq::Event::Shutdown`],
    /// also when both close it at the same time. Closing a closed connection has no effect.
    ///
    /// # Errors
    /// [`crate::Errno::NotConn`] before the connection is established.
    fn shutdown(&self) -> Result;
    /// The address of the peer (fi_getpeer(3)).
    ///
    /// # Errors
    /// [`crate::Errno::NotConn`] before the connection is established.
    fn peer(&self) -> Result<Address>;
}

/// An endpoint that listens for connection requests (fi_passive_ep(3)).
pub trait PassiveEndpoint: Any + fmt::Debug + Send + Sync {
    /// Starts to listen for requests (fi_listen(3)).
    ///
    /// # Errors
    /// Those of bind(2) and listen(2), such as [`Errno::AddrInUse`].
    fn listen(&self) -> Result;
    /// The address that it listens on (fi_getname(3)).
    ///
    /// # Errors
    /// [`crate::Errno::AddrNotAvail`] before it has an address.
    fn address(&self) -> Result<Address>;
    /// Sets the address before it listens (fi_setname(3)). [`Self::address`] then returns it, with the
    /// port that the system has assigned if the port was 0.
    ///
    /// # Errors
    /// [`Errno::OpBadState`] when it already has an address or listens; [`Errno::Inval`] for an address
    /// of another format; those of bind(2); [`Errno::NoSys`] where the address cannot be changed.
    fn set_address(&self, addr: &Address) -> Result<(), Error> {
        let text =
            format!("{self:?} cannot change its address to {addr}; open it with this address");
        Err(Error::new(Errno::NoSys, text))
    }
    /// The handle to open an active endpoint with in place of this one ([`crate::Info::handle`]). The
    /// active endpoint takes over the address and connects from it; this endpoint can no longer be
    /// used.
    ///
    /// # Errors
    /// [`Errno::NoSys`] where the provider does not support it.
    fn handle(&self) -> Result<u64> {
        Err(Errno::NoSys)
    }
    /// Rejects the request with the handle of its [`crate::Info`] (fi_reject(3)).
    ///
    /// # Errors
    /// [`crate::Errno::Inval`] when there is no such request.
    fn reject(&self, handle: u64, data: &[u8]) -> Result;
}

/// Membership of an endpoint in a multicast or collective group (`struct fid_mc`). Dropping it leaves
/// the group.
pub trait Membership: Any + fmt::Debug + Send + Sync {
    /// The address of the group (fi_mc_addr(3)). A message to it is sent to all members.
    fn addr(&self) -> FiAddr;
}
