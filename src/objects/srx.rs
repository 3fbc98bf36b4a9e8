//! Shared receive contexts: fi_srx_context, fi_endpoint(3).

use std::any::Any;
use std::fmt;

use crate::{Context, Msg, Result, Tagged};

/// Receives that several endpoints of a domain share. A message to any of these endpoints may match
/// a receive.
///
/// [`crate::Domain::srx`] opens a shared receive context, and [`crate::Bindings::srx`] binds endpoints
/// to the context. [`Msg::recvmsg`] and [`Tagged::trecvmsg`] post receives, for one message each
/// and from any peer. The methods for sends fail with [`crate::Errno::NoSys`]. A receive completes
/// in the receive queue of the endpoint that has received the message. Dropping the last handle
/// ends the pending receives without completions.
pub trait SharedReceives: Any + fmt::Debug + Send + Sync + Msg + Tagged {
    /// Tries to cancel a receive (fi_cancel(3)). A cancelled receive completes with
    /// [`crate::Errno::Canceled`] at the open endpoint that was bound first.
    ///
    /// # Errors
    /// [`crate::Errno::NoEnt`] when no receive has this context, or the receive has matched a message;
    /// [`crate::Errno::NoCq`] while no endpoint is bound.
    fn cancel(&self, context: Context) -> Result;
}
