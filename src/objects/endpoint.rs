//! Endpoints: fi_endpoint(3).

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::{
    Address, Atomic, Collective, CompletionQueue, ConnectionManagement, Context, Counter, EpOption,
    EpOptionName, Errno, Error, FiAddr, Lending, Membership, Msg, PeerCredentials, Result, Rma,
    Tagged,
};

/// A communication endpoint, to which operations are posted.
///
/// [`crate::Domain::endpoint`] opens an endpoint, bound and enabled. Dropping the last handle closes
/// the endpoint: outstanding operations end without completions.
///
/// # Safety
/// For implementors: after the completion of an operation was pushed, and after the last handle was
/// dropped, neither the implementation nor a peer on its behalf accesses the operation's buffers.
/// For a multi-receive buffer, this holds after the completion with
/// [`crate::CompletionFlags::MULTI_RECV`]; for the bytes of one message in such a buffer, after the
/// completion of that message. The completions of a multi-receive buffer name bytes of that buffer,
/// and no byte twice.
#[expect(unsafe_code, reason = "the safe layer relies on this promise")]
pub unsafe trait Endpoint:
    Any + fmt::Debug + Send + Sync + Msg + Tagged + Rma + Atomic
{
    /// Returns the address that peers insert (fi_getname(3)).
    ///
    /// # Errors
    /// [`Errno::AddrNotAvail`] for an endpoint without an address.
    fn address(&self) -> Result<Address>;

    /// Returns what the kernel or a certificate authority vouches for about a connected peer.
    ///
    /// # Errors
    /// [`Errno::NoSys`] where nothing vouches for peers; [`Errno::NotConn`] for a peer without a
    /// connection; [`Errno::Inval`] for an index that the address vector does not have.
    fn peer_credentials(&self, peer: FiAddr) -> Result<PeerCredentials> {
        let _ = peer;
        Err(Errno::NoSys)
    }

    /// Tries to cancel a posted operation (fi_cancel(3)). A cancelled operation completes with
    /// [`Errno::Canceled`].
    ///
    /// # Errors
    /// [`Errno::NoEnt`] when no operation has this context, or the operation can no longer be
    /// cancelled.
    fn cancel(&self, context: Context) -> Result;

    /// Changes an option (fi_setopt(3)).
    ///
    /// # Errors
    /// [`Errno::NoProtoOpt`] for an option that the provider does not have; [`Errno::Inval`] for an
    /// invalid value.
    fn set(&self, option: EpOption) -> Result {
        let _ = option;
        Err(Errno::NoProtoOpt)
    }

    /// Returns the value of an option (fi_getopt(3)).
    ///
    /// # Errors
    /// [`Errno::NoProtoOpt`] for an option that the provider does not have.
    fn option(&self, name: EpOptionName) -> Result<EpOption> {
        let _ = name;
        Err(Errno::NoProtoOpt)
    }

    /// Binds an open endpoint to further queues and counters (fi_ep_bind(3) after fi_enable(3)).
    /// Operations that complete later report to these objects.
    ///
    /// The caller must not have posted an operation whose completion would go to a replaced queue.
    ///
    /// # Errors
    /// [`Errno::OpBadState`] for an object that an open endpoint cannot be bound to, and always where
    /// the provider does not support late bindings; [`Errno::Inval`] for an object of another
    /// provider. After an error, no object is bound.
    fn bind_late(&self, late: &LateBindings) -> Result<(), Error> {
        let _ = late;
        Err(LateBindings::unsupported())
    }

    /// Joins a multicast group (fi_join(3)): the endpoint receives messages to the group. If the
    /// endpoint is bound to an event queue, the queue reports [`crate::eq::Event::JoinComplete`]
    /// with
    /// `context`.
    ///
    /// # Errors
    /// [`Errno::NoSys`] where the provider has no multicast; [`Errno::Inval`] for an address that is not
    /// a multicast address; the errors of setsockopt(2).
    fn join(&self, group: &Address, context: Context) -> Result<Arc<dyn Membership>> {
        let _ = (group, context);
        Err(Errno::NoSys)
    }

    /// Returns the interface to groups and collectives, for endpoints with
    /// [`crate::Caps::COLLECTIVE`].
    fn collective(&self) -> Option<&dyn Collective> {
        None
    }

    /// Returns the interface to lent messages, for endpoints that send and receive messages by
    /// reference. Other endpoints refuse posts with [`crate::OpFlags::LEND`], with
    /// [`Errno::BadFlags`].
    fn lending(&self) -> Option<&dyn Lending> {
        None
    }

    /// Returns the interface to connection management, for connected endpoints.
    fn cm(&self) -> Option<&dyn ConnectionManagement> {
        None
    }
}

/// Further objects to which an open endpoint is bound ([`Endpoint::bind_late`]).
#[expect(
    clippy::exhaustive_structs,
    reason = "callers write it with `..Default::default()`"
)]
#[derive(Clone, Debug, Default)]
pub struct LateBindings {
    /// The queue for completions of sends and other local operations, and whether it is selective
    /// ([`crate::Bindings::tx_selective`]).
    pub tx_cq: Option<(Arc<dyn CompletionQueue>, bool)>,
    /// The queue for completions of receives, and whether it is selective
    /// ([`crate::Bindings::rx_selective`]).
    pub rx_cq: Option<(Arc<dyn CompletionQueue>, bool)>,
    /// Counters for operations without a counter.
    pub cntrs: Counters,
}

impl LateBindings {
    /// Returns the error of a provider without late bindings.
    pub fn unsupported() -> Error {
        let text = "the provider cannot bind a queue or counter to an enabled endpoint: bind it before \
                    the endpoint is enabled";
        Error::new(Errno::OpBadState, text)
    }
}

/// The counters of an endpoint, by the operations that they count.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Sends.
    pub send: Option<Arc<dyn Counter>>,
    /// Receives.
    pub recv: Option<Arc<dyn Counter>>,
    /// Local reads, and atomics with a result.
    pub read: Option<Arc<dyn Counter>>,
    /// Local writes, and atomics without a result.
    pub write: Option<Arc<dyn Counter>>,
    /// Reads by peers.
    pub remote_read: Option<Arc<dyn Counter>>,
    /// Writes by peers.
    pub remote_write: Option<Arc<dyn Counter>>,
}
