//! Hooks around shared receives.
//!
//! A receive is posted to the shared context and completes at the endpoint that takes it. A
//! completion at any bound endpoint therefore looks for the receive's record.

#![expect(unsafe_code, reason = "receives around receives")]

use std::sync::Arc;

use selvedge::info::RxAttr;
use selvedge::{Context, Error, Info, Op, OpFlags, Result, SharedReceives};
use selvedge_kit::layer::{Layered, ObjectLayer, SrxLayer};

use super::point::{HookLayers, HookPoint};
use crate::recorder::{self, Post, RecordedBindings, Recorder, SharedRecorder};

/// The layer around one shared receive context.
pub(crate) struct HookedShared {
    /// `None` if no hook needs a recorder. Dropped before the hooks, which are in `point`.
    shared_recorder: Option<Arc<SharedRecorder>>,
    point: HookPoint,
}

impl HookedShared {
    /// Opens a layer around shared receives. A trace names them by their number.
    ///
    /// # Errors
    /// As [`Recorder::open`].
    pub(crate) fn open(point: HookPoint, info: &Info, attr: &RxAttr) -> Result<Self, Error> {
        let name = format!("srx {}", point.number());
        let recorder = Recorder::open(
            point.recorder_config(),
            info,
            RecordedBindings::shared(attr),
            &name,
        )?;
        let shared_recorder = recorder.map(|recorder| Arc::new(SharedRecorder(recorder)));
        Ok(Self {
            shared_recorder,
            point,
        })
    }

    /// Returns the recorder of `srx`; `None` without hooks or recorder.
    pub(crate) fn shared_recorder(srx: &dyn SharedReceives) -> Option<Arc<SharedRecorder>> {
        let layered = Layered::<_, Self>::downcast(srx)?;
        layered.layer().shared_recorder.clone()
    }

    fn recorder(&self) -> Option<&Recorder> {
        self.shared_recorder
            .as_ref()
            .map(|shared_recorder| &shared_recorder.0)
    }
}

impl ObjectLayer for HookedShared {
    type Layers = HookLayers;

    fn close(&self) {
        self.point.close();
    }
}

impl SrxLayer for HookedShared {
    fn cancel(&self, below: &dyn SharedReceives, context: Context) -> Result {
        let post = Post::cancel(context);
        recorder::pass(&post, &self.point, self.recorder(), || {
            below.cancel(context)
        })
    }

    unsafe fn post(&self, below: &dyn SharedReceives, op: &Op<'_>, flags: OpFlags) -> Result {
        let post = Post::from_op(op, flags);
        // SAFETY: passed on from the caller.
        let run = || unsafe { op.post_shared(below, flags) };
        recorder::pass(&post, &self.point, self.recorder(), run)
    }
}
