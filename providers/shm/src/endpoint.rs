//! Endpoints: opening, closing, and what is neither message nor progress.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::epoll::Epoll;
use selvedge::info::EpType;
use selvedge::{
    Address, Bindings, Context, EpOption, EpOptionName, Errno, Error, Info, LateBindings, Limits,
    Result,
};
use selvedge_kit::auth::AuthKey;
use selvedge_kit::barrier::{self, Scope};
use selvedge_kit::birth::Native;
use selvedge_kit::coll::{self, Mailbox};
use selvedge_kit::cq::{Progress, Sink};
use selvedge_kit::domain::Base;
use selvedge_kit::lock::{Lock, Mode};
use selvedge_kit::sep::Seat;
use selvedge_kit::srx::{Manner, Member, Posted, Receiver};
use selvedge_kit::wait::{Rest, Waiters};
use selvedge_kit::{Drivers, Ep, Ledger, Owing, RemoteCounters, own_av, own_srx};

use crate::av::Av;
use crate::config::Config;
use crate::control::Control;
use crate::domain::Shared;
use crate::lane::Lanes;
use crate::name::Name;
use crate::state::State;

/// An endpoint of the shm provider.
pub struct Endpoint {
    pub(crate) inner: Arc<Inner>,
    /// What queues and counters know the endpoint by.
    progress: Arc<dyn Progress>,
    drivers: Drivers,
    ledger: Arc<Ledger>,
    name: Name,
    pub(crate) inject_size: usize,
    limits: Limits,
    _seat: Option<Seat>,
}

/// What an endpoint is part of, if it is: a layer above it, or a scalable endpoint.
pub(crate) struct Place {
    pub(crate) layer: Option<Arc<Mailbox>>,
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

    fn rest(&self, seen: &mut u64) -> Rest {
        // A child that is forked from this process never gets here: its queues do not wait.
        let state = self.state.lock();
        state.map_or(Rest::AtMost(Duration::ZERO), |mut state| state.rest(seen))
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
        name: Name,
        config: Config,
        base: &Base,
        shared: Arc<Shared>,
        place: Place,
    ) -> Result<Self, Error> {
        // In a process with several threads the first registration takes the kernel 10 ms and more.
        // The regions of peers are made during posts, and their registrations then return at once.
        barrier::register(Scope::Machine);
        let ep = Ep::resolve(bind, info, base.id())?.with_layer(place.layer);
        let av = own_av(bind, base.id(), "an endpoint of the shm provider")?;
        let drivers = base.drivers(&ep);
        let ledger = Arc::clone(ep.ledger());
        let key = AuthKey::of(info)?;
        let control = Control::open(name.clone(), checked_type(info)?, key, &config)?;
        ep.sight.set_name(name.as_str());
        let (inject_size, epoll) = (config.inject_size, control.epoll());
        let manner = Manner::new(info, config.inject_size);
        let (domain, counts_peers) = (Arc::clone(&shared), ep.counts_peers());
        let mut state = State::new(config, manner, ep, av, control, shared);
        let srx = own_srx(bind, base.id())?;
        if let Some(srx) = &srx {
            state.inbound.share(srx);
        }
        let inner = Arc::new(Inner {
            waiters: Arc::clone(state.ep.waiters()),
            state: Native::new(locked(base.mode_of(bind), state)),
            epoll,
        });
        let progress: Arc<dyn Progress> = Arc::clone(&inner) as Arc<dyn Progress>;
        drivers.attach(&progress)?;
        domain.siblings.add(&name, counts_peers);
        domain.exports.add_waiters(&inner.waiters);
        if let Some(srx) = srx {
            let member: Arc<dyn Member> = Arc::clone(&inner) as Arc<dyn Member>;
            srx.join(Arc::downgrade(&member));
        }
        Ok(Self {
            inner,
            progress,
            drivers,
            ledger,
            name,
            inject_size,
            limits: Limits::of(info),
            _seat: place.seat,
        })
    }
}

impl Endpoint {
    /// What a layer above is put around.
    pub(crate) fn into_inner(self, av: Arc<Av>) -> coll::Inner {
        let progress = Arc::clone(&self.progress);
        coll::Inner {
            lanes: Lanes::of(&self.inner),
            endpoint: Arc::new(self),
            progress,
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

fn checked_type(info: &Info) -> Result<EpType, Error> {
    match info.ep_attr.ep_type {
        EpType::Rdm | EpType::Dgram => Ok(info.ep_attr.ep_type),
        other => {
            let what = format!("the shm provider has no endpoints of type {other}");
            Err(Error::new(Errno::Inval, what))
        }
    }
}

#[expect(unsafe_code, reason = "the promise of the endpoint trait")]
// SAFETY: the memory of a receive is reached through the `RxBuf` inside its `Posted`, which every
// completing call consumes; that of a send through the `TxBuf` of its `Op`, which is dropped before
// the completion is pushed. Peers never write to our memory, and copies that they make from it are
// thrown away by them once `Region::close` was called, which `Drop` does first.
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
        match name {
            EpOptionName::MinMultiRecv => Ok(EpOption::MinMultiRecv(
                self.inner.state.lock()?.manner.least,
            )),
            _ => self.limits.option(name),
        }
    }
}

impl Owing for Endpoint {
    fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }
}

impl AsMut<Ep> for State {
    fn as_mut(&mut self) -> &mut Ep {
        &mut self.ep
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
        write!(f, "shm endpoint {}", self.name)
    }
}
