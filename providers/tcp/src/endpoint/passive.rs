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
    shared: Arc<SharedPassive>,
    progress: Arc<dyn Progress>,
    eq: Weak<Queue>,
}

/// The state that a passive endpoint shares with its event queue, which drives it.
#[derive(Debug)]
struct SharedPassive {
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
    /// Not bound to an address; holds the requested address, if any.
    Unbound(Option<SocketAddr>),
    /// Bound to an address.
    Bound(BoundSocket, SocketAddr),
    Listening(Box<Listening>),
    /// The address was transferred to another endpoint.
    Transferred,
}

/// The acceptor, and the requests of the last poll. The next poll reports these requests, so that
/// the event queue has the shutdown of earlier connections first.
#[derive(Debug)]
struct Listening {
    acceptor: Acceptor,
    deferred: Vec<ConnectionRequest>,
}

/// The handles of this process. A handle is valid in every domain of the process, as in libfabric.
static REQUESTS: Mutex<Option<Requests>> = Mutex::new(None);

#[derive(Debug, Default)]
struct Requests {
    /// Reported requests that are neither accepted nor rejected, by handle, each with the number of
    /// its passive endpoint.
    list: HashMap<u64, (u64, ConnectionRequest)>,
    /// The passive endpoints by number.
    passive: HashMap<u64, Weak<Passive>>,
    /// The last handle or number of a passive endpoint.
    last: u64,
}

fn with_requests<R>(use_requests: impl FnOnce(&mut Requests) -> R) -> R {
    let guard: MutexGuard<'_, _> = REQUESTS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut guard = guard;
    use_requests(guard.get_or_insert_default())
}

/// Removes and returns the request of a handle.
///
/// # Errors
/// [`Errno::Inval`], with the handle, when there is none.
pub(crate) fn take_request(handle: u64) -> Result<ConnectionRequest, Error> {
    let (request, passive) = with_requests(|requests| {
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
        passive.shared.update_unanswered();
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
/// [`Errno::Inval`] when the handle names neither a request nor a passive endpoint; the errors of
/// [`Passive::transfer_address`].
pub(crate) fn take_handle(handle: u64) -> Result<HandleTarget, Error> {
    if handle == 0 {
        return Ok(HandleTarget::Nothing);
    }
    if let Ok(request) = take_request(handle) {
        return Ok(HandleTarget::Request(Box::new(request)));
    }
    let passive = with_requests(|requests| requests.passive.get(&handle).and_then(Weak::upgrade));
    let Some(passive) = passive else {
        let text = format!(
            "handle {handle} names no connection request, and no passive endpoint that is open"
        );
        return Err(Error::new(Errno::Inval, text));
    };
    let (socket, addr) = passive.transfer_address()?;
    Ok(HandleTarget::Bound(socket, addr))
}

impl Passive {
    /// Opens a passive endpoint. If `info.handle` names another passive endpoint, the new one takes
    /// over the address of the other.
    ///
    /// # Errors
    /// System errors, when no descriptors are left; the errors of [`take_handle`].
    pub(crate) fn open(info: &Info, config: Config, eq: &Arc<Queue>) -> Result<Arc<Self>, Error> {
        let requested = requested_address(info)?;
        let state = match take_handle(info.handle)? {
            HandleTarget::Bound(socket, addr) => PassiveState::Bound(socket, addr),
            _ => PassiveState::Unbound(requested),
        };
        let config = config.for_endpoint(info)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(|cause| {
            Error::new(Errno::from_raw(cause as i32), "opening a passive endpoint").because(cause)
        })?;
        let number = with_requests(|requests| {
            requests.last += 1;
            requests.last
        });
        let passive = Arc::new_cyclic(|this: &Weak<Self>| {
            let shared = Arc::new(SharedPassive {
                state: ForkGuarded::new(Lock::new(state)),
                epoll,
                config,
                eq: Arc::downgrade(eq),
                this: this.clone(),
                info: info.clone(),
                number,
            });
            Self {
                progress: Arc::clone(&shared) as Arc<dyn Progress>,
                shared,
                eq: Arc::downgrade(eq),
            }
        });
        eq.attach(&passive.progress)?;
        let this = Arc::downgrade(&passive);
        with_requests(|requests| requests.passive.insert(number, this));
        Ok(passive)
    }

    /// Returns the bound socket for another endpoint.
    ///
    /// # Errors
    /// [`Errno::AddrNotAvail`] when this endpoint has no address; [`Errno::OpBadState`] when it
    /// listens, or has already transferred its address; system errors.
    fn transfer_address(&self) -> Result<(BoundSocket, SocketAddr), Error> {
        let error = |errno, reason: &str| {
            let text = format!("taking over the address of a passive endpoint that {reason}");
            Err(Error::new(errno, text))
        };
        let mut state = self.shared.state()?;
        match std::mem::replace(&mut *state, PassiveState::Transferred) {
            PassiveState::Bound(socket, addr) => return Ok((socket, addr)),
            PassiveState::Unbound(Some(addr)) => return self.shared.bind_at(addr),
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
        let shared = &self.shared;
        let mut state = shared.state.lock()?;
        let acceptor = match &*state {
            PassiveState::Unbound(Some(addr)) => {
                Acceptor::open(*addr, &shared.config, &shared.epoll)
            }
            PassiveState::Bound(..) => shared.open_bound(&mut state),
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
        let addr = match &*self.shared.state.lock()? {
            PassiveState::Listening(listening) => listening.acceptor.addr,
            PassiveState::Bound(_, addr) => *addr,
            PassiveState::Unbound(Some(addr)) if addr.port() != 0 => *addr,
            PassiveState::Unbound(_) | PassiveState::Transferred => {
                return Err(Errno::AddrNotAvail);
            }
        };
        Ok(Address::Ip(addr))
    }

    fn set_address(&self, addr: &Address) -> Result<(), Error> {
        let address = match addr {
            Address::Ip(ip) => Some(*ip),
            other => resolve::parse_addr(&other.to_string()),
        };
        let Some(socket_addr) = address else {
            let text = format!("{addr} is not an address of the tcp provider");
            return Err(Error::new(Errno::Inval, text));
        };
        let mut state = self.shared.state()?;
        if !matches!(&*state, PassiveState::Unbound(_)) {
            let text =
                format!("setting address {addr} of a passive endpoint that already has an address");
            return Err(Error::new(Errno::OpBadState, text));
        }
        let (socket, addr) = self.shared.bind_at(socket_addr)?;
        *state = PassiveState::Bound(socket, addr);
        Ok(())
    }

    fn handle(&self) -> Result<u64> {
        Ok(self.shared.number)
    }

    fn reject(&self, handle: u64, data: &[u8]) -> Result {
        if data.len() > DATA_MAX {
            return Err(Errno::Inval);
        }
        let mut request = take_request(handle).map_err(|error| error.errno())?;
        // A peer that does not receive the rejection sees the end of the connection.
        let rejection = Hello::new(Kind::Reject, None, data);
        let _ = request.socket.send_all(&rejection.encode());
        request.socket.shutdown(std::net::Shutdown::Both);
        Ok(())
    }
}

impl SharedPassive {
    fn state(&self) -> Result<Guard<'_, PassiveState>, Error> {
        self.state.lock().map_err(|errno| {
            let text = "a passive endpoint that was opened before fork(2)";
            Error::new(errno, text)
        })
    }

    /// Binds a socket to an address, and returns both.
    fn bind_at(&self, addr: SocketAddr) -> Result<(BoundSocket, SocketAddr), Error> {
        let socket = bind_at(addr, &self.config).and_then(|socket| {
            let addr = canonical_addr(socket.local_addr()?);
            Ok((socket, addr))
        });
        socket.map_err(|cause| listen_error(addr, cause))
    }

    /// Listens at the bound address. On failure the address is lost.
    fn open_bound(&self, state: &mut PassiveState) -> Result<Acceptor, Error> {
        let PassiveState::Bound(socket, addr) = std::mem::replace(state, PassiveState::Transferred)
        else {
            return Err(Error::new(
                Errno::OpBadState,
                "listening without an address",
            ));
        };
        let listener = socket.listen().map_err(|cause| listen_error(addr, cause))?;
        Acceptor::from_listener(listener, &self.config, &self.epoll)
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
        with_requests(|requests| {
            let numbers = requests.list.values().map(|(number, _)| *number);
            numbers.filter(|number| *number == self.number).count()
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
        info.dest_addr = Some(Address::Ip(request.peer_addr));
        info.src_addr = request.socket.local_addr().ok().map(Address::Ip);
        let data = request.hello.data.clone();
        info.handle = with_requests(|requests| {
            requests.last += 1;
            requests.list.insert(requests.last, (self.number, request));
            requests.last
        });
        eq.push(Event::ConnReq { pep, info, data });
    }
}

impl Progress for SharedPassive {
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
        if self.shared.state.lock().is_err() {
            return;
        }
        if let Some(eq) = self.eq.upgrade() {
            eq.detach(&self.progress);
        }
        with_requests(|requests| {
            let closed = self.shared.number;
            requests.list.retain(|_, (number, _)| *number != closed);
            requests.passive.remove(&closed);
        });
    }
}

impl fmt::Debug for Passive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address() {
            Ok(addr) => write!(f, "tcp passive endpoint {addr}"),
            Err(_) => f.write_str("tcp passive endpoint"),
        }
    }
}

const TARGET: &str = "selvedge::tcp::fabric";
