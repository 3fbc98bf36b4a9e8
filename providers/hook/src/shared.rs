//! Hooks around shared receives.
//!
//! A receive is posted here and completes where the endpoint that takes it has its receives, so
//! what is kept of it is found from the queues of all endpoints that are bound.

#![expect(unsafe_code, reason = "receives around receives")]

use std::sync::Arc;

use selvedge::info::RxAttr;
use selvedge::{Context, Error, Info, Op, OpFlags, Result, SharedReceives};
use selvedge_kit::layer::{Layered, ObjectLayer, SrxLayer};

use crate::post::Post;
use crate::provider::{At, HookLayers};
use crate::watch::{Bound, Kept, Watch};

pub(crate) struct HookedShared {
    /// Before the hooks go.
    kept: Option<Arc<Kept>>,
    at: At,
}

impl HookedShared {
    /// Those that are called by the number that they have in a trace.
    ///
    /// # Errors
    /// As [`Watch::open`].
    pub(crate) fn open(at: At, info: &Info, attr: &RxAttr) -> Result<Self, Error> {
        let name = format!("srx {}", at.number());
        let watch = Watch::open(at.wanted(), info, Bound::shared(attr), &name)?;
        let kept = watch.map(|watch| Arc::new(Kept(watch)));
        Ok(Self { kept, at })
    }

    /// What is kept of those with hooks.
    pub(crate) fn kept(srx: &dyn SharedReceives) -> Option<Arc<Kept>> {
        let own = Layered::<_, Self>::downcast(srx)?;
        own.layer().kept.clone()
    }

    fn watch(&self) -> Option<&Arc<Watch>> {
        self.kept.as_ref().map(|kept| &kept.0)
    }
}

impl ObjectLayer for HookedShared {
    type Layers = HookLayers;

    fn close(&self) {
        self.at.close();
    }
}

impl SrxLayer for HookedShared {
    fn cancel(&self, below: &dyn SharedReceives, context: Context) -> Result {
        let post = Post::cancel(context);
        post.pass(&self.at, self.watch(), || below.cancel(context))
    }

    unsafe fn post(&self, below: &dyn SharedReceives, op: &Op<'_>, flags: OpFlags) -> Result {
        let post = Post::of(op, flags);
        // SAFETY: passed on from the caller.
        let run = || unsafe { op.post_shared(below, flags) };
        post.pass(&self.at, self.watch(), run)
    }
}
