//! Event queues: fi_eq(3).

use std::any::Any;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::{Context, Endpoint, Errno, Info, PassiveEndpoint, Result, wait};

/// Attributes of an event queue (`struct fi_eq_attr`).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Attr {
    /// The capacity in events; 0 for the provider's default.
    pub size: usize,
    /// The wait object for threads that wait.
    pub wait_obj: wait::Object,
}

/// A control event (`struct fi_eq_entry`, `struct fi_eq_cm_entry`).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// An event that the application has written, or the provider for one of its objects.
    Notify {
        /// The writer's context.
        context: Context,
        /// The writer's data.
        data: u64,
        /// The object of the event, in C as the address of a handle; 0 for none.
        handle: u64,
    },
    /// A peer requests a connection. The application accepts or rejects `info`.
    ConnReq {
        /// The passive endpoint that received the request.
        pep: Arc<dyn PassiveEndpoint>,
        /// The description with which the application opens the endpoint. [`Info::handle`]
        /// identifies the request.
        info: Box<Info>,
        /// The peer's private data.
        data: Vec<u8>,
    },
    /// A connection was established.
    Connected {
        /// The endpoint.
        ep: Arc<dyn Endpoint>,
        /// The peer's private data.
        data: Vec<u8>,
    },
    /// A connection was closed.
    Shutdown {
        /// The endpoint.
        ep: Arc<dyn Endpoint>,
    },
    /// The endpoint has joined a group.
    JoinComplete {
        /// The context of the join.
        context: Context,
    },
}

/// The error entry of a failed control operation (`struct fi_eq_err_entry`).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ErrEntry {
    /// The context of the operation.
    pub context: Context,
    /// The endpoint of the operation, if it has one.
    pub ep: Option<Arc<dyn Endpoint>>,
    /// The error number.
    pub errno: Errno,
    /// The peer's private data, for a rejected connection.
    pub data: Vec<u8>,
    /// The provider's error text.
    pub detail: String,
}

impl ErrEntry {
    /// Creates an error entry without an endpoint and without data.
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

/// A queue that reports connections and other control events.
pub trait EventQueue: Any + fmt::Debug + Send + Sync {
    /// Removes the next event (fi_eq_read(3)).
    ///
    /// # Errors
    /// [`Errno::Again`] when the queue is empty; [`Errno::Avail`] when the next entry is an error.
    fn read(&self) -> Result<Event>;

    /// Returns the next event without removing it (`FI_PEEK`).
    ///
    /// # Errors
    /// As [`Self::read`].
    fn peek(&self) -> Result<Event>;

    /// Removes the error entry at the head (fi_eq_readerr(3)).
    ///
    /// # Errors
    /// [`Errno::Again`] when the next entry is not an error.
    fn read_err(&self) -> Result<ErrEntry>;

    /// Appends an event of the application (fi_eq_write(3)).
    ///
    /// # Errors
    /// [`Errno::Again`] when the queue is full.
    fn write(&self, event: Event) -> Result;

    /// Parks until the queue has an event, and removes the event (fi_eq_sread(3)). `None` waits
    /// without a timeout.
    ///
    /// # Errors
    /// [`Errno::Again`] after `timeout`; [`Errno::NoSys`] without a wait object.
    fn wait(&self, timeout: Option<Duration>) -> Result<Event> {
        let _ = timeout;
        Err(Errno::NoSys)
    }

    /// Checks that it is safe to block in `poll(2)` on [`Self::wait_fd`] (fi_trywait(3)).
    ///
    /// # Errors
    /// [`Errno::Again`] when the queue may have events, which the caller must read first.
    fn try_wait(&self) -> Result {
        Err(Errno::NoSys)
    }

    /// Returns the descriptor to poll, for a queue opened with [`wait::Object::Fd`].
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
