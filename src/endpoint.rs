//! Endpoints: fi_endpoint(3).

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::{
    Address, AddressVector, Atomic, Collective, CompletionQueue, ConnectionManagement, Context,
    Counter, EpOption, EpOptionName, Errno, Error, EventQueue, Membership, Msg, Result, Rma,
    SharedReceives, Tagged,
};

/// One end of communication: what messages are posted to.
///
/// Opened by [`crate::Domain::endpoint`], already bound and enabled. Dropping the last handle
/// closes it: outstanding operations end without completions.
///
/// # Safety
/// For implementors: after an operation's completion has been pushed, and after the last handle
/// was dropped, the implementation never again touches that operation's buffers, neither itself
/// nor through a peer that acts for it. Of a multi-receive buffer that is the completion with
/// [`crate::CompletionFlags::MULTI_RECV`], and for the bytes of one message in it, its own; its
/// completions name bytes of that buffer, and none twice.
#[expect(unsafe_code, reason = "the safe layer relies on this promise")]
pub unsafe trait Endpoint:
    Any + fmt::Debug + Send + Sync + Msg + Tagged + Rma + Atomic
{
    /// The address that peers insert (fi_getname(3)).
    ///
    /// # Errors
    /// [`Errno::AddrNotAvail`] where it has none.
    fn address(&self) -> Result<Address>;

    /// Tries to take back one posted operation (fi_cancel(3)). If that works, it completes with
    /// [`Errno::Canceled`].
    ///
    /// # Errors
    /// [`Errno::NoEnt`] when there is no such operation, or it is too late.
    fn cancel(&self, context: Context) -> Result;

    /// Changes an option (fi_setopt(3)).
    ///
    /// # Errors
    /// [`Errno::NoProtoOpt`] where the option is unknown; [`Errno::Inval`] for a bad value.
    fn set(&self, option: EpOption) -> Result {
        let _ = option;
        Err(Errno::NoProtoOpt)
    }

    /// Reads an option (fi_getopt(3)), named by [`EpOption`]'s variants.
    ///
    /// # Errors
    /// [`Errno::NoProtoOpt`] where the option is unknown.
    fn option(&self, name: EpOptionName) -> Result<EpOption> {
        let _ = name;
        Err(Errno::NoProtoOpt)
    }

    /// Binds the open endpoint to queues and counters that it lacks (fi_ep_bind(3) after
    /// fi_enable(3)). Operations that complete from here on use them.
    ///
    /// The caller has posted nothing yet whose completions would go to a queue that is replaced.
    ///
    /// # Errors
    /// [`Errno::OpBadState`] for what an open endpoint cannot take any more, and always where
    /// the provider takes nothing; [`Errno::Inval`] for an object of another provider. Nothing was
    /// bound then.
    fn bind_late(&self, late: &LateBindings) -> Result<(), Error> {
        let _ = late;
        Err(LateBindings::unsupported())
    }

    /// Makes the endpoint a member of a multicast group (fi_join(3)): what is sent to the group is
    /// received here, too. The event queue that the endpoint is bound to, if it is to one, is told
    /// with `context`.
    ///
    /// # Errors
    /// [`Errno::NoSys`] where there is no multicast; [`Errno::Inval`] for an address that is no
    /// group's; the system's.
    fn join(&self, group: &Address, context: Context) -> Result<Arc<dyn Membership>> {
        let _ = (group, context);
        Err(Errno::NoSys)
    }

    /// Groups and collectives, for endpoints with [`crate::Caps::COLLECTIVE`].
    fn collective(&self) -> Option<&dyn Collective> {
        None
    }

    /// Connection management, for connected endpoints.
    fn cm(&self) -> Option<&dyn ConnectionManagement> {
        None
    }
}

/// What an endpoint is bound to. No endpoint exists that lacks what it needs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Bindings {
    /// Where sends and other own operations complete.
    pub tx_cq: Arc<dyn CompletionQueue>,
    /// Report only operations with [`crate::OpFlags::COMPLETION`] on `tx_cq`
    /// (`FI_SELECTIVE_COMPLETION`).
    pub tx_selective: bool,
    /// Where receives complete.
    pub rx_cq: Arc<dyn CompletionQueue>,
    /// Report only operations with [`crate::OpFlags::COMPLETION`] on `rx_cq`.
    pub rx_selective: bool,
    /// The peers; needed by unconnected endpoints.
    pub av: Option<Arc<dyn AddressVector>>,
    /// Where connections are reported.
    pub eq: Option<Arc<dyn EventQueue>>,
    /// Counters, by the operations they count.
    pub cntrs: Counters,
    /// Receives that it shares with others of its domain. Its own, if it has any, come first.
    pub srx: Option<Arc<dyn SharedReceives>>,
}

impl Bindings {
    /// One queue for both directions and an address vector: what an unconnected endpoint needs.
    pub fn new(cq: Arc<dyn CompletionQueue>, av: Arc<dyn AddressVector>) -> Self {
        Self {
            tx_cq: Arc::clone(&cq),
            tx_selective: false,
            rx_cq: cq,
            rx_selective: false,
            av: Some(av),
            eq: None,
            cntrs: Counters::default(),
            srx: None,
        }
    }
}

/// What an open endpoint is bound to afterwards ([`Endpoint::bind_late`]).
#[expect(
    clippy::exhaustive_structs,
    reason = "callers write it with `..Default::default()`"
)]
#[derive(Clone, Debug, Default)]
pub struct LateBindings {
    /// Where sends and other own operations complete, and whether only those report there that
    /// ask for it ([`Bindings::tx_selective`]).
    pub tx_cq: Option<(Arc<dyn CompletionQueue>, bool)>,
    /// Where receives complete, likewise.
    pub rx_cq: Option<(Arc<dyn CompletionQueue>, bool)>,
    /// Counters of operations that nothing counts yet.
    pub cntrs: Counters,
}

impl LateBindings {
    /// The error of endpoints that take nothing after they are opened.
    pub fn unsupported() -> Error {
        let what = "the provider's endpoints take no queue or counter after they are enabled: bind \
                    them before";
        Error::new(Errno::OpBadState, what)
    }
}

/// The counters of an endpoint, by the operations they count.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Sends.
    pub send: Option<Arc<dyn Counter>>,
    /// Receives.
    pub recv: Option<Arc<dyn Counter>>,
    /// Own reads, and fetching atomics.
    pub read: Option<Arc<dyn Counter>>,
    /// Own writes, and atomics without result.
    pub write: Option<Arc<dyn Counter>>,
    /// Reads by peers.
    pub remote_read: Option<Arc<dyn Counter>>,
    /// Writes by peers.
    pub remote_write: Option<Arc<dyn Counter>>,
}
