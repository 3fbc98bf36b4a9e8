//! Endpoints: opening, closing, and what is neither message nor progress.

mod atomic;
pub(crate) mod msg;
pub(crate) mod passive;
mod rma;

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};

use nix::sys::epoll::{Epoll, EpollCreateFlags};
use selvedge::info::EpType;
use selvedge::{
    Address, Bindings, ConnectionManagement, Context, EpOption, EpOptionName, Errno, Error, Info,
    LateBindings, Limits, Result,
};
use selvedge_kit::birth::Native;
use selvedge_kit::coll::{self, Mailbox};
use selvedge_kit::cq::{Progress, Sink};
use selvedge_kit::domain::Base;
use selvedge_kit::eq::Queue;
use selvedge_kit::ip::{Av, own_address, resolve};
use selvedge_kit::lock::{Lock, Mode};
use selvedge_kit::mr::Keys;
use selvedge_kit::sep::Seat;
use selvedge_kit::srx::{Manner, Member, Posted, Receiver};
use selvedge_kit::wait::{Rest, Waiters};
use selvedge_kit::{Drivers, Ep, Ledger, Owing, RemoteCounters, own_av, own_eq, own_srx};

use crate::accept::Acceptor;
use crate::accept::listen::{ANYWHERE, Listener};
use crate::config::Config;
use crate::endpoint::passive::{Taken, take};
use crate::state::cm::Cm;
use crate::state::{Parts, State};
use crate::wire::hello::DATA_MAX;

/// Bytes below which a multi-receive buffer is released unless an endpoint says otherwise: those of
/// libfabric's tcp provider.
pub(crate) const MIN_MULTI_RECV: usize = 16 << 10;

/// An endpoint of the tcp provider.
pub struct Endpoint {
    pub(crate) inner: Arc<Inner>,
    /// What queues and counters know the endpoint by.
    progress: Arc<dyn Progress>,
    drivers: Drivers,
    ledger: Arc<Ledger>,
    /// Where it listens, or connects from.
    addr: Option<SocketAddr>,
    /// Whether connections are the application's business.
    pub(crate) is_connected: bool,
    pub(crate) inject_size: usize,
    pub(crate) max_msg_size: usize,
    limits: Limits,
    _seat: Option<Seat>,
}

/// What an endpoint is part of, if it is: a layer above it, or a scalable endpoint.
#[derive(Default)]
pub(crate) struct Place {
    pub(crate) layer: Option<Arc<Mailbox>>,
    /// Where its peers come, if that was settled before.
    pub(crate) listener: Option<Listener>,
    pub(crate) context: u16,
    pub(crate) seat: Option<Seat>,
}

/// What queues and counters drive.
#[derive(Debug)]
pub(crate) struct Inner {
    /// Out of reach for children that are forked from this process.
    pub(crate) state: Native<State>,
    /// What becomes ready with news while somebody sleeps.
    epoll: Arc<Epoll>,
    waiters: Arc<Waiters>,
}

impl Progress for Inner {
    #[inline]
    fn progress(&self, budget: usize, sink: &mut Sink<'_>) -> usize {
        self.state
            .lock_for_pass()
            .map_or(0, |mut state| state.progress(budget, sink))
    }

    fn rest(&self, _seen: &mut u64) -> Rest {
        // A child that is forked from this process never gets here: its queues do not wait.
        let state = self.state.lock();
        state.map_or(Rest::UntilWoken, |mut state| state.rest())
    }

    fn woken(&self) {
        if let Ok(mut state) = self.state.lock() {
            state.woken();
        }
    }

    fn waiters(&self) -> Option<&Waiters> {
        Some(&self.waiters)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.0.as_fd())
    }
}

impl Member for Inner {
    fn meet_shared(&self) {
        if let Ok(mut state) = self.state.lock() {
            Receiver::meet_shared(&mut *state);
        }
    }

    fn cancelled(&self, posted: Posted) {
        if let Ok(state) = self.state.lock() {
            state.ep.rx_cancelled(posted);
        }
    }
}

impl Endpoint {
    pub(crate) fn open(
        info: &Info,
        bind: &Bindings,
        config: Config,
        base: &Base,
        keys: Arc<Keys>,
        place: Place,
    ) -> Result<Arc<Self>, Error> {
        let ep = Ep::resolve(bind, info, base.id())?.with_layer(place.layer);
        let config = config.keyed(info)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(|cause| {
            Error::new(Errno::from_raw(cause as i32), "opening an endpoint").because(cause)
        })?;
        let epoll = Arc::new(epoll);
        let mut from = own_address(info)?;
        let (mut acceptor, mut av, mut cm) = (None, None, None);
        match info.ep_attr.ep_type {
            EpType::Rdm => {
                av = Some(own_av(bind, base.id(), "an endpoint of type FI_EP_RDM")?);
                acceptor = Some(match place.listener {
                    Some(listener) => Acceptor::at(listener, &config, &epoll)?,
                    None => Acceptor::open(from.unwrap_or(ANYWHERE), &config, &epoll)?,
                });
            }
            EpType::Msg => {
                let mut own = Cm::new(Arc::downgrade(&bound_eq(bind, base)?));
                match take(info.handle)? {
                    Taken::Nothing => {}
                    Taken::Request(caller) => own.request = Some(caller),
                    Taken::Place(place, at) => {
                        own.place = Some(place);
                        from = Some(at);
                    }
                }
                own.from = from;
                cm = Some(own);
            }
            other => {
                let what = format!("the tcp provider has no endpoints of type {other}");
                return Err(Error::new(Errno::Inval, what));
            }
        }
        let is_connected = cm.is_some();
        let eq = cm.as_ref().map_or_else(Weak::new, |cm| Weak::clone(&cm.eq));
        let inject_size = config.inject_size;
        let drivers = base.drivers(&ep).with_eq(&eq);
        let addr = acceptor.as_ref().map(|acceptor| acceptor.addr).or(from);
        let ledger = Arc::clone(ep.ledger());
        ep.sight
            .set_name(&addr.map_or_else(String::new, |addr| addr.to_string()));
        let parts = Parts {
            manner: Manner::new(info, MIN_MULTI_RECV),
            config,
            ep,
            av,
            keys,
            epoll: Arc::clone(&epoll),
            acceptor,
            cm,
            context: place.context,
        };
        let mut state = State::new(parts);
        let srx = own_srx(bind, base.id())?;
        if let Some(srx) = &srx {
            state.matching.share(srx);
        }
        let inner = Arc::new(Inner {
            waiters: Arc::clone(state.ep.waiters()),
            state: Native::new(locked(base.mode_of(bind), state)),
            epoll,
        });
        let progress: Arc<dyn Progress> = Arc::clone(&inner) as Arc<dyn Progress>;
        let endpoint = Arc::new(Self {
            inner,
            progress,
            drivers,
            ledger,
            addr,
            is_connected,
            inject_size,
            max_msg_size: info.ep_attr.max_msg_size,
            limits: Limits::of(info),
            _seat: place.seat,
        });
        if is_connected {
            // Events name it. Other endpoints have no handle but their owner's.
            let named: Weak<dyn selvedge::Endpoint> = Arc::<Self>::downgrade(&endpoint);
            let state = endpoint.inner.state.lock();
            #[expect(clippy::expect_used, reason = "no word of a peer's is in it")]
            let mut state = state.expect("was made by this process");
            if let Some(cm) = &mut state.cm {
                cm.endpoint = Some(named);
            }
        }
        if let Some(srx) = srx {
            let member: Arc<dyn Member> = Arc::clone(&endpoint.inner) as Arc<dyn Member>;
            srx.join(Arc::downgrade(&member));
        }
        // What was attached is detached when the endpoint is dropped.
        endpoint.drivers.attach(&endpoint.progress)?;
        Ok(endpoint)
    }
}

impl Endpoint {
    /// What a layer above is put around.
    pub(crate) fn into_inner(self: Arc<Self>, av: Arc<Av>) -> coll::Inner {
        let progress = Arc::clone(&self.progress);
        coll::Inner {
            endpoint: self,
            progress,
            lanes: None,
            members: av,
        }
    }
}

#[expect(unsafe_code, reason = "passes the application's promise to the lock")]
fn locked(mode: Mode, state: State) -> Lock<State> {
    // SAFETY: `Domain` derives `mode` from the promise of `Hints::promise_threading`, which covers
    // every object of the domain; the lock is taken at the top of each call and never below.
    unsafe { Lock::with_mode(mode, state) }
}

fn bound_eq(bind: &Bindings, base: &Base) -> Result<Arc<Queue>, Error> {
    let Some(eq) = &bind.eq else {
        let what = "an endpoint of type FI_EP_MSG needs an event queue";
        return Err(Error::new(Errno::NoEq, what));
    };
    own_eq(eq, base.id().fabric(), base.id())
}

#[expect(unsafe_code, reason = "the promise of the endpoint trait")]
// SAFETY: the memory of a receive is reached through the `RxBuf` inside its `Posted` or `Fetch`,
// which every completing call consumes; that of a send through the `TxBuf` of its frame or posting,
// which is dropped before the completion is pushed: an answer is taken only for a frame that is out
// (`Asks::answer`). Peers never touch our memory themselves. `Drop` detaches the endpoint from
// whatever drives it, and then drops all of them.
unsafe impl selvedge::Endpoint for Endpoint {
    fn address(&self) -> Result<Address> {
        let state = self.inner.state.lock()?;
        let connection = state.connections.iter().next();
        let connection = connection.filter(|_| self.is_connected);
        let socket = connection.and_then(|it| it.socket.as_ref());
        let bound = socket.and_then(|socket| socket.local_addr().ok());
        bound
            .or(self.addr)
            .map(Address::Ip)
            .ok_or(Errno::AddrNotAvail)
    }

    fn bind_late(&self, late: &LateBindings) -> Result<(), Error> {
        let (progress, state) = (&self.progress, &self.inner.state);
        self.drivers
            .bind_late(late, RemoteCounters::Late, progress, state)
    }

    fn cancel(&self, context: Context) -> Result {
        self.inner.state.lock()?.cancel(context)
    }

    fn set(&self, option: EpOption) -> Result {
        match option {
            EpOption::MinMultiRecv(least) => self.inner.state.lock()?.matching.manner.least = least,
            EpOption::EagerSize(most) => self.inner.state.lock()?.config.eager_size = most,
            _ => return Err(Errno::NoProtoOpt),
        }
        Ok(())
    }

    fn option(&self, name: EpOptionName) -> Result<EpOption> {
        Ok(match name {
            EpOptionName::MinMultiRecv => {
                EpOption::MinMultiRecv(self.inner.state.lock()?.matching.manner.least)
            }
            EpOptionName::EagerSize => {
                EpOption::EagerSize(self.inner.state.lock()?.config.eager_size)
            }
            EpOptionName::CmDataSize if self.is_connected => EpOption::CmDataSize(DATA_MAX),
            _ => return self.limits.option(name),
        })
    }

    fn cm(&self) -> Option<&dyn ConnectionManagement> {
        self.is_connected.then_some(self)
    }
}

impl ConnectionManagement for Endpoint {
    fn connect(&self, addr: &Address, data: &[u8]) -> Result {
        let to = match addr {
            Address::Ip(ip) => *ip,
            other => resolve::written(&other.to_string()).ok_or(Errno::Inval)?,
        };
        self.inner.state.lock()?.connect(to, data)
    }

    fn accept(&self, data: &[u8]) -> Result {
        self.inner.state.lock()?.accept_request(data)
    }

    fn shutdown(&self) -> Result {
        self.inner.state.lock()?.shut()
    }

    fn peer(&self) -> Result<Address> {
        let state = self.inner.state.lock()?;
        let peer = state.cm.as_ref().ok_or(Errno::NotConn)?.peer()?;
        Ok(state.peers[peer].to_address())
    }
}

impl Owing for Endpoint {
    fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.drivers
            .end(&self.progress, &self.inner.state, State::close);
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
