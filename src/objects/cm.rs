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
    /// Accepts the request with which the endpoint was opened (fi_accept(3)).
    ///
    /// # Errors
    /// [`crate::Errno::Inval`] when the endpoint has no request, or `data` is too long.
    fn accept(&self, data: &[u8]) -> Result;
    /// Closes the connection (fi_shutdown(3)). Each side receives one
    /// [`crate::eq::Event::Shutdown`], also when both sides close at the same time. Closing a closed
    /// connection has no effect.
    ///
    /// # Errors
    /// [`crate::Errno::NotConn`] before the connection is established.
    fn shutdown(&self) -> Result;
    /// Returns the address of the peer (fi_getpeer(3)).
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
    /// The errors of bind(2) and listen(2), such as [`Errno::AddrInUse`].
    fn listen(&self) -> Result;
    /// Returns the address at which the endpoint listens (fi_getname(3)).
    ///
    /// # Errors
    /// [`crate::Errno::AddrNotAvail`] before the endpoint has an address.
    fn address(&self) -> Result<Address>;
    /// Sets the address of an endpoint that does not listen yet (fi_setname(3)). [`Self::address`]
    /// then returns the address, with the port that the system has assigned if the port was 0.
    ///
    /// # Errors
    /// [`Errno::OpBadState`] when the endpoint already has an address or listens; [`Errno::Inval`]
    /// for an address of another format; the errors of bind(2); [`Errno::NoSys`] where the provider
    /// does not support the change.
    fn set_address(&self, addr: &Address) -> Result<(), Error> {
        let text =
            format!("{self:?} cannot change its address to {addr}; open it with this address");
        Err(Error::new(Errno::NoSys, text))
    }
    /// Returns the handle with which an active endpoint takes over this endpoint's address
    /// ([`crate::Info::handle`]). The active endpoint then connects from the address, and this
    /// endpoint can no longer be used.
    ///
    /// # Errors
    /// [`Errno::NoSys`] where the provider does not support the transfer.
    fn handle(&self) -> Result<u64> {
        Err(Errno::NoSys)
    }
    /// Rejects the request with the handle of its [`crate::Info`] (fi_reject(3)).
    ///
    /// # Errors
    /// [`crate::Errno::Inval`] when no request has this handle, or `data` is too long.
    fn reject(&self, handle: u64, data: &[u8]) -> Result;
}

/// Membership of an endpoint in a multicast or collective group (`struct fid_mc`). Dropping the
/// membership leaves the group.
pub trait Membership: Any + fmt::Debug + Send + Sync {
    /// Returns the address of the group (fi_mc_addr(3)). A message to this address is sent to all
    /// members.
    fn addr(&self) -> FiAddr;
}
