//! Hooks around endpoints.

#![expect(unsafe_code, reason = "posts are passed on to the endpoint below")]

use std::sync::Arc;

use selvedge::{
    Address, Bindings, ConnectionManagement, Context, Endpoint, EpOption, Errno, Error, Info,
    LateBindings, Membership, Op, OpFlags, Result, av,
};
use selvedge_kit::layer::{EndpointLayer, Layered, Layers as _, ObjectLayer};
use selvedge_kit::telemetry::endpoint_name;

use super::point::{HookLayers, HookPoint};
use super::shared::HookedShared;
use crate::hooks::{Args, escape};
use crate::recorder::{self, Post, RecordedBindings, Recorder, SharedRecorder};

pub(crate) struct HookedEndpoint {
    /// The recorder of the shared receive context that the endpoint uses. It is dropped before the
    /// hooks.
    _shared: Option<Arc<SharedRecorder>>,
    point: HookPoint,
    recorder: Option<Recorder>,
}

impl HookedEndpoint {
    /// Opens the layer around the endpoint that `open` opens. `open` gets the bindings with the
    /// objects below their hooks.
    pub(crate) fn open(
        point: &HookPoint,
        info: &Info,
        bind: Bindings,
        open: impl FnOnce(Bindings) -> Result<Arc<dyn Endpoint>, Error>,
    ) -> Result<Arc<Layered<dyn Endpoint, Self>>, Error> {
        let (bound, has_events) = (RecordedBindings::new(info, &bind), bind.eq.is_some());
        let shared = bind.srx.as_deref().and_then(HookedShared::shared_recorder);
        if let Some(shared) = &shared {
            shared.complete_at(&bound);
        }
        let below = open(HookLayers::bindings(bind))?;
        let name = below
            .address()
            .map(|it| endpoint_name(&it))
            .unwrap_or_default();
        let recorder = Recorder::open(point.recorder_config(), info, bound, &name)?;
        let layer = Self {
            _shared: shared,
            point: point.clone(),
            recorder,
        };
        let endpoint = Layered::new(below, layer);
        // An endpoint without events has no other reference, not even a weak one: the safe API
        // needs the only reference.
        if has_events {
            endpoint.name_in_events();
        }
        Ok(endpoint)
    }

    fn pass(&self, post: &Post<'_>, run: impl FnOnce() -> Result) -> Result {
        recorder::pass(post, &self.point, self.recorder.as_ref(), run)
    }
}

impl ObjectLayer for HookedEndpoint {
    type Layers = HookLayers;

    fn close(&self) {
        if let Some(recorder) = &self.recorder {
            recorder.close();
        }
        self.point.close();
    }
}

// SAFETY: each operation is posted unchanged to the endpoint below, or not at all if a fault rule
// fails or drops it.
unsafe impl EndpointLayer for HookedEndpoint {
    unsafe fn post(&self, below: &dyn Endpoint, op: &Op<'_>, flags: OpFlags) -> Result {
        // SAFETY: passed on from the caller.
        self.pass(&Post::from_op(op, flags), || unsafe {
            op.post(below, flags)
        })
    }

    fn address(&self, below: &dyn Endpoint) -> Result<Address> {
        let returned = |addr: &Address| {
            let addr = escape(&addr.to_string());
            Some(format!("\"addr\":\"{addr}\""))
        };
        let run = || below.address();
        self.point
            .call_returning("getname", &|_| {}, returned, Err(Errno::AddrNotAvail), run)
    }

    fn bind_late(&self, below: &dyn Endpoint, late: &LateBindings) -> Result<(), Error> {
        below.bind_late(&HookLayers::late_bindings(late))?;
        if let Some(recorder) = &self.recorder {
            recorder.bind_late(late);
        }
        Ok(())
    }

    fn cancel(&self, below: &dyn Endpoint, context: Context) -> Result {
        self.pass(&Post::cancel(context), || below.cancel(context))
    }

    fn set(&self, below: &dyn Endpoint, option: EpOption) -> Result {
        let args = |args: &mut Args| {
            args.text("option", &format_args!("{option:?}"));
        };
        self.point.call_unit("setopt", &args, || below.set(option))
    }

    fn join(
        &self,
        below: &dyn Endpoint,
        group: &Address,
        context: Context,
    ) -> Result<Arc<dyn Membership>> {
        let args = |args: &mut Args| {
            args.text("group", group).num("context", context.0);
        };
        let run = || below.join(group, context);
        self.point
            .call_returning("join", &args, |_| None, Err(Errno::Io), run)
    }

    fn join_collective(
        &self,
        below: &dyn Endpoint,
        set: &av::Set,
        context: Context,
    ) -> Result<Arc<dyn Membership>> {
        let args = |args: &mut Args| {
            args.num("members", set.members().len() as u64)
                .num("context", context.0);
        };
        let run = || below.collective().ok_or(Errno::NoSys)?.join(set, context);
        self.point
            .call_returning("join_collective", &args, |_| None, Err(Errno::Io), run)
    }

    fn connect(&self, below: &dyn ConnectionManagement, addr: &Address, data: &[u8]) -> Result {
        let post = Post::connect(addr, data);
        self.pass(&post, || below.connect(addr, data))
    }

    fn accept(&self, below: &dyn ConnectionManagement, data: &[u8]) -> Result {
        self.pass(&Post::new("accept"), || below.accept(data))
    }

    fn shutdown(&self, below: &dyn ConnectionManagement) -> Result {
        self.pass(&Post::new("shutdown"), || below.shutdown())
    }
}
