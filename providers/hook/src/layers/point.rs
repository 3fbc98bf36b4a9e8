//! `HookPoint`: the place of an object's calls in the hooks.

use std::sync::Arc;

use selvedge::{Error, Result};
use selvedge_kit::layer::{Layered, ObjectLayer};

use crate::hooks::{Args, Failure, Hooks};
use crate::recorder::RecorderConfig;

/// The layers around the provider's objects. Each object names this type, which names the layer of
/// each kind of object.
pub(crate) struct HookLayers;

/// The hook point of an object: its hooks, and its number. A hook point is also the layer around
/// objects without a recorder.
#[derive(Clone, Debug)]
pub(crate) struct HookPoint {
    hooks: Arc<Hooks>,
    number: u64,
    /// The name of the call that closes the object; empty if hooks do not see it.
    close: &'static str,
}

impl Hooks {
    /// The hook point of a new object.
    pub(super) fn new_point(self: &Arc<Self>, close: &'static str) -> HookPoint {
        HookPoint {
            hooks: Arc::clone(self),
            number: self.number(),
            close,
        }
    }
}

impl ObjectLayer for HookPoint {
    type Layers = HookLayers;

    fn close(&self) {
        if !self.close.is_empty() {
            self.hooks.close(self.close, self.number);
        }
    }
}

impl HookPoint {
    /// The hook point of an object that is opened from this one.
    pub(crate) fn new_object(&self, close: &'static str) -> Self {
        self.hooks.new_point(close)
    }

    /// Opens an object and puts a layer without a recorder around it.
    pub(super) fn open_layered<T: ?Sized>(
        &self,
        (name, close): (&'static str, &'static str),
        args: &dyn Fn(&mut Args),
        open: impl FnOnce() -> Result<Arc<T>, Error>,
    ) -> Result<Arc<Layered<T, Self>>, Error> {
        let point = self.new_object(close);
        let below = point.open(name, args, open)?;
        Ok(Layered::new(below, point))
    }

    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// The recorders that the hooks request for endpoints.
    pub(crate) fn recorder_config(&self) -> &RecorderConfig {
        &self.hooks.recorder_config
    }

    /// Makes an opening call. A call that a hook drops fails, because there is no object to return.
    pub(crate) fn open<T>(
        &self,
        name: &'static str,
        args: &dyn Fn(&mut Args),
        run: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let dropped = || {
            let message = format!("a hook (FI_HOOK_FAULT) dropped {name}");
            Err(Error::new(selvedge::Errno::Io, message))
        };
        self.hooks
            .call((name, self.number), args, |_| None, dropped, run)
    }

    /// Makes a call without a return value.
    pub(crate) fn call_unit(
        &self,
        name: &'static str,
        args: &dyn Fn(&mut Args),
        run: impl FnOnce() -> Result,
    ) -> Result {
        self.hooks
            .call((name, self.number), args, |()| None, || Ok(()), run)
    }

    /// Makes a call with a return value. The value is `dropped` if a hook drops the call.
    pub(crate) fn call_returning<R, E: Failure>(
        &self,
        name: &'static str,
        args: &dyn Fn(&mut Args),
        returned: impl Fn(&R) -> Option<String>,
        dropped: Result<R, E>,
        run: impl FnOnce() -> Result<R, E>,
    ) -> Result<R, E> {
        self.hooks
            .call((name, self.number), args, returned, || dropped, run)
    }
}
