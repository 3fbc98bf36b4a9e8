//! Connection management: fi_cm(3). A control path: cost does not matter here.

use std::any::Any;
use std::fmt;

use crate::{Address, Errno, Error, FiAddr, Result};

/// What a connected endpoint offers besides data transfer.
pub trait ConnectionManagement {
    /// Asks a passive endpoint for a connection; the answer arrives on the event queue
    /// (fi_connect(3)).
    ///
    /// # Errors
    /// [`crate::Errno::Inval`] when `data` is longer than the provider carries.
    fn connect(&self, addr: &Address, data: &[u8]) -> Result;
    /// Accepts the request that the endpoint was opened with (fi_accept(3)).
    ///
    /// # Errors
    /// [`crate::Errno::Inval`] when there is none or `data` is too long.
    fn accept(&self, data: &[u8]) -> Result;
    /// Ends the connection; both ends see [`crate::eq::Event::Shutdown`] (fi_shutdown(3)), once, also
    /// when both end it at the same time. What is over already is not ended again.
    ///
    /// # Errors
    /// [`crate::Errno::NotConn`] when there was none yet.
    fn shutdown(&self) -> Result;
    /// The address of the peer (fi_getpeer(3)).
    ///
    /// # Errors
    /// [`crate::Errno::NotConn`] before the connection.
    fn peer(&self) -> Result<Address>;
}

/// An endpoint that waits for connections (fi_passive_ep(3)).
pub trait PassiveEndpoint: Any + fmt::Debug + Send + Sync {
    /// Starts to take requests (fi_listen(3)).
    ///
    /// # Errors
    /// The system's, for an address in use or not available.
    fn listen(&self) -> Result;
    /// Where it listens (fi_getname(3)).
    ///
    /// # Errors
    /// [`crate::Errno::AddrNotAvail`] before it has an address.
    fn address(&self) -> Result<Address>;
    /// Gives it an address, before it listens (fi_setname(3)): from then on [`Self::address`] says
    /// which, with the port that the system has chosen where none was asked for.
    ///
    /// # Errors
    /// [`Errno::OpBadState`] when it has one already, or listens; [`Errno::Inval`] for an address of
    /// another kind; the system's; [`Errno::NoSys`] where endpoints have the address that they are
    /// opened with.
    fn set_address(&self, addr: &Address) -> Result<(), Error> {
        let what = format!("{self:?} does not change its address to {addr}");
        Err(Error::new(Errno::NoSys, what))
    }
    /// What an endpoint is opened with in the place of this one ([`crate::Info::handle`]): it has the
    /// address from then on, and connects from there, and this one is over.
    ///
    /// # Errors
    /// [`Errno::NoSys`] where endpoints do not take the place of others.
    fn handle(&self) -> Result<u64> {
        Err(Errno::NoSys)
    }
    /// Refuses a request by the handle of its [`crate::Info`] (fi_reject(3)).
    ///
    /// # Errors
    /// [`crate::Errno::Inval`] when there is no such request.
    fn reject(&self, handle: u64, data: &[u8]) -> Result;
}

/// That an endpoint is a member of a multicast group (`struct fid_mc`). Dropping it leaves the
/// group.
pub trait Membership: Any + fmt::Debug + Send + Sync {
    /// The group's index in the endpoint's address vector: what is sent there is sent to all members
    /// (fi_mc_addr(3)).
    fn addr(&self) -> FiAddr;
}
