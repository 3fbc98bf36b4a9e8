//! `Hooks`: the hooks of a fabric, through which its calls pass.

mod call;
mod fault;
mod output;
mod perf;
mod trace;

pub use call::CALLS;
pub(crate) use call::{Args, Failure};
pub(crate) use output::escape;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use selvedge::param::Params;
use selvedge::{Errno, Error, Result};

use self::call::{Call, Next};
use self::fault::Fault;
use self::output::Output;
use self::perf::Perf;
use self::trace::Trace;
use crate::recorder::RecorderConfig;

/// A hook between an object and its caller.
#[derive(Debug)]
enum Hook {
    Trace(Trace),
    Perf(Perf),
    Fault(Fault),
    /// Passes calls unchanged: a recorder of each endpoint records them.
    Flight,
}

/// The hooks of a fabric, the outermost first.
#[derive(Debug)]
pub(crate) struct Hooks {
    hooks: Vec<Hook>,
    next_object: AtomicU64,
    /// The records that the hooks keep of each endpoint.
    pub(crate) recorder_config: RecorderConfig,
}

impl Hooks {
    /// Returns the hooks that `FI_HOOK` lists, or `None` if it is empty.
    ///
    /// # Errors
    /// [`Errno::Inval`] for an unknown hook, or for an invalid value of another variable; the
    /// system's error if the output file cannot be opened.
    pub(crate) fn from_params(params: &Params) -> Result<Option<Arc<Self>>, Error> {
        let names = params.text("FI_HOOK")?;
        if names.trim().is_empty() {
            return Ok(None);
        }
        let output = Output::open(&params.text("FI_HOOK_FILE")?)?;
        let mut recorder_config = RecorderConfig::default();
        let hook = |name: &str| match name.trim() {
            "trace" | "ofi_hook_trace" => Ok(Hook::Trace(Trace::new(output.clone()))),
            "perf" | "ofi_hook_perf" => {
                let times = recorder_config.times.get_or_insert_default();
                Ok(Hook::Perf(Perf::new(output.clone(), times)))
            }
            "flight" | "ofi_hook_flight" => {
                recorder_config.calls = true;
                Ok(Hook::Flight)
            }
            "fault" | "ofi_hook_fault" => Fault::parse(params).map(Hook::Fault),
            other => {
                let message = format!(
                    "FI_HOOK={names}: unknown hook {other:?}: expected trace, perf, flight or fault"
                );
                Err(Error::new(Errno::Inval, message))
            }
        };
        let hooks = names.split(';').map(hook).collect::<Result<_, _>>()?;
        Ok(Some(Arc::new(Self {
            hooks,
            next_object: AtomicU64::new(1),
            recorder_config,
        })))
    }

    /// Returns the number of a new object.
    pub(crate) fn number(&self) -> u64 {
        self.next_object.fetch_add(1, Ordering::Relaxed)
    }

    /// Passes a call through all hooks, which then call `run`. If a hook drops the call, the result
    /// is that of `dropped`. If a hook makes the call fail, the result is the hook's error.
    pub(crate) fn call<R, E: Failure>(
        &self,
        (name, object): (&'static str, u64),
        args: &dyn Fn(&mut Args),
        returned: impl Fn(&R) -> Option<String>,
        dropped: impl FnOnce() -> Result<R, E>,
        run: impl FnOnce() -> Result<R, E>,
    ) -> Result<R, E> {
        debug_assert!(CALLS.binary_search(&name).is_ok(), "{name} is not listed");
        let mut result = None;
        let mut run = Some(run);
        let mut call = Call {
            name,
            object,
            args,
            returned: None,
        };
        let passed = pass(&self.hooks, &mut call, &mut |call| {
            let Some(run) = run.take() else {
                return Ok(());
            };
            let value = run();
            call.returned = value.as_ref().ok().and_then(&returned);
            let outcome = value.as_ref().map(|_| ()).map_err(Failure::number);
            result = Some(value);
            outcome
        });
        match (passed, result) {
            (Ok(()), Some(result)) => result,
            (Ok(()), None) => dropped(),
            (Err(_), Some(Err(error))) => Err(error),
            (Err(errno), _) => Err(E::from_errno(errno, name)),
        }
    }

    /// Reports the close of an object to the hooks.
    pub(crate) fn close(&self, name: &'static str, object: u64) {
        // A fault has no effect here: the object is already closed.
        let _ = self.call::<(), Errno>((name, object), &|_| {}, |()| None, || Ok(()), || Ok(()));
    }
}

fn pass(hooks: &[Hook], call: &mut Call<'_>, run: Next<'_>) -> Result {
    let Some((first, rest)) = hooks.split_first() else {
        return run(call);
    };
    let mut next = |call: &mut Call<'_>| pass(rest, call, run);
    match first {
        Hook::Trace(trace) => trace.intercept(call, &mut next),
        Hook::Perf(perf) => perf.intercept(call, &mut next),
        Hook::Fault(fault) => fault.intercept(call, &mut next),
        Hook::Flight => next(call),
    }
}
