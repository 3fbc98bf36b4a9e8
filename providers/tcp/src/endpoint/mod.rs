//! `Endpoint`: opens an endpoint, and implements its options and its connection management.

mod atomic;
pub(crate) mod msg;
pub(crate) mod passive;
mod rma;

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use nix::sys::epoll::{Epoll, EpollCreateFlags};
use selvedge::info::EpType;
use selvedge::{
    Address, Bindings, ConnectionManagement, Context, EpOption, EpOptionName, Errno, Error, FiAddr,
    Info, LateBindings, Limits, PeerCredentials, Result,
};
use selvedge_kit::coll::{self, LayerCompletions};
use selvedge_kit::domain::Base;
use selvedge_kit::eq::Queue;
use selvedge_kit::ip::{Av, requested_address, resolve};
use selvedge_kit::mr::Keys;
use selvedge_kit::sep::ContextSlot;
use selvedge_kit::shell::Shell;
use selvedge_kit::srx::{ReceivePolicy, Receiver};
use selvedge_kit::{
    DeferredOps, Ep, HasDeferredOps, RemoteCounters, bound_av, bound_eq, bound_srx,
};

use crate::accept::Acceptor;
use crate::accept::listen::{ANYWHERE, Listener};
use crate::config::Config;
use crate::endpoint::passive::{HandleTarget, take_handle};
use crate::state::cm::Cm;
use crate::state::{State, StateArgs};
use crate::wire::hello::DATA_MAX;

/// The default of FI_OPT_MIN_MULTI_RECV in bytes, that of libfabric's tcp provider.
pub(crate) const MIN_MULTI_RECV: usize = 16 << 10;

/// An endpoint of the tcp provider.
pub struct Endpoint {
    pub(crate) shell: Shell<State>,
    /// The address at which the endpoint listens, or from which it connects.
    addr: Option<SocketAddr>,
    /// Whether the endpoint is connected (`FI_EP_MSG`).
    pub(crate) is_msg_ep: bool,
    pub(crate) inject_size: usize,
    pub(crate) max_msg_size: usize,
    limits: Limits,
    _slot: Option<ContextSlot>,
}

/// Options for opening an endpoint: the layer above it, and its context of a scalable endpoint.
#[derive(Default)]
pub(crate) struct OpenOptions {
    pub(crate) layer: Option<Arc<LayerCompletions>>,
    /// The listener to use instead of opening one.
    pub(crate) listener: Option<Listener>,
    pub(crate) context: u16,
    pub(crate) slot: Option<ContextSlot>,
}

impl Endpoint {
    pub(crate) fn open(
        info: &Info,
        bind: &Bindings,
        config: Config,
        base: &Base,
        keys: Arc<Keys>,
        options: OpenOptions,
    ) -> Result<Arc<Self>, Error> {
        let ep = Ep::resolve(bind, info, base.id())?.with_layer(options.layer);
        let config = config.for_endpoint(info)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(|cause| {
            Error::new(Errno::from_raw(cause as i32), "opening an endpoint").because(cause)
        })?;
        let epoll = Arc::new(epoll);
        let mut src_addr = requested_address(info)?;
        let (mut acceptor, mut av, mut cm) = (None, None, None);
        match info.ep_attr.ep_type {
            EpType::Rdm => {
                av = Some(bound_av(bind, base.id(), "an endpoint of type FI_EP_RDM")?);
                acceptor = Some(match options.listener {
                    Some(listener) => Acceptor::from_listener(listener, &config, &epoll)?,
                    None => Acceptor::open(src_addr.unwrap_or(ANYWHERE), &config, &epoll)?,
                });
            }
            EpType::Msg => {
                let mut state = Cm::new(Arc::downgrade(&required_eq(bind, base)?));
                match take_handle(info.handle)? {
                    HandleTarget::Nothing => {}
                    HandleTarget::Request(request) => state.request = Some(request),
                    HandleTarget::Bound(socket, addr) => {
                        state.bound = Some(socket);
                        src_addr = Some(addr);
                    }
                }
                state.src_addr = src_addr;
                cm = Some(state);
            }
            other => {
                let text = format!("the tcp provider has no endpoints of type {other}");
                return Err(Error::new(Errno::Inval, text));
            }
        }
        let is_msg_ep = cm.is_some();
        let eq = cm.as_ref().map_or_else(Weak::new, |cm| Weak::clone(&cm.eq));
        let inject_size = config.inject_size;
        let addr = acceptor.as_ref().map(|acceptor| acceptor.addr).or(src_addr);
        ep.stats
            .set_name(&addr.map_or_else(String::new, |addr| addr.to_string()));
        let args = StateArgs {
            policy: ReceivePolicy::new(info, MIN_MULTI_RECV),
            config,
            ep,
            av,
            keys,
            epoll: Arc::clone(&epoll),
            acceptor,
            cm,
            context: options.context,
        };
        let mut state = State::new(args);
        let srx = bound_srx(bind, base.id())?;
        if let Some(srx) = &srx {
            state.matching.share(srx);
        }
        let endpoint = Arc::new(Self {
            shell: Shell::new(base, bind, &eq, state, epoll),
            addr,
            is_msg_ep,
            inject_size,
            max_msg_size: info.ep_attr.max_msg_size,
            limits: Limits::of(info),
            _slot: options.slot,
        });
        if is_msg_ep {
            // Events of connected endpoints carry a handle.
            let handle: Weak<dyn selvedge::Endpoint> = Arc::<Self>::downgrade(&endpoint);
            let state = endpoint.shell.lock();
            #[expect(clippy::expect_used, reason = "the lock depends on no input of a peer")]
            let mut state = state.expect("this process opened the endpoint");
            if let Some(cm) = &mut state.cm {
                cm.endpoint = Some(handle);
            }
        }
        if let Some(srx) = srx {
            endpoint.shell.join(&srx);
        }
        // Dropping the shell detaches the endpoint again.
        endpoint.shell.attach()?;
        Ok(endpoint)
    }
}

impl Endpoint {
    /// Returns the endpoint as the collective layer wraps it.
    pub(crate) fn into_inner(self: Arc<Self>, av: Arc<Av>) -> coll::InnerEndpoint {
        let progress = Arc::clone(self.shell.progress());
        coll::InnerEndpoint {
            endpoint: self,
            progress,
            channels: None,
            members: av,
        }
    }
}

fn required_eq(bind: &Bindings, base: &Base) -> Result<Arc<Queue>, Error> {
    let Some(eq) = &bind.eq else {
        let text = "an endpoint of type FI_EP_MSG needs an event queue";
        return Err(Error::new(Errno::NoEq, text));
    };
    bound_eq(eq, base.id().fabric(), base.id())
}

#[expect(unsafe_code, reason = "the promise of the endpoint trait")]
// SAFETY: the memory of a receive is reached only through the `RxBuf` inside its `Posted` or
// `PendingFetch`, which every completing call consumes. The memory of a send is reached only
// through the `TxBuf` of its frame or operation, which is dropped before the completion is pushed:
// an acknowledgement is accepted only for a frame that was sent (`Unacked::ack`). Peers never
// access local memory directly. Dropping `Shell` detaches the endpoint from every object that
// drives it, and then drops every `RxBuf` and `TxBuf`.
unsafe impl selvedge::Endpoint for Endpoint {
    fn address(&self) -> Result<Address> {
        let state = self.shell.lock()?;
        let connection = state.connections.iter().next();
        let connection = connection.filter(|_| self.is_msg_ep);
        let socket = connection.and_then(|it| it.socket.as_ref());
        let bound = socket.and_then(|socket| socket.local_addr().ok());
        bound
            .or(self.addr)
            .map(Address::Ip)
            .ok_or(Errno::AddrNotAvail)
    }

    fn peer_credentials(&self, peer: FiAddr) -> Result<PeerCredentials> {
        self.shell.lock()?.peer_credentials(peer)
    }

    fn bind_late(&self, late: &LateBindings) -> Result<(), Error> {
        self.shell.bind_late(late, RemoteCounters::Late)
    }

    fn cancel(&self, context: Context) -> Result {
        self.shell.lock()?.cancel(context)
    }

    fn set(&self, option: EpOption) -> Result {
        match option {
            EpOption::MinMultiRecv(min) => self.shell.lock()?.matching.policy.min_multi_recv = min,
            EpOption::EagerSize(max) => self.shell.lock()?.config.eager_size = max,
            _ => return Err(Errno::NoProtoOpt),
        }
        Ok(())
    }

    fn option(&self, name: EpOptionName) -> Result<EpOption> {
        Ok(match name {
            EpOptionName::MinMultiRecv => {
                EpOption::MinMultiRecv(self.shell.lock()?.matching.policy.min_multi_recv)
            }
            EpOptionName::EagerSize => EpOption::EagerSize(self.shell.lock()?.config.eager_size),
            EpOptionName::CmDataSize if self.is_msg_ep => EpOption::CmDataSize(DATA_MAX),
            _ => return self.limits.option(name),
        })
    }

    fn cm(&self) -> Option<&dyn ConnectionManagement> {
        self.is_msg_ep.then_some(self)
    }
}

impl ConnectionManagement for Endpoint {
    fn connect(&self, addr: &Address, data: &[u8]) -> Result {
        let dest_addr = match addr {
            Address::Ip(ip) => *ip,
            other => resolve::parse_addr(&other.to_string()).ok_or(Errno::Inval)?,
        };
        self.shell.lock()?.connect(dest_addr, data)
    }

    fn accept(&self, data: &[u8]) -> Result {
        self.shell.lock()?.accept_request(data)
    }

    fn shutdown(&self) -> Result {
        self.shell.lock()?.shutdown()
    }

    fn peer(&self) -> Result<Address> {
        let state = self.shell.lock()?;
        let peer = state.cm.as_ref().ok_or(Errno::NotConn)?.peer()?;
        Ok(state.peers[peer].to_address())
    }
}

impl HasDeferredOps for Endpoint {
    fn deferred_ops(&self) -> &Arc<DeferredOps> {
        self.shell.deferred_ops()
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.addr {
            Some(addr) => write!(f, "tcp endpoint {addr}"),
            None => f.write_str("tcp endpoint"),
        }
    }
}
