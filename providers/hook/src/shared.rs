//! Shared receives with hooks.
//!
//! A receive is posted here and completes where the endpoint that takes it has its receives, so
//! what is kept of it is found from the queues of all endpoints that are bound.

#![expect(unsafe_code, reason = "receives around receives")]

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use selvedge::info::RxAttr;
use selvedge::{Context, Error, Info, Msg, OpFlags, Result, SharedReceives, Tagged, msg, tagged};

use crate::call::Args;
use crate::endpoint::{of_cancel, of_recvmsg, of_trecvmsg};
use crate::provider::{At, unwrapped};
use crate::watch::{Bound, Kept, Post, Watch};

pub(crate) struct HookedShared {
    inner: Arc<dyn SharedReceives>,
    /// Before the hooks go.
    kept: Option<Arc<Kept>>,
    at: At,
}

impl HookedShared {
    /// Those around `inner`, called by the number that they have in a trace.
    ///
    /// # Errors
    /// As [`Watch::open`].
    pub(crate) fn open(
        inner: Arc<dyn SharedReceives>,
        at: At,
        info: &Info,
        attr: &RxAttr,
    ) -> Result<Self, Error> {
        let name = format!("srx {}", at.number());
        let watch = Watch::open(at.wanted(), info, Bound::shared(attr), &name)?;
        let kept = watch.map(|watch| Arc::new(Kept(watch)));
        Ok(Self { inner, kept, at })
    }

    pub(crate) fn inner(srx: Arc<dyn SharedReceives>) -> Arc<dyn SharedReceives> {
        unwrapped(
            srx,
            |srx| srx as &dyn Any,
            |own: &Self| Arc::clone(&own.inner),
        )
    }

    /// What is kept of those with hooks.
    pub(crate) fn kept(srx: &Arc<dyn SharedReceives>) -> Option<Arc<Kept>> {
        let own = (&**srx as &dyn Any).downcast_ref::<Self>()?;
        own.kept.clone()
    }

    fn post(
        &self,
        post: &Post<'_>,
        args: &dyn Fn(&mut Args),
        run: impl FnOnce() -> Result,
    ) -> Result {
        let call = || self.at.done(post.name, args, run);
        match &self.kept {
            None => call(),
            Some(kept) => kept.0.around(post, call),
        }
    }
}

impl Msg for HookedShared {
    unsafe fn recvmsg(&self, msg: &msg::RecvMsg<'_>, flags: OpFlags) -> Result {
        let (post, args) = of_recvmsg(msg, flags);
        // SAFETY: passed on from the caller.
        self.post(&post, &args, || unsafe { self.inner.recvmsg(msg, flags) })
    }
}

impl Tagged for HookedShared {
    unsafe fn trecvmsg(&self, msg: &tagged::RecvMsg<'_>, flags: OpFlags) -> Result {
        let (post, args) = of_trecvmsg(msg, flags);
        // SAFETY: passed on from the caller.
        self.post(&post, &args, || unsafe { self.inner.trecvmsg(msg, flags) })
    }
}

impl SharedReceives for HookedShared {
    fn cancel(&self, context: Context) -> Result {
        let (post, args) = of_cancel(context);
        self.post(&post, &args, || self.inner.cancel(context))
    }
}

impl Drop for HookedShared {
    fn drop(&mut self) {
        self.at.close("srx_close");
    }
}

impl fmt::Debug for HookedShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
