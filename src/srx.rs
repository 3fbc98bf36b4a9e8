//! Shared receive contexts: fi_srx_context, fi_endpoint(3).

use std::any::Any;
use std::fmt;

use crate::{Context, Msg, Result, Tagged};

/// Receives that several endpoints of a domain take from, whichever gets a message first.
///
/// Opened by [`crate::Domain::srx`], bound by [`crate::Bindings::srx`]. Receives are posted by
/// [`Msg::recvmsg`] and [`Tagged::trecvmsg`], of one message each and from any peer; nothing is sent.
/// A receive completes where its endpoint's receives do. Those that wait end with the last handle.
pub trait SharedReceives: Any + fmt::Debug + Send + Sync + Msg + Tagged {
    /// Tries to take back a receive (fi_cancel(3)). If that works, it completes with
    /// [`crate::Errno::Canceled`] at the endpoint that was bound first of those that are open.
    ///
    /// # Errors
    /// [`crate::Errno::NoEnt`] when there is no such receive, or a message has met it;
    /// [`crate::Errno::NoCq`] while no endpoint is bound.
    fn cancel(&self, context: Context) -> Result;
}
