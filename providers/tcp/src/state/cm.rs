//! `Cm`: the connection management state (fi_cm(3)) of a connected endpoint.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use selvedge::eq::{ErrEntry, Event};
use selvedge::{Context, Errno, Result};
use selvedge_kit::eq::Queue;

use crate::accept::ConnectionRequest;
use crate::connection::failure::Failure;
use crate::socket::BoundSocket;
use crate::wire::hello::DATA_MAX;

/// The connection state of a connected endpoint.
#[derive(Debug, Default)]
pub(crate) struct Cm {
    /// The event queue. The reference is weak, because queued events may hold the endpoint.
    pub(crate) eq: Weak<Queue>,
    /// The endpoint handle for events.
    pub(crate) endpoint: Option<Weak<dyn selvedge::Endpoint>>,
    /// The address to connect from.
    pub(crate) src_addr: Option<SocketAddr>,
    /// The connection request with which the endpoint was opened.
    pub(crate) request: Option<Box<ConnectionRequest>>,
    /// The bound socket that was taken over from a passive endpoint, until it connects.
    pub(crate) bound: Option<BoundSocket>,
    pub(super) stage: CmState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum CmState {
    #[default]
    Idle,
    Connecting,
    Up,
    Closed,
}

impl Cm {
    /// Creates the state of an unconnected endpoint that reports to an event queue.
    pub(crate) fn new(eq: Weak<Queue>) -> Self {
        Self {
            eq,
            ..Self::default()
        }
    }

    /// Returns the index of the only peer.
    ///
    /// # Errors
    /// [`Errno::NotConn`] unless the endpoint is connected.
    #[inline]
    pub(crate) fn peer(&self) -> Result<usize> {
        match self.stage {
            CmState::Up => Ok(0),
            _ => Err(Errno::NotConn),
        }
    }

    fn endpoint(&self) -> Option<Arc<dyn selvedge::Endpoint>> {
        self.endpoint.as_ref()?.upgrade()
    }

    pub(super) fn report(&self, event: impl FnOnce(Arc<dyn selvedge::Endpoint>) -> Event) {
        if let (Some(eq), Some(ep)) = (self.eq.upgrade(), self.endpoint()) {
            eq.push(event(ep));
        }
    }

    /// Reports that the connection attempt failed.
    pub(super) fn report_failure(&self, failure: &Failure) {
        if let Some(eq) = self.eq.upgrade() {
            let Failure {
                errno,
                detail,
                data,
            } = failure;
            let mut error = ErrEntry::new(Context::default(), *errno, detail.clone());
            error.data.clone_from(data);
            error.ep = self.endpoint();
            eq.push_err(error);
        }
    }

    /// Checks whether a connection request with this private data may be made now.
    pub(super) fn check_request(&self, data: &[u8]) -> Result {
        match self.stage {
            _ if data.len() > DATA_MAX => Err(Errno::Inval),
            _ if self.request.is_some() => Err(Errno::OpBadState),
            CmState::Idle => Ok(()),
            CmState::Connecting => Err(Errno::Already),
            CmState::Up => Err(Errno::IsConn),
            CmState::Closed => Err(Errno::OpBadState),
        }
    }
}
