//! `Hub`: the ports and connections of a listener or a client, and the threads and tasks that wait
//! for them.
//!
//! A hub has no thread. Whichever thread waits drives it, or a task of an executor (the driver).

mod attempts;
mod completions;
mod greet;
mod link;
mod operations;
mod parker;
mod shared;
mod state;
#[cfg(feature = "tokio")]
mod tokio_driver;
mod waiting;
mod waits;

pub(crate) use self::operations::Report;
pub(crate) use self::shared::{Cancellation, Shared};
pub(crate) use self::state::Change;

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use selvedge::owned::Completions;

use self::attempts::Attempts;
use self::parker::Parker;
use self::state::State;
use self::waiting::Waiting;
use crate::machine::Role;
use crate::message::Body;
use crate::port::{Buffers, Port, Scheme, ServiceAddress};
use crate::{Error, Message, Options};

/// How long a client with several addresses waits for an endpoint of shared memory. It is on the
/// same machine, or not there at all.
const NEAR_TIMEOUT: &str = "100ms";

/// The ports and connections of a listener or a client.
#[derive(Debug)]
pub(crate) struct Hub {
    parker: Parker,
    ports: Vec<Port>,
    spin: Duration,
    locked: Mutex<Locked>,
    waiting: Waiting,
    #[cfg(feature = "tokio")]
    task: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

#[derive(Debug)]
struct Locked {
    state: State,
    done: Completions,
    /// The time for which the timer is set.
    timer: Option<Instant>,
}

impl Hub {
    /// A hub that listens at addresses.
    ///
    /// # Errors
    /// [`Error::Address`] for an address that is taken or cannot be used.
    pub(crate) fn listen(addresses: &str, options: &Options) -> Result<Arc<Self>, Error> {
        let addresses = ServiceAddress::parse_list(addresses)?;
        let open = |local: &ServiceAddress| Port::open(local.scheme, Some(local), options);
        let ports = addresses.iter().map(open).collect::<Result<_, _>>()?;
        Self::new(Role::Server, options, ports, Attempts::default())
    }

    /// A hub that connects to one of a server's addresses.
    pub(crate) fn connect(addresses: &str, options: &Options) -> Result<Arc<Self>, Error> {
        let addresses = ServiceAddress::parse_list(addresses)?;
        let mut options = options.clone();
        if addresses.len() > 1 {
            let param = ("FI_SHM_PEER_TIMEOUT".to_owned(), NEAR_TIMEOUT.to_owned());
            options.params.insert(0, param);
        }
        let mut ports: Vec<Port> = Vec::new();
        let mut targets = Vec::new();
        for ServiceAddress {
            scheme,
            address,
            text,
        } in addresses
        {
            let of_scheme = |port: &Port| port.scheme == scheme;
            let index = match ports.iter().position(of_scheme) {
                Some(index) => index,
                None => {
                    ports.push(Port::open(scheme, None, &options)?);
                    ports.len() - 1
                }
            };
            targets.push((index, ports[index].insert(&address)?, text));
        }
        let nonce = RandomState::new().hash_one(std::process::id());
        let attempts = Attempts::new(targets, nonce, options.connect_timeout);
        let hub = Self::new(Role::Client, &options, ports, attempts)?;
        hub.with(|state, ports| state.attempt(ports, Instant::now()));
        Ok(hub)
    }

    fn new(
        role: Role,
        options: &Options,
        ports: Vec<Port>,
        attempts: Attempts,
    ) -> Result<Arc<Self>, Error> {
        let parker = Parker::new(ports.iter().map(Port::wait_fd))?;
        let state = State::new(role, options.clone(), ports.len(), attempts);
        let locked = Locked {
            state,
            done: State::completions(),
            timer: None,
        };
        Ok(Arc::new(Self {
            parker,
            ports,
            spin: options.spin,
            locked: Mutex::new(locked),
            waiting: Waiting::default(),
            #[cfg(feature = "tokio")]
            task: Mutex::new(None),
        }))
    }

    /// The addresses of the ports.
    pub(crate) fn addresses(&self) -> Result<Vec<String>, Error> {
        let text = |port: &Port| -> Result<String, Error> {
            let address = port.address()?.to_string();
            Ok(match port.scheme {
                Scheme::Shm => address.replacen("fi_shm", "shm", 1),
                Scheme::Tcp => format!("tcp://{address}"),
            })
        };
        self.ports.iter().map(text).collect()
    }

    /// A message of `len` zeros for a peer at this port.
    pub(crate) fn message(&self, port: usize, len: usize) -> Result<Message, Error> {
        let mut message = self.ports[port].message(len)?;
        message.fill(0);
        Ok(message)
    }

    /// A message with a copy of `bytes` for a peer at this port.
    pub(crate) fn message_from(&self, port: usize, bytes: &[u8]) -> Result<Message, Error> {
        self.ports[port].message_from(bytes)
    }

    /// The payload that has arrived at this port, as a message.
    ///
    /// # Errors
    /// As [`Body::into_message`].
    pub(crate) fn message_of(&self, port: usize, body: Body) -> Result<Message, Error> {
        body.into_message(&self.ports[port])
    }

    /// Buffers that can be lent to peers of the first port over shared memory, if there is one.
    pub(crate) fn lendable_buffers(&self) -> Buffers {
        let mut ports = self.ports.iter();
        let shm = ports.position(|port| port.scheme == Scheme::Shm);
        self.ports[shm.unwrap_or(0)].lendable_buffers()
    }

    fn lock(&self) -> MutexGuard<'_, Locked> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `change` under the lock, then wakes the tasks that it concerns.
    fn with<T>(&self, change: impl FnOnce(&mut State, &[Port]) -> T) -> T {
        let mut locked = self.lock();
        let result = change(&mut locked.state, &self.ports);
        let woken = std::mem::take(&mut locked.state.woken);
        let is_earlier = match (locked.state.next_sweep, locked.timer) {
            (Some(next), Some(timer)) => next < timer,
            (next, _) => next.is_some(),
        };
        if is_earlier && let Some(next) = locked.state.next_sweep {
            locked.timer = Some(next);
            self.parker.set_timer(next);
        }
        drop(locked);
        woken.into_iter().for_each(Waker::wake);
        result
    }

    /// Drives the ports and the timers once. Returns whether there was anything to do.
    pub(crate) fn poll(&self) -> bool {
        let mut locked = self.lock();
        let Locked { state, done, .. } = &mut *locked;
        let is_active = state.poll(&self.ports, done);
        let woken = std::mem::take(&mut state.woken);
        drop(locked);
        woken.into_iter().for_each(Waker::wake);
        if is_active {
            self.waiting.notify();
        }
        is_active
    }

    /// Notes that the timer has to be set again.
    fn timer_expired(&self) {
        let mut locked = self.lock();
        if locked.timer.is_some_and(|at| at <= Instant::now()) {
            locked.timer = None;
        }
    }

    /// Does what is to be done at this time, and sets the timer for what comes next.
    pub(crate) fn sweep(&self) {
        self.with(|state, ports| {
            let now = Instant::now();
            state.sweep(ports, now);
        });
    }
}

#[cfg(feature = "tokio")]
impl Drop for Hub {
    fn drop(&mut self) {
        let task = self.task.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task.take() {
            task.abort();
        }
    }
}
