//! Passive endpoints: where connections are asked for.

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

use crate::accept::listen::{failed, settle};
use crate::accept::{Acceptor, Caller};
use crate::config::Config;
use crate::socket::Bound;
use crate::wire::hello::{DATA_MAX, Hello, Kind};

/// A passive endpoint of the tcp provider.
pub(crate) struct Passive {
    inner: Arc<Inner>,
    progress: Arc<dyn Progress>,
    eq: Weak<Queue>,
}

#[derive(Debug)]
struct Inner {
    stand: ForkGuarded<Stand>,
    epoll: Epoll,
    config: Config,
    eq: Weak<Queue>,
    me: Weak<Passive>,
    /// What requests are described by.
    info: Info,
    number: u64,
}

/// How far it is.
#[derive(Debug)]
enum Stand {
    /// Where it is to listen, if that was said.
    Wanted(Option<SocketAddr>),
    /// It has an address.
    Bound(Bound, SocketAddr),
    Listens(Box<Listening>),
    /// Another has its place.
    Gone,
}

/// The acceptor, and the callers of the last turn. Events tell of them at the next one: then the ends of
/// connections that had ended before they came are in the queue before them.
#[derive(Debug)]
struct Listening {
    acceptor: Acceptor,
    heard: Vec<Caller>,
}

/// Requests that were told of and neither accepted nor rejected, by their handles, with the endpoint's
/// whose they are; and the endpoints themselves, likewise. A handle is good for every domain of the
/// process, as in libfabric.
static REQUESTS: Mutex<Option<Requests>> = Mutex::new(None);

#[derive(Debug, Default)]
struct Requests {
    list: HashMap<u64, (u64, Caller)>,
    passive: HashMap<u64, Weak<Passive>>,
    last: u64,
}

fn requests<R>(with: impl FnOnce(&mut Requests) -> R) -> R {
    let guard: MutexGuard<'_, _> = REQUESTS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut guard = guard;
    with(guard.get_or_insert_default())
}

/// Takes the request of a handle.
///
/// # Errors
/// [`Errno::Inval`] when there is none, with the handle.
pub(crate) fn take_request(handle: u64) -> Result<Caller, Error> {
    let (caller, passive) = requests(|requests| {
        let (number, caller) = requests.list.remove(&handle)?;
        Some((
            caller,
            requests.passive.get(&number).and_then(Weak::upgrade),
        ))
    })
    .ok_or_else(|| {
        let what = format!("handle {handle} names no connection request");
        Error::new(Errno::Inval, what)
    })?;
    if let Some(passive) = passive {
        passive.inner.make_room();
    }
    Ok(caller)
}

/// What a handle stands for.
pub(crate) enum Taken {
    Nothing,
    Request(Box<Caller>),
    /// The place of a passive endpoint.
    Place(Bound, SocketAddr),
}

/// Takes what a handle stands for; 0 stands for nothing.
///
/// # Errors
/// [`Errno::Inval`] when that is neither a request nor a passive endpoint; those of
/// [`Passive::give_way`].
pub(crate) fn take(handle: u64) -> Result<Taken, Error> {
    if handle == 0 {
        return Ok(Taken::Nothing);
    }
    if let Ok(caller) = take_request(handle) {
        return Ok(Taken::Request(Box::new(caller)));
    }
    let passive = requests(|requests| requests.passive.get(&handle).and_then(Weak::upgrade));
    let Some(passive) = passive else {
        let what = format!(
            "handle {handle} names no connection request, and no passive endpoint that is open"
        );
        return Err(Error::new(Errno::Inval, what));
    };
    let (place, at) = passive.give_way()?;
    Ok(Taken::Place(place, at))
}

impl Passive {
    /// Opens one, in the place of another if `info` has the handle of that.
    ///
    /// # Errors
    /// The system's, when descriptors are short; those of [`take`].
    pub(crate) fn open(info: &Info, config: Config, eq: &Arc<Queue>) -> Result<Arc<Self>, Error> {
        let wanted = requested_address(info)?;
        let stand = match take(info.handle)? {
            Taken::Place(place, at) => Stand::Bound(place, at),
            _ => Stand::Wanted(wanted),
        };
        let config = config.keyed(info)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(|cause| {
            Error::new(Errno::from_raw(cause as i32), "opening a passive endpoint").because(cause)
        })?;
        let number = requests(|requests| {
            requests.last += 1;
            requests.last
        });
        let passive = Arc::new_cyclic(|me: &Weak<Self>| {
            let inner = Arc::new(Inner {
                stand: ForkGuarded::new(Lock::new(stand)),
                epoll,
                config,
                eq: Arc::downgrade(eq),
                me: me.clone(),
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
        let me = Arc::downgrade(&passive);
        requests(|requests| requests.passive.insert(number, me));
        Ok(passive)
    }

    /// Leaves its address to another.
    ///
    /// # Errors
    /// [`Errno::AddrNotAvail`] when it has none; [`Errno::OpBadState`] when it listens, or has given
    /// way already; the system's.
    fn give_way(&self) -> Result<(Bound, SocketAddr), Error> {
        let refused = |errno, why: &str| {
            let what = format!("taking the place of a passive endpoint that {why}");
            Err(Error::new(errno, what))
        };
        let mut stand = self.inner.stand()?;
        match std::mem::replace(&mut *stand, Stand::Gone) {
            Stand::Bound(place, at) => return Ok((place, at)),
            Stand::Wanted(Some(at)) => return self.inner.settle(at),
            other => *stand = other,
        }
        match &*stand {
            Stand::Wanted(_) => refused(Errno::AddrNotAvail, "has no address"),
            Stand::Gone => refused(Errno::OpBadState, "has given way to another"),
            _ => refused(Errno::OpBadState, "listens"),
        }
    }
}

impl PassiveEndpoint for Passive {
    fn listen(&self) -> Result {
        let inner = &self.inner;
        let mut stand = inner.stand.lock()?;
        let opened = match &*stand {
            Stand::Wanted(Some(at)) => Acceptor::open(*at, &inner.config, &inner.epoll),
            Stand::Bound(..) => inner.open_bound(&mut stand),
            Stand::Wanted(None) => return Err(Errno::AddrNotAvail),
            Stand::Listens(_) | Stand::Gone => return Err(Errno::OpBadState),
        };
        let opened = opened.inspect_err(|error| log::warn!(target: TARGET, "{error}"));
        *stand = Stand::Listens(Box::new(Listening {
            acceptor: opened.map_err(|error| error.errno())?,
            heard: Vec::new(),
        }));
        drop(stand);
        if let Some(eq) = self.eq.upgrade() {
            eq.wake();
        }
        Ok(())
    }

    fn address(&self) -> Result<Address> {
        let at = match &*self.inner.stand.lock()? {
            Stand::Listens(listening) => listening.acceptor.addr,
            Stand::Bound(_, at) => *at,
            Stand::Wanted(Some(at)) if at.port() != 0 => *at,
            Stand::Wanted(_) | Stand::Gone => return Err(Errno::AddrNotAvail),
        };
        Ok(Address::Ip(at))
    }

    fn set_address(&self, addr: &Address) -> Result<(), Error> {
        let written = match addr {
            Address::Ip(at) => Some(*at),
            other => resolve::parse_addr(&other.to_string()),
        };
        let Some(at) = written else {
            let what = format!("{addr} is no address of the tcp provider's");
            return Err(Error::new(Errno::Inval, what));
        };
        let mut stand = self.inner.stand()?;
        if !matches!(&*stand, Stand::Wanted(_)) {
            let what = format!("{addr} for a passive endpoint that has its address");
            return Err(Error::new(Errno::OpBadState, what));
        }
        let (place, at) = self.inner.settle(at)?;
        *stand = Stand::Bound(place, at);
        Ok(())
    }

    fn handle(&self) -> Result<u64> {
        Ok(self.inner.number)
    }

    fn reject(&self, handle: u64, data: &[u8]) -> Result {
        if data.len() > DATA_MAX {
            return Err(Errno::Inval);
        }
        let mut caller = take_request(handle).map_err(|error| error.errno())?;
        // Whoever does not hear it notices the end.
        let refusal = Hello::new(Kind::Refusal, None, data);
        let _ = caller.socket.send_whole(&refusal.encode());
        caller.socket.shut(std::net::Shutdown::Both);
        Ok(())
    }
}

impl Inner {
    fn stand(&self) -> Result<Guard<'_, Stand>, Error> {
        self.stand.lock().map_err(|errno| {
            let what = "a passive endpoint of the process that this one was forked from";
            Error::new(errno, what)
        })
    }

    /// Takes an address; which it is.
    fn settle(&self, at: SocketAddr) -> Result<(Bound, SocketAddr), Error> {
        let place = settle(at, &self.config).and_then(|place| {
            let at = canonical_addr(place.local_addr()?);
            Ok((place, at))
        });
        place.map_err(|cause| failed(at, cause))
    }

    /// Listens at the address that it has; where that fails, it has the address no more.
    fn open_bound(&self, stand: &mut Stand) -> Result<Acceptor, Error> {
        let Stand::Bound(place, at) = std::mem::replace(stand, Stand::Gone) else {
            return Err(Error::new(
                Errno::OpBadState,
                "listening without an address",
            ));
        };
        let listener = place.listen().map_err(|cause| failed(at, cause))?;
        Acceptor::at(listener, &self.config, &self.epoll)
    }

    fn hear(&self) -> usize {
        let Ok(mut guard) = self.stand.lock() else {
            return 0;
        };
        let Stand::Listens(listening) = &mut *guard else {
            return 0;
        };
        let Listening { acceptor, heard } = &mut **listening;
        let callers = std::mem::replace(heard, acceptor.poll(&self.epoll));
        let count = callers.len() + heard.len();
        acceptor.set_waiting(self.waiting() + count, &self.epoll);
        if !acceptor.is_idle() {
            acceptor.expire(Instant::now(), &self.epoll);
        }
        drop(guard);
        callers.into_iter().for_each(|caller| self.tell(caller));
        count
    }

    /// Requests that the application has been told of, and has neither accepted nor rejected.
    fn waiting(&self) -> usize {
        requests(|requests| {
            let own = requests.list.values();
            own.filter(|(number, _)| *number == self.number).count()
        })
    }

    /// A request was accepted or rejected: another connection may be taken.
    fn make_room(&self) {
        if let Ok(mut stand) = self.stand.lock()
            && let Stand::Listens(listening) = &mut *stand
        {
            let waiting = self.waiting() + listening.heard.len();
            listening.acceptor.set_waiting(waiting, &self.epoll);
        }
    }

    fn tell(&self, caller: Caller) {
        let (Some(eq), Some(pep)) = (self.eq.upgrade(), self.me.upgrade()) else {
            return;
        };
        let mut info = Box::new(self.info.clone());
        info.dest_addr = Some(Address::Ip(caller.from));
        info.src_addr = caller.socket.local_addr().ok().map(Address::Ip);
        let data = caller.hello.data.clone();
        info.handle = requests(|requests| {
            requests.last += 1;
            requests.list.insert(requests.last, (self.number, caller));
            requests.last
        });
        eq.push(Event::ConnReq { pep, info, data });
    }
}

impl Progress for Inner {
    fn progress(&self, _budget: usize, _sink: &mut Sink<'_>) -> usize {
        self.hear()
    }

    fn arm(&self, _seen: &mut u64) -> ArmOutcome {
        if self.hear() > 0 {
            return ArmOutcome::Progressed;
        }
        let deadline = match self.stand.lock().as_deref() {
            Ok(Stand::Listens(listening)) => listening.acceptor.deadline(),
            _ => None,
        };
        match deadline {
            None => ArmOutcome::UntilWoken,
            Some(end) => ArmOutcome::AtMost(end.saturating_duration_since(Instant::now())),
        }
    }

    fn woken(&self) {
        self.hear();
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.0.as_fd())
    }
}

impl Drop for Passive {
    fn drop(&mut self) {
        if self.inner.stand.lock().is_err() {
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
