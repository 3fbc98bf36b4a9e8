//! `Passive`: a passive endpoint, which listens for connection requests.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use nix::sys::epoll::{Epoll, EpollCreateFlags};
use selvedge::eq::Event;
use selvedge::{Address, Errno, Error, Info, PassiveEndpoint, Result};
use selvedge_kit::cq::{Progress, Sink};
use selvedge_kit::eq::Queue;
use selvedge_kit::fork_guard::ForkGuarded;
use selvedge_kit::ip::{canonical_addr, requested_address, resolve};
use selvedge_kit::lock::{Guard, Lock};
use selvedge_kit::wait::ArmOutcome;

use crate::accept::listen::{bind_at, listen_error};
use crate::accept::{Acceptor, ConnectionRequest};
use crate::config::Config;
use crate::socket::BoundSocket;
use crate::wire::hello::{DATA_MAX, Hello, Kind};

/// A passive endpoint of the tcp provider.
pub(crate) struct Passive {
    inner: Arc<Inner>,
    progress: Arc<dyn Progress>,
    eq: Weak<Queue>,
}

#[derive(Debug)]
struct Inner {
    state: ForkGuarded<PassiveState>,
    epoll: Epoll,
    config: Config,
    eq: Weak<Queue>,
    this: Weak<Passive>,
    /// The template for the `Info` of requests.
    info: Info,
    number: u64,
}

/// The state of a passive endpoint.
#[derive(Debug)]
enum PassiveState {
    /// Not bound; the requested address, if any.
    Unbound(Option<SocketAddr>),
    /// Bound to an address.
    Bound(BoundSocket, SocketAddr),
    Listening(Box<Listening>),
    /// Its address was transferred to another endpoint.
    Transferred,
}

/// The acceptor, and the requests of the last poll. They are reported at the next poll, so that the
/// event queue has the shutdown of earlier connections first.
#[derive(Debug)]
struct Listening {
    acceptor: Acceptor,
    deferred: Vec<ConnectionRequest>,
}

/// Reported requests that are neither accepted nor rejected, by handle, with the number of their
/// passive endpoint; and the passive endpoints by number. A handle is valid in every domain of the
/// process, as in libfabric.
static REQUESTS: Mutex<Option<Requests>> = Mutex::new(None);

#[derive(Debug, Default)]
struct Requests {
    list: HashMap<u64, (u64, ConnectionRequest)>,
    passive: HashMap<u64, Weak<Passive>>,
    last: u64,
}

fn requests<R>(with: impl FnOnce(&mut Requests) -> R) -> R {
    let guard: MutexGuard<'_, _> = REQUESTS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut guard = guard;
    with(guard.get_or_insert_default())
}

/// Removes and returns the request of a handle.
///
/// # Errors
/// [`Errno::Inval`], with the handle, when there is none.
pub(crate) fn take_request(handle: u64) -> Result<ConnectionRequest, Error> {
    let (request, passive) = requests(|requests| {
        let (number, request) = requests.list.remove(&handle)?;
        Some((
            request,
            requests.passive.get(&number).and_then(Weak::upgrade),
        ))
    })
    .ok_or_else(|| {
        let text = format!("handle {handle} names no connection request");
        Error::new(Errno::Inval, text)
    })?;
    if let Some(passive) = passive {
        passive.inner.update_unanswered();
    }
    Ok(request)
}

/// The object that a handle names.
pub(crate) enum HandleTarget {
    Nothing,
    Request(Box<ConnectionRequest>),
    /// The bound socket of a passive endpoint.
    Bound(BoundSocket, SocketAddr),
}

/// Takes the object that a handle names; 0 names nothing.
///
/// # Errors
/// [`Errno::Inval`] when the handle names neither a request nor a passive endpoint; those of
/// [`Passive::transfer_address`].
pub(crate) fn take_handle(handle: u64) -> Result<HandleTarget, Error> {
    if handle == 0 {
        return Ok(HandleTarget::Nothing);
    }
    if let Ok(request) = take_request(handle) {
        return Ok(HandleTarget::Request(Box::new(request)));
    }
    let passive = requests(|requests| requests.passive.get(&handle).and_then(Weak::upgrade));
    let Some(passive) = passive else {
        let text = format!(
            "handle {handle} names no connection request, and no passive endpoint that is open"
        );
        return Err(Error::new(Errno::Inval, text));
    };
    let (socket, at) = passive.transfer_address()?;
    Ok(HandleTarget::Bound(socket, at))
}

impl Passive {
    /// Opens a passive endpoint. If `info` has the handle of another one, it takes over its
    /// address.
    ///
    /// # Errors
    /// System errors, when no descriptors are left; those of [`take_handle`].
    pub(crate) fn open(info: &Info, config: Config, eq: &Arc<Queue>) -> Result<Arc<Self>, Error> {
        let requested = requested_address(info)?;
        let state = match take_handle(info.handle)? {
            HandleTarget::Bound(socket, at) => PassiveState::Bound(socket, at),
            _ => PassiveState::Unbound(requested),
        };
        let config = config.keyed(info)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(|cause| {
            Error::new(Errno::from_raw(cause as i32), "opening a passive endpoint").because(cause)
        })?;
        let number = requests(|requests| {
            requests.last += 1;
            requests.last
        });
        let passive = Arc::new_cyclic(|this: &Weak<Self>| {
            let inner = Arc::new(Inner {
                state: ForkGuarded::new(Lock::new(state)),
                epoll,
                config,
                eq: Arc::downgrade(eq),
                this: this.clone(),
                info: info.clone(),
                number,
            });
            Self {
                progress: Arc::clone(&inner) as Arc<dyn Progress>,
                inner,
                eq: Arc::downgrade(eq),
            }
        });
        eq.attach(&passive.progress)?;
        let this = Arc::downgrade(&passive);
        requests(|requests| requests.passive.insert(number, this));
        Ok(passive)
    }

    /// Transfers its bound socket to another endpoint.
    ///
    /// # Errors
    /// [`Errno::AddrNotAvail`] when it has no address; [`Errno::OpBadState`] when it listens, or
    /// was already transferred; system errors.
    fn transfer_address(&self) -> Result<(BoundSocket, SocketAddr), Error> {
        let error = |errno, reason: &str| {
            let text = format!("taking over the address of a passive endpoint that {reason}");
            Err(Error::new(errno, text))
        };
        let mut state = self.inner.state()?;
        match std::mem::replace(&mut *state, PassiveState::Transferred) {
            PassiveState::Bound(socket, at) => return Ok((socket, at)),
            PassiveState::Unbound(Some(at)) => return self.inner.bind_at(at),
            other => *state = other,
        }
        match &*state {
            PassiveState::Unbound(_) => error(Errno::AddrNotAvail, "has no address"),
            PassiveState::Transferred => error(
                Errno::OpBadState,
                "has transferred its address to another endpoint",
            ),
            _ => error(Errno::OpBadState, "listens"),
        }
    }
}

impl PassiveEndpoint for Passive {
    fn listen(&self) -> Result {
        let inner = &self.inner;
        let mut state = inner.state.lock()?;
        let acceptor = match &*state {
            PassiveState::Unbound(Some(at)) => Acceptor::open(*at, &inner.config, &inner.epoll),
            PassiveState::Bound(..) => inner.open_bound(&mut state),
            PassiveState::Unbound(None) => return Err(Errno::AddrNotAvail),
            PassiveState::Listening(_) | PassiveState::Transferred => {
                return Err(Errno::OpBadState);
            }
        };
        let acceptor = acceptor.inspect_err(|error| log::warn!(target: TARGET, "{error}"));
        *state = PassiveState::Listening(Box::new(Listening {
            acceptor: acceptor.map_err(|error| error.errno())?,
            deferred: Vec::new(),
        }));
        drop(state);
        if let Some(eq) = self.eq.upgrade() {
            eq.wake();
        }
        Ok(())
    }

    fn address(&self) -> Result<Address> {
        let at = match &*self.inner.state.lock()? {
            PassiveState::Listening(listening) => listening.acceptor.addr,
            PassiveState::Bound(_, at) => *at,
            PassiveState::Unbound(Some(at)) if at.port() != 0 => *at,
            PassiveState::Unbound(_) | PassiveState::Transferred => {
                return Err(Errno::AddrNotAvail);
            }
        };
        Ok(Address::Ip(at))
    }

    fn set_address(&self, addr: &Address) -> Result<(), Error> {
        let address = match addr {
            Address::Ip(at) => Some(*at),
            other => resolve::parse_addr(&other.to_string()),
        };
        let Some(at) = address else {
            let text = format!("{addr} is not an address of the tcp provider");
            return Err(Error::new(Errno::Inval, text));
        };
        let mut state = self.inner.state()?;
        if !matches!(&*state, PassiveState::Unbound(_)) {
            let text =
                format!("setting address {addr} of a passive endpoint that already has an address");
            return Err(Error::new(Errno::OpBadState, text));
        }
        let (socket, at) = self.inner.bind_at(at)?;
        *state = PassiveState::Bound(socket, at);
        Ok(())
    }

    fn handle(&self) -> Result<u64> {
        Ok(self.inner.number)
    }

    fn reject(&self, handle: u64, data: &[u8]) -> Result {
        if data.len() > DATA_MAX {
            return Err(Errno::Inval);
        }
        let mut request = take_request(handle).map_err(|error| error.errno())?;
        // A peer that does not receive it sees the close.
        let rejection = Hello::new(Kind::Reject, None, data);
        let _ = request.socket.send_all(&rejection.encode());
        request.socket.shutdown(std::net::Shutdown::Both);
        Ok(())
    }
}

impl Inner {
    fn state(&self) -> Result<Guard<'_, PassiveState>, Error> {
        self.state.lock().map_err(|errno| {
            let text = "a passive endpoint that was opened before fork(2)";
            Error::new(errno, text)
        })
    }

    /// Binds a socket to an address, and returns both.
    fn bind_at(&self, at: SocketAddr) -> Result<(BoundSocket, SocketAddr), Error> {
        let socket = bind_at(at, &self.config).and_then(|socket| {
            let at = canonical_addr(socket.local_addr()?);
            Ok((socket, at))
        });
        socket.map_err(|cause| listen_error(at, cause))
    }

    /// Listens at the bound address. On failure the address is lost.
    fn open_bound(&self, state: &mut PassiveState) -> Result<Acceptor, Error> {
        let PassiveState::Bound(socket, at) = std::mem::replace(state, PassiveState::Transferred)
        else {
            return Err(Error::new(
                Errno::OpBadState,
                "listening without an address",
            ));
        };
        let listener = socket.listen().map_err(|cause| listen_error(at, cause))?;
        Acceptor::at(listener, &self.config, &self.epoll)
    }

    fn poll(&self) -> usize {
        let Ok(mut guard) = self.state.lock() else {
            return 0;
        };
        let PassiveState::Listening(listening) = &mut *guard else {
            return 0;
        };
        let Listening { acceptor, deferred } = &mut **listening;
        let reported = std::mem::replace(deferred, acceptor.poll(&self.epoll));
        let count = reported.len() + deferred.len();
        acceptor.set_unanswered_requests(self.unanswered_requests() + count, &self.epoll);
        if !acceptor.is_idle() {
            acceptor.expire(Instant::now(), &self.epoll);
        }
        drop(guard);
        reported
            .into_iter()
            .for_each(|request| self.report_request(request));
        count
    }

    /// The number of reported requests that are neither accepted nor rejected.
    fn unanswered_requests(&self) -> usize {
        requests(|requests| {
            let own = requests.list.values();
            own.filter(|(number, _)| *number == self.number).count()
        })
    }

    /// Updates the acceptor after a request was accepted or rejected, so that it may accept
    /// another.
    fn update_unanswered(&self) {
        if let Ok(mut state) = self.state.lock()
            && let PassiveState::Listening(listening) = &mut *state
        {
            let unanswered_requests = self.unanswered_requests() + listening.deferred.len();
            listening
                .acceptor
                .set_unanswered_requests(unanswered_requests, &self.epoll);
        }
    }

    fn report_request(&self, request: ConnectionRequest) {
        let (Some(eq), Some(pep)) = (self.eq.upgrade(), self.this.upgrade()) else {
            return;
        };
        let mut info = Box::new(self.info.clone());
        info.dest_addr = Some(Address::Ip(request.from));
        info.src_addr = request.socket.local_addr().ok().map(Address::Ip);
        let data = request.hello.data.clone();
        info.handle = requests(|requests| {
            requests.last += 1;
            requests.list.insert(requests.last, (self.number, request));
            requests.last
        });
        eq.push(Event::ConnReq { pep, info, data });
    }
}

impl Progress for Inner {
    fn progress(&self, _budget: usize, _sink: &mut Sink<'_>) -> usize {
        self.poll()
    }

    fn arm(&self, _seen: &mut u64) -> ArmOutcome {
        if self.poll() > 0 {
            return ArmOutcome::Progressed;
        }
        let deadline = match self.state.lock().as_deref() {
            Ok(PassiveState::Listening(listening)) => listening.acceptor.deadline(),
            _ => None,
        };
        match deadline {
            None => ArmOutcome::UntilWoken,
            Some(deadline) => {
                ArmOutcome::AtMost(deadline.saturating_duration_since(Instant::now()))
            }
        }
    }

    fn woken(&self) {
        self.poll();
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.0.as_fd())
    }
}

impl Drop for Passive {
    fn drop(&mut self) {
        if self.inner.state.lock().is_err() {
            return;
        }
        if let Some(eq) = self.eq.upgrade() {
            eq.detach(&self.progress);
        }
        requests(|requests| {
            let own = self.inner.number;
            requests.list.retain(|_, (number, _)| *number != own);
            requests.passive.remove(&own);
        });
    }
}

impl fmt::Debug for Passive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address() {
            Ok(at) => write!(f, "tcp passive endpoint {at}"),
            Err(_) => f.write_str("tcp passive endpoint"),
        }
    }
}

const TARGET: &str = "selvedge::tcp::fabric";
