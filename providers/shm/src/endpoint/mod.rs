//! `Endpoint`: opening, options and addresses. It posts no messages and makes no progress.

pub(crate) mod coll_channel;
mod lending;
pub(crate) mod msg;
pub(crate) mod receive;
pub(crate) mod send;
pub(crate) mod state;

use std::fmt;
use std::sync::{Arc, Weak};

use selvedge::info::EpType;
use selvedge::{
    Address, Bindings, Context, EpOption, EpOptionName, Errno, Error, FiAddr, Info, LateBindings,
    Lending, Limits, PeerCredentials, Result,
};
use selvedge_kit::auth::AuthKey;
use selvedge_kit::barrier::{self, Scope};
use selvedge_kit::coll::{self, LayerCompletions};
use selvedge_kit::domain::Base;
use selvedge_kit::sep::ContextSlot;
use selvedge_kit::shell::Shell;
use selvedge_kit::srx::{ReceivePolicy, Receiver};
use selvedge_kit::{DeferredOps, Ep, HasDeferredOps, RemoteCounters, bound_av, bound_srx};

use crate::connect::control::Control;
use crate::endpoint::coll_channel::CollectiveChannels;
use crate::endpoint::state::State;
use crate::peers::Peers;
use crate::peers::name::Name;
use crate::provider::av::Av;
use crate::provider::config::Config;
use crate::provider::setup::Setup;
use crate::provider::shared::Shared;
use crate::smr::Addr;

/// An endpoint of the shm provider.
pub struct Endpoint {
    pub(crate) shell: Shell<State>,
    name: Name,
    pub(crate) inject_size: usize,
    limits: Limits,
    _context_slot: Option<ContextSlot>,
}

/// The optional parents of an endpoint: a layer above the endpoint, and a scalable endpoint.
pub(crate) struct Parent {
    pub(crate) layer: Option<Arc<LayerCompletions>>,
    pub(crate) context_slot: Option<ContextSlot>,
}

impl Endpoint {
    pub(crate) fn open(
        info: &Info,
        bind: &Bindings,
        name: Name,
        config: Config,
        base: &Base,
        shared: Arc<Shared>,
        parent: Parent,
    ) -> Result<Self, Error> {
        // In a process with several threads the first registration with membarrier(2) takes 10 ms
        // and more. Later registrations, during posts that create regions, then return at once.
        barrier::register(Scope::Machine);
        let ep = Ep::resolve(bind, info, base.id())?.with_layer(parent.layer);
        let av = bound_av(bind, base.id(), "an endpoint of the shm provider")?;
        let key = AuthKey::of(info)?;
        let control = Control::open(name.clone(), check_type(info)?, key, &config)?;
        ep.stats.set_name(name.as_str());
        let (inject_size, epoll) = (config.inject_size, control.epoll());
        let policy = ReceivePolicy::new(info, config.inject_size);
        let (domain, counts_peers) = (Arc::clone(&shared), ep.counts_remote_access());
        let setup = Setup {
            config,
            ep,
            av,
            shared,
            ended_incarnations: Arc::default(),
        };
        let mut state = State::new(setup, policy, control);
        let srx = bound_srx(bind, base.id())?;
        if let Some(srx) = &srx {
            state.matching.share(srx);
        }
        let waiters = Arc::clone(state.setup.ep.waiters());
        let shell = Shell::new(base, bind, &Weak::new(), state, epoll);
        shell.attach()?;
        domain.siblings.add(&name, counts_peers);
        domain.announcements.add_waiters(&waiters);
        if let Some(srx) = srx {
            shell.join(&srx);
        }
        Ok(Self {
            shell,
            name,
            inject_size,
            limits: Limits::of(info),
            _context_slot: parent.context_slot,
        })
    }
}

impl Endpoint {
    /// Wraps the endpoint for the collective layer above it.
    pub(crate) fn into_inner(self, av: Arc<Av>) -> coll::InnerEndpoint {
        let progress = Arc::clone(self.shell.progress());
        coll::InnerEndpoint {
            channels: CollectiveChannels::for_endpoint(self.shell.core()),
            endpoint: Arc::new(self),
            progress,
            members: av,
        }
    }
}

impl Endpoint {
    /// Returns every address of the address vector in the order of indices, each with the index
    /// that this endpoint has in the peer's address vector. The index is `None` until the peer is
    /// connected (see `FI_SHM_EAGER_EXCHANGE`) and has inserted this endpoint.
    ///
    /// Makes no progress and connects to no peer. Returns an empty list in a child that was forked
    /// from the endpoint's process.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::any::Any;
    /// use std::sync::Arc;
    ///
    /// fn print(ep: Arc<dyn selvedge::Endpoint>) {
    ///     let ep: Arc<dyn Any + Send + Sync> = ep;
    ///     if let Ok(ep) = ep.downcast::<selvedge_shm::Endpoint>() {
    ///         for (index, addr) in ep.peer_table().iter().enumerate() {
    ///             println!("{index} {addr}");
    ///         }
    ///     }
    /// }
    /// ```
    pub fn peer_table(&self) -> Vec<Addr> {
        let Ok(state) = self.shell.lock() else {
            return Vec::new();
        };
        let names = state.setup.av.names();
        names
            .iter()
            .map(|name| addr_of(&state.peers, name))
            .collect()
    }
}

/// The name of a peer, and this endpoint's index in the peer's address vector.
fn addr_of(peers: &Peers, name: &Name) -> Addr {
    let inbox = peers.find(name).and_then(|peer| peer.inbox.as_ref());
    Addr {
        name: name.to_string(),
        index: inbox.and_then(|inbox| inbox.region.peer_addr().index),
    }
}

fn check_type(info: &Info) -> Result<EpType, Error> {
    match info.ep_attr.ep_type {
        EpType::Rdm | EpType::Dgram => Ok(info.ep_attr.ep_type),
        other => {
            let reason = format!(
                "the shm provider has no endpoints of type {other}: use FI_EP_RDM or FI_EP_DGRAM"
            );
            Err(Error::new(Errno::Inval, reason))
        }
    }
}

#[expect(unsafe_code, reason = "the promise of the endpoint trait")]
// SAFETY: the memory of a receive is accessed only through the `RxBuf` inside its `Posted`, which
// every completing call consumes. The memory of a send is accessed only through the `TxBuf` of its
// `Op`, which is dropped before the completion is pushed. Peers never write to this process's
// private memory. They discard copies from it, and from lent messages, after `Region::close`, which
// the shell calls when it ends the state.
unsafe impl selvedge::Endpoint for Endpoint {
    fn address(&self) -> Result<Address> {
        Ok(self.name.to_address())
    }

    fn peer_credentials(&self, peer: FiAddr) -> Result<PeerCredentials> {
        let peers = &mut self.shell.lock()?.peers;
        let number = peers.resolve(peer)?;
        let connection = peers[number].connections.last().ok_or(Errno::NotConn)?;
        connection
            .peer_credentials()
            .map_err(|errno| Errno::from_raw(errno as i32))
    }

    fn bind_late(&self, late: &LateBindings) -> Result<(), Error> {
        self.shell.bind_late(late, RemoteCounters::BeforeOpen)
    }

    fn lending(&self) -> Option<&dyn Lending> {
        Some(self)
    }

    fn cancel(&self, context: Context) -> Result {
        self.shell.lock()?.cancel(context)
    }

    fn set(&self, option: EpOption) -> Result {
        match option {
            EpOption::MinMultiRecv(least) => {
                self.shell.lock()?.matching.policy.min_multi_recv = least
            }
            _ => return Err(Errno::NoProtoOpt),
        }
        Ok(())
    }

    fn option(&self, name: EpOptionName) -> Result<EpOption> {
        match name {
            EpOptionName::MinMultiRecv => Ok(EpOption::MinMultiRecv(
                self.shell.lock()?.matching.policy.min_multi_recv,
            )),
            _ => self.limits.option(name),
        }
    }
}

impl HasDeferredOps for Endpoint {
    fn deferred_ops(&self) -> &Arc<DeferredOps> {
        self.shell.deferred_ops()
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shm endpoint {}", self.name)
    }
}
