//! Endpoints: opening, closing, and what is neither message nor progress.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use selvedge::{
    Address, Bindings, Context, EpOption, EpOptionName, Errno, Error, Info, LateBindings, Limits,
    Result,
};
use selvedge_kit::birth::Native;
use selvedge_kit::cq::{Progress, Sink};
use selvedge_kit::domain::Base;
use selvedge_kit::lock::{Lock, Mode};
use selvedge_kit::srx::{Manner, Receiver};
use selvedge_kit::wait::{Rest, Waiters};
use selvedge_kit::{Drivers, Ep, RemoteCounters, own_av};

use crate::av::Av;
use crate::config::Config;
use crate::link::Link;
use crate::name::Name;
use crate::state::State;
use crate::wire::EAGER;

/// An endpoint of the lnx provider.
pub struct Endpoint {
    pub(crate) inner: Arc<Inner>,
    /// What queues and counters know the endpoint by.
    progress: Arc<dyn Progress>,
    drivers: Drivers,
    name: Name,
    pub(crate) inject_size: usize,
    pub(crate) max_msg_size: usize,
    limits: Limits,
}

/// What queues and counters drive.
#[derive(Debug)]
pub(crate) struct Inner {
    /// Out of reach for children that are forked from this process.
    pub(crate) state: Native<State>,
    /// What becomes ready with news of either link while somebody sleeps.
    epoll: Epoll,
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
        const BUDGET: usize = 64;
        if let Ok(mut state) = self.state.lock() {
            state.look_at_all(BUDGET);
        }
    }

    fn waiters(&self) -> Option<&Waiters> {
        Some(&self.waiters)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.0.as_fd())
    }
}

impl Endpoint {
    pub(crate) fn open(
        info: &Info,
        bind: &Bindings,
        config: &Config,
        base: &Base,
        links: &[(Info, Arc<dyn selvedge::Domain>); 2],
        host: u64,
    ) -> Result<Arc<Self>, Error> {
        let ep = Ep::resolve(bind, info, base.id())?;
        let av: Arc<Av> = own_av(bind, base.id(), "an endpoint of type FI_EP_RDM")?;
        let src = info.src_addr.as_ref().map(own_name).transpose()?;
        let [near, far] = links;
        let links = [
            open_link(near, src.as_ref().map(|it| &it.near), info, &ep)?,
            open_link(far, src.as_ref().map(|it| &it.far), info, &ep)?,
        ];
        let failed = |errno: Errno| Error::new(errno, "opening an endpoint over two links");
        let name = Name {
            host,
            near: links[0].address().map_err(failed)?,
            far: links[1].address().map_err(failed)?,
        };
        let epoll = watch_both(&links).map_err(|cause| failed(Errno::from_raw(cause as i32)))?;
        ep.sight.set_name(&name.to_string());
        let drivers = base.drivers(&ep);
        let mut state = State::new(links, ep, av, Manner::new(info, EAGER), name.clone());
        state.most = config.unexpected_size;
        state.listen().map_err(failed)?;
        let inner = Arc::new(Inner {
            waiters: Arc::clone(state.ep.waiters()),
            state: Native::new(locked(base.mode_of(bind), state)),
            epoll,
        });
        let endpoint = Arc::new(Self {
            progress: Arc::clone(&inner) as Arc<dyn Progress>,
            inner,
            drivers,
            name,
            // Longer ones stay in memory that an inject gives back at once.
            inject_size: info.tx_attr.inject_size.min(EAGER),
            max_msg_size: info.ep_attr.max_msg_size,
            limits: Limits::of(info),
        });
        // What was attached is detached when the endpoint is dropped.
        endpoint.drivers.attach(&endpoint.progress)?;
        Ok(endpoint)
    }
}

/// The name that an endpoint is to have.
fn own_name(addr: &Address) -> Result<Name, Error> {
    Name::of(addr).ok_or_else(|| {
        let what = format!("address {addr} does not name an endpoint on two links");
        Error::new(Errno::Inval, what)
    })
}

fn open_link(
    (info, domain): &(Info, Arc<dyn selvedge::Domain>),
    src: Option<&Address>,
    own: &Info,
    ep: &Ep,
) -> Result<Link, Error> {
    let mut info = info.clone();
    info.tx_attr.size = info.tx_attr.size.max(own.tx_attr.size);
    info.rx_attr.size = info.rx_attr.size.max(own.rx_attr.size);
    info.src_addr = src.cloned().or(info.src_addr);
    let counts = ep.peer_cntrs().map(|cntr| cntr.map(|cntr| cntr.events()));
    Link::open(&info, &**domain, counts)
}

fn watch_both(links: &[Link; 2]) -> nix::Result<Epoll> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    for fd in links.iter().filter_map(Link::wait_fd) {
        epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
    }
    Ok(epoll)
}

#[expect(unsafe_code, reason = "passes the application's promise to the lock")]
fn locked(mode: Mode, state: State) -> Lock<State> {
    // SAFETY: `Base` derives `mode` from the promise of `Hints::promise_threading`, which covers
    // every object of the domain; the lock is taken at the top of each call and never below.
    unsafe { Lock::with_mode(mode, state) }
}

#[expect(unsafe_code, reason = "the promise of the endpoint trait")]
// SAFETY: the memory of a receive is reached through the `RxBuf` inside its `Posted`, which every
// completing call consumes, and by a link between the post of `Link::recv_body` and its completion,
// which `Op::Coming` waits for; that of a send through the `TxBuf` of its ask, and likewise
// `Op::Body`. That of a one-sided operation is reached by the link alone, and the completion of
// `Op::Access` follows the link's. `Drop` detaches the endpoint from whatever drives it, and drops the links before the
// operations that keep the memory.
unsafe impl selvedge::Endpoint for Endpoint {
    fn address(&self) -> Result<Address> {
        Ok(self.name.to_address())
    }

    fn bind_late(&self, late: &LateBindings) -> Result<(), Error> {
        let (progress, state) = (&self.progress, &self.inner.state);
        self.drivers
            .bind_late(late, RemoteCounters::BeforeOpen, progress, state)
    }

    fn cancel(&self, context: Context) -> Result {
        self.inner.state.lock()?.cancel(context)
    }

    fn set(&self, option: EpOption) -> Result {
        match option {
            EpOption::MinMultiRecv(least) => self.inner.state.lock()?.manner.least = least,
            _ => return Err(Errno::NoProtoOpt),
        }
        Ok(())
    }

    fn option(&self, name: EpOptionName) -> Result<EpOption> {
        Ok(match name {
            EpOptionName::MinMultiRecv => {
                EpOption::MinMultiRecv(self.inner.state.lock()?.manner.least)
            }
            _ => return self.limits.option(name),
        })
    }
}

impl AsMut<Ep> for State {
    fn as_mut(&mut self) -> &mut Ep {
        &mut self.ep
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // Peers wait for the answers that are still here.
        self.drivers
            .end(&self.progress, &self.inner.state, State::catch_up);
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lnx endpoint {}", self.name)
    }
}
