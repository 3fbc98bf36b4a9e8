//! Event queues: fi_eq(3).

use std::any::Any;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::{Context, Endpoint, Errno, Info, PassiveEndpoint, Result, wait};

/// How an event queue is opened (`struct fi_eq_attr`).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Attr {
    /// Events that fit; 0 for the provider's default.
    pub size: usize,
    /// How a thread waits for events.
    pub wait_obj: wait::Object,
}

/// Something that happened outside the data path (`struct fi_eq_entry`, `struct fi_eq_cm_entry`).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// Written by the application, or by the provider for an object of its own.
    Notify {
        /// The writer's word.
        context: Context,
        /// The writer's data.
        data: u64,
        /// The object that the writer names; 0 for none. In C it is the address of a handle.
        handle: u64,
    },
    /// A peer asks for a connection: `info` is to be accepted or rejected.
    ConnReq {
        /// Where it was asked.
        pep: Arc<dyn PassiveEndpoint>,
        /// What to open the endpoint with; its handle names the request.
        info: Box<Info>,
        /// The peer's private data.
        data: Vec<u8>,
    },
    /// The connection stands.
    Connected {
        /// The endpoint.
        ep: Arc<dyn Endpoint>,
        /// The peer's private data.
        data: Vec<u8>,
    },
    /// The peer has closed.
    Shutdown {
        /// The endpoint.
        ep: Arc<dyn Endpoint>,
    },
    /// A group was joined.
    JoinComplete {
        /// The word given to the join.
        context: Context,
    },
}

/// An operation outside the data path that failed (`struct fi_eq_err_entry`).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ErrEntry {
    /// The word given to the operation.
    pub context: Context,
    /// The endpoint of the operation, if it was one's.
    pub ep: Option<Arc<dyn Endpoint>>,
    /// What went wrong.
    pub errno: Errno,
    /// The peer's data with a rejection.
    pub data: Vec<u8>,
    /// The provider's sentence.
    pub detail: String,
}

impl ErrEntry {
    /// An error without data of a peer.
    pub fn new(context: Context, errno: Errno, detail: impl Into<String>) -> Self {
        Self {
            context,
            ep: None,
            errno,
            data: Vec::new(),
            detail: detail.into(),
        }
    }
}

/// Where connections and other rare events are reported.
pub trait EventQueue: Any + fmt::Debug + Send + Sync {
    /// Takes the next event (fi_eq_read(3)).
    ///
    /// # Errors
    /// [`Errno::Again`] when there is none; [`Errno::Avail`] when it is an error.
    fn read(&self) -> Result<Event>;

    /// Looks at the next event without taking it (`FI_PEEK`).
    ///
    /// # Errors
    /// As [`Self::read`].
    fn peek(&self) -> Result<Event>;

    /// Takes the error at the head (fi_eq_readerr(3)).
    ///
    /// # Errors
    /// [`Errno::Again`] when the next event is none.
    fn read_err(&self) -> Result<ErrEntry>;

    /// Adds an event of the application's (fi_eq_write(3)).
    ///
    /// # Errors
    /// [`Errno::Again`] when the queue is full.
    fn write(&self, event: Event) -> Result;

    /// Sleeps until there is an event (fi_eq_sread(3)).
    ///
    /// # Errors
    /// [`Errno::Again`] after the time; [`Errno::NoSys`] without a wait object.
    fn wait(&self, timeout: Option<Duration>) -> Result<Event> {
        let _ = timeout;
        Err(Errno::NoSys)
    }

    /// Whether it is safe to block in `poll(2)` on [`Self::wait_fd`] (fi_trywait(3)).
    ///
    /// # Errors
    /// [`Errno::Again`] when there may be events: read first.
    fn try_wait(&self) -> Result {
        Err(Errno::NoSys)
    }

    /// The descriptor to poll, for a queue opened with [`wait::Object::Fd`].
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
