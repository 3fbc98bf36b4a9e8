//! `Hub`: the ports and connections of a listener or a client, and the threads and tasks that wait
//! for them.
//!
//! A hub has no thread. Whichever thread waits drives it, or a task of an executor (the driver).

mod attempts;
mod completions;
mod greet;
mod link;
mod locked;
mod operations;
mod shared;
mod state;
mod steps;
mod wait;

pub(crate) use self::locked::Access;
pub(crate) use self::shared::{Cancellation, Shared};
pub(crate) use self::state::{Change, RequestLimit};
pub(crate) use self::steps::Report;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
#[cfg(feature = "tokio")]
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use self::attempts::Attempts;
use self::locked::{Lock, Turn};
use self::state::State;
use self::wait::{Parker, Waiting};
use crate::machine::Role;
use crate::port::{Buffers, Memory, Port, Scheme, ServiceAddress};
use crate::{Error, Message, Options};

/// How long a client with several addresses waits for an endpoint of shared memory. It is on the
/// same machine, or not there at all.
const NEAR_TIMEOUT: &str = "100ms";

/// The ports and connections of a listener or a client.
#[derive(Debug)]
pub(crate) struct Hub {
    parker: Parker,
    /// The memory of messages at each port, which needs no lock of the hub.
    memories: Vec<Arc<Memory>>,
    spin: Duration,
    lock: Lock,
    waiting: Waiting,
    #[cfg(feature = "tokio")]
    task: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

impl Hub {
    /// A hub that listens at addresses.
    ///
    /// # Errors
    /// [`Error::Address`] for an address that is taken or cannot be used.
    pub(crate) fn listen(addresses: &str, options: &Options) -> Result<Arc<Self>, Error> {
        let addresses = ServiceAddress::parse_list(addresses)?;
        let open = |local| Port::listen(local, options);
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
        for remote in addresses {
            // A libfabric has an endpoint for each address: it opens one that reaches the address.
            let serves =
                |port: &Port| port.scheme == remote.scheme && remote.scheme.reports_peers();
            let index = match ports.iter().position(serves) {
                Some(index) => index,
                None => {
                    ports.push(Port::connect(&remote, &options)?);
                    ports.len() - 1
                }
            };
            let peer = ports[index].insert(&remote.address)?;
            targets.push((index, peer, remote.text));
        }
        let nonce = RandomState::new().hash_one(std::process::id());
        let attempts = Attempts::new(targets, nonce, options.connect_timeout);
        let hub = Self::new(Role::Client, &options, ports, attempts)?;
        hub.with(|Access { state, ports }| state.attempt(ports, Instant::now()));
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
        Ok(Arc::new(Self {
            parker,
            memories: ports.iter().map(Port::memory).collect(),
            spin: options.spin,
            lock: Lock::new(state, ports),
            waiting: Waiting::default(),
            #[cfg(feature = "tokio")]
            task: Mutex::new(None),
        }))
    }

    /// The addresses of the ports.
    pub(crate) fn addresses(&self) -> Result<Vec<String>, Error> {
        self.with(|access| access.ports.iter().map(Port::service_address).collect())
    }

    /// A message of `len` zeros for a peer at this port.
    pub(crate) fn message(&self, port: usize, len: usize) -> Result<Message, Error> {
        let mut message = self.memories[port].message(len)?;
        message.fill(0);
        Ok(message)
    }

    /// A message with a copy of `bytes` for a peer at this port.
    pub(crate) fn message_from(&self, port: usize, bytes: &[u8]) -> Result<Message, Error> {
        self.memories[port].message_from(bytes)
    }

    /// Buffers that can be lent to peers of the first port over shared memory, if there is one.
    pub(crate) fn lendable_buffers(&self) -> Buffers {
        let mut memories = self.memories.iter();
        let shm = memories.position(|memory| memory.scheme == Scheme::Shm);
        self.memories[shm.unwrap_or(0)].lendable_buffers()
    }

    fn turn(&self) -> Turn<'_> {
        self.lock.take(&self.parker)
    }

    /// Calls `change` under the lock, then wakes the tasks that it concerns.
    #[inline]
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut Access<'_>) -> T) -> T {
        let mut turn = self.turn();
        let result = change(&mut turn.access());
        turn.release();
        result
    }

    /// Drives the ports once. Returns whether there was anything to do.
    pub(crate) fn poll(&self) -> bool {
        let mut turn = self.turn();
        let is_active = turn.poll();
        turn.release();
        if is_active {
            self.waiting.notify();
        }
        is_active
    }

    /// Does what is to be done at this time, and sets the timer for what comes next.
    pub(crate) fn sweep(&self) {
        let mut turn = self.turn();
        let _ = turn.sweep(Instant::now());
        turn.release();
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
