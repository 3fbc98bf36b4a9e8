//! `Cm`: what an endpoint keeps that the application connects (fi_cm(3)).

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use selvedge::eq::{ErrEntry, Event};
use selvedge::{Context, Errno, Result};
use selvedge_kit::eq::Queue;

use crate::accept::ConnectionRequest;
use crate::connection::failure::Failure;
use crate::socket::BoundSocket;
use crate::wire::hello::DATA_MAX;

/// The connection of an endpoint that the application connects.
#[derive(Debug, Default)]
pub(crate) struct Cm {
    /// Where events go. The queue may hold the endpoint, and so must not be held by it.
    pub(crate) eq: Weak<Queue>,
    /// The endpoint that events name.
    pub(crate) endpoint: Option<Weak<dyn selvedge::Endpoint>>,
    /// Where it connects from.
    pub(crate) from: Option<SocketAddr>,
    /// The request that the endpoint was opened with.
    pub(crate) request: Option<Box<ConnectionRequest>>,
    /// The place of a passive endpoint that it has taken, until it connects from there.
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
    /// An endpoint that is not connected, and tells of that by events of a queue.
    pub(crate) fn new(eq: Weak<Queue>) -> Self {
        Self {
            eq,
            ..Self::default()
        }
    }

    /// The only peer.
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

    /// Reports that there will be no connection.
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

    /// Whether a request with these data may be made now.
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
