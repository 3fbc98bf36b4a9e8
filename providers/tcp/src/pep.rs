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
use selvedge_kit::birth::Native;
use selvedge_kit::cq::{Progress, Sink};
use selvedge_kit::eq::Queue;
use selvedge_kit::lock::Lock;
use selvedge_kit::wait::Rest;

use crate::config::Config;
use crate::connect::say;
use crate::greet::{Caller, Door};
use crate::wire::hello::{DATA_MAX, Hello, Kind};

/// A passive endpoint of the tcp provider.
pub(crate) struct Passive {
    inner: Arc<Inner>,
    progress: Arc<dyn Progress>,
    eq: Weak<Queue>,
    at: SocketAddr,
}

#[derive(Debug)]
struct Inner {
    porch: Native<Option<Porch>>,
    epoll: Epoll,
    config: Config,
    eq: Weak<Queue>,
    me: Weak<Passive>,
    /// What requests are described by.
    info: Info,
    number: u64,
}

/// The door, and who has come in at the last turn. They are told of at the next one: connections
/// that ended before they came are in the queue before them then.
#[derive(Debug)]
struct Porch {
    door: Door,
    heard: Vec<Caller>,
}

/// Requests that were told of and neither accepted nor rejected, by their handles; and which
/// endpoint's they are. A handle is good for every domain of the process, as in libfabric.
static REQUESTS: Mutex<Option<Requests>> = Mutex::new(None);

#[derive(Debug, Default)]
struct Requests {
    list: HashMap<u64, (u64, Caller)>,
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
    let request = requests(|requests| requests.list.remove(&handle));
    request.map(|(_, caller)| caller).ok_or_else(|| {
        let what = format!("handle {handle} names no connection request");
        Error::new(Errno::Inval, what)
    })
}

impl Passive {
    /// # Errors
    /// The system's, when descriptors are short; [`Errno::AddrNotAvail`] without an address.
    pub(crate) fn open(info: &Info, config: Config, eq: &Arc<Queue>) -> Result<Arc<Self>, Error> {
        let Some(Address::Ip(at)) = info.src_addr else {
            let what = "a passive endpoint needs an address to listen at";
            return Err(Error::new(Errno::AddrNotAvail, what));
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
                porch: Native::new(Lock::new(None)),
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
                at,
            }
        });
        eq.attach(&passive.progress)?;
        Ok(passive)
    }
}

impl PassiveEndpoint for Passive {
    fn listen(&self) -> Result {
        let inner = &self.inner;
        let mut porch = inner.porch.lock()?;
        if porch.is_some() {
            return Err(Errno::OpBadState);
        }
        let opened = Door::open(self.at, &inner.config, &inner.epoll);
        let opened = opened.inspect_err(|error| log::warn!(target: TARGET, "{error}"));
        *porch = Some(Porch {
            door: opened.map_err(|error| error.errno())?,
            heard: Vec::new(),
        });
        drop(porch);
        if let Some(eq) = self.eq.upgrade() {
            eq.wake();
        }
        Ok(())
    }

    fn address(&self) -> Result<Address> {
        let porch = self.inner.porch.lock()?;
        let addr = porch.as_ref().map(|porch| porch.door.addr);
        let given = (self.at.port() != 0).then_some(self.at);
        addr.or(given).map(Address::Ip).ok_or(Errno::AddrNotAvail)
    }

    fn reject(&self, handle: u64, data: &[u8]) -> Result {
        if data.len() > DATA_MAX {
            return Err(Errno::Inval);
        }
        let caller = take_request(handle).map_err(|error| error.errno())?;
        // Whoever does not hear it notices the end.
        let _ = say(&caller.socket, &Hello::new(Kind::Refusal, None, data));
        caller.socket.shut(std::net::Shutdown::Both);
        Ok(())
    }
}

impl Inner {
    fn hear(&self) -> usize {
        let Ok(mut guard) = self.porch.lock() else {
            return 0;
        };
        let Some(Porch { door, heard }) = &mut *guard else {
            return 0;
        };
        let callers = std::mem::replace(heard, door.hear(&self.epoll));
        let count = callers.len() + heard.len();
        if !door.is_quiet() {
            door.turn_out(Instant::now());
        }
        drop(guard);
        callers.into_iter().for_each(|caller| self.tell(caller));
        count
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

    fn rest(&self, _seen: &mut u64) -> Rest {
        if self.hear() > 0 {
            return Rest::Moved;
        }
        let Ok(porch) = self.porch.lock() else {
            return Rest::UntilWoken;
        };
        match porch.as_ref().and_then(|porch| porch.door.deadline()) {
            None => Rest::UntilWoken,
            Some(end) => Rest::AtMost(end.saturating_duration_since(Instant::now())),
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
        if self.inner.porch.lock().is_err() {
            return;
        }
        if let Some(eq) = self.eq.upgrade() {
            eq.detach(&self.progress);
        }
        requests(|requests| {
            let own = self.inner.number;
            requests.list.retain(|_, (number, _)| *number != own);
        });
    }
}

impl fmt::Debug for Passive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tcp passive endpoint {}", self.at)
    }
}

const TARGET: &str = "selvedge::tcp::fabric";
