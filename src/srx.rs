//! Shared receive contexts: fi_srx_context, fi_endpoint(3).

use std::any::Any;
use std::fmt;

use crate::{Context, Msg, Result, Tagged};

/// Receives that several endpoints of a domain share. The first message to any of them takes a receive.
///
/// [`crate::Domain::srx`] opens it, and [`crate::Bindings::srx`] binds endpoints to it. Receives are posted
/// by [`Msg::recvmsg`] and [`Tagged::trecvmsg`], for one message each and from any peer. The methods for
/// sends fail with [`crate::Errno::NoSys`]. A receive completes in the receive queue of the endpoint that
/// received the message. Dropping the last handle ends the pending receives without completions.
pub trait SharedReceives: Any + fmt::Debug + Send + Sync + Msg + Tagged {
    /// Tries to cancel a receive (fi_cancel(3)). A cancelled receive completes with
    /// [`crate::Errno::Canceled`] at the open endpoint that was bound first.
    ///
    /// # Errors
    /// [`crate::Errno::NoEnt`] when there is no such receive, or it has matched a message;
    /// [`crate::Errno::NoCq`] while no endpoint is bound.
    fn cancel(&self, context: Context) -> Result;
}
