//! One call on its way through the hooks.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use selvedge::param::Params;
use selvedge::{Errno, Error, Result};

use crate::fault::Fault;
use crate::out::{Out, escape};
use crate::perf::Perf;
use crate::trace::Trace;
use crate::watch::Wanted;

/// The names of all calls, in order: those of methods, and of the ends of objects.
pub const CALLS: [&str; 77] = [
    "accept",
    "alloc",
    "atomicmsg",
    "av_close",
    "av_insert",
    "av_insertsvc",
    "av_insertsym",
    "av_lookup",
    "av_open",
    "av_remove",
    "av_set_user_id",
    "cancel",
    "cancel_work",
    "cntr_add",
    "cntr_adderr",
    "cntr_close",
    "cntr_open",
    "cntr_read",
    "cntr_readerr",
    "cntr_set",
    "cntr_seterr",
    "cntr_wait",
    "collective",
    "compare_atomicmsg",
    "connect",
    "context",
    "cq_close",
    "cq_open",
    "cq_read",
    "cq_readerr",
    "cq_readfrom",
    "cq_readready",
    "cq_signal",
    "cq_sread",
    "domain",
    "domain_close",
    "endpoint",
    "ep_close",
    "eq_close",
    "eq_open",
    "eq_peek",
    "eq_read",
    "eq_readerr",
    "eq_sread",
    "eq_write",
    "fabric",
    "fabric_close",
    "fetch_atomicmsg",
    "flush_work",
    "getname",
    "inject",
    "inject_atomic",
    "inject_write",
    "join",
    "join_collective",
    "listen",
    "mr_bind",
    "mr_close",
    "mr_reg",
    "passive_ep",
    "queue_work",
    "readmsg",
    "recvmsg",
    "reject",
    "scalable_ep",
    "scalable_ep_close",
    "sendmsg",
    "setname",
    "setopt",
    "shutdown",
    "srx_close",
    "srx_context",
    "tinject",
    "trecvmsg",
    "trywait",
    "tsendmsg",
    "writemsg",
];

/// What a call is, as hooks see it.
pub(crate) struct Call<'a> {
    /// The name of the method.
    pub(crate) name: &'static str,
    /// The number of the object.
    pub(crate) object: u64,
    /// Writes what was given.
    args: &'a dyn Fn(&mut Args),
    /// What the answer says beside success, once there is one.
    pub(crate) gave: Option<String>,
}

impl Call<'_> {
    /// What was given, as the members of a JSON object.
    pub(crate) fn args(&self) -> String {
        let mut args = Args(String::new());
        (self.args)(&mut args);
        args.0
    }
}

/// Members of a JSON object.
pub(crate) struct Args(String);

impl Args {
    pub(crate) fn num(&mut self, name: &str, value: u64) -> &mut Self {
        self.comma();
        // Writing to a string does not fail.
        let _ = write!(self.0, "\"{name}\":{value}");
        self
    }

    pub(crate) fn text(&mut self, name: &str, value: &dyn std::fmt::Display) -> &mut Self {
        self.comma();
        let value = escape(&value.to_string());
        // As above.
        let _ = write!(self.0, "\"{name}\":\"{value}\"");
        self
    }

    fn comma(&mut self) {
        if !self.0.is_empty() {
            self.0.push(',');
        }
    }
}

/// What is between an object and its caller.
#[derive(Debug)]
enum Hook {
    Trace(Trace),
    Perf(Perf),
    Fault(Fault),
    /// What it does is done for each endpoint.
    Flight,
}

/// The hooks of a fabric, the outermost first.
#[derive(Debug)]
pub(crate) struct Hooks {
    hooks: Vec<Hook>,
    next_object: AtomicU64,
    /// What some of them keep of endpoints.
    pub(crate) wanted: Wanted,
}

impl Hooks {
    /// What the environment asks for; none if it does not.
    ///
    /// # Errors
    /// [`Errno::Inval`] for a hook that there is not, and what cannot be read of the other
    /// variables.
    pub(crate) fn of(params: &Params) -> Result<Option<Arc<Self>>, Error> {
        let names = params.text("FI_HOOK")?;
        if names.trim().is_empty() {
            return Ok(None);
        }
        let out = Out::open(&params.text("FI_HOOK_FILE")?)?;
        let mut wanted = Wanted::default();
        let hook = |name: &str| match name.trim() {
            "trace" | "ofi_hook_trace" => Ok(Hook::Trace(Trace::new(out.clone()))),
            "perf" | "ofi_hook_perf" => {
                let times = wanted.times.get_or_insert_default();
                Ok(Hook::Perf(Perf::new(out.clone(), times)))
            }
            "flight" | "ofi_hook_flight" => {
                wanted.calls = true;
                Ok(Hook::Flight)
            }
            "fault" | "ofi_hook_fault" => Fault::parse(params).map(Hook::Fault),
            other => {
                let what =
                    format!("FI_HOOK={names}: {other:?} is none of trace, perf, flight, fault");
                Err(Error::new(Errno::Inval, what))
            }
        };
        let hooks = names.split(';').map(hook).collect::<Result<_, _>>()?;
        Ok(Some(Arc::new(Self {
            hooks,
            next_object: AtomicU64::new(1),
            wanted,
        })))
    }

    /// A number for a new object.
    pub(crate) fn number(&self) -> u64 {
        self.next_object.fetch_add(1, Ordering::Relaxed)
    }

    /// Has a call pass all hooks, and carries it out if they let it. A call that is dropped answers
    /// with `dropped`.
    pub(crate) fn call<R, E: Failure>(
        &self,
        (name, object): (&'static str, u64),
        args: &dyn Fn(&mut Args),
        gave: impl Fn(&R) -> Option<String>,
        dropped: impl FnOnce() -> Result<R, E>,
        run: impl FnOnce() -> Result<R, E>,
    ) -> Result<R, E> {
        debug_assert!(CALLS.binary_search(&name).is_ok(), "{name} is not listed");
        let mut answer = None;
        let mut run = Some(run);
        let mut call = Call {
            name,
            object,
            args,
            gave: None,
        };
        let passed = pass(&self.hooks, &mut call, &mut |call| {
            let Some(run) = run.take() else {
                return Ok(());
            };
            let given = run();
            call.gave = given.as_ref().ok().and_then(&gave);
            let said = given.as_ref().map(|_| ()).map_err(Failure::number);
            answer = Some(given);
            said
        });
        match (passed, answer) {
            (Ok(()), Some(answer)) => answer,
            (Ok(()), None) => dropped(),
            (Err(_), Some(Err(own))) => Err(own),
            (Err(errno), _) => Err(E::of(errno, name)),
        }
    }

    /// Tells of the end of an object.
    pub(crate) fn close(&self, name: &'static str, object: u64) {
        // A fault here changes nothing: the object is gone.
        let _ = self.call::<(), Errno>((name, object), &|_| {}, |()| None, || Ok(()), || Ok(()));
    }
}

/// What calls fail with.
pub(crate) trait Failure {
    /// The failure of a call that a hook has refused.
    fn of(errno: Errno, call: &str) -> Self;
    fn number(&self) -> Errno;
}

impl Failure for Errno {
    fn of(errno: Errno, _: &str) -> Self {
        errno
    }

    fn number(&self) -> Errno {
        *self
    }
}

impl Failure for Error {
    fn of(errno: Errno, call: &str) -> Self {
        Self::new(errno, format!("{call} is failed by a hook"))
    }

    fn number(&self) -> Errno {
        self.errno()
    }
}

/// Something that a call is handed on to.
pub(crate) type Next<'a> = &'a mut dyn FnMut(&mut Call<'_>) -> Result;

fn pass(hooks: &[Hook], call: &mut Call<'_>, run: Next<'_>) -> Result {
    let Some((first, rest)) = hooks.split_first() else {
        return run(call);
    };
    let mut next = |call: &mut Call<'_>| pass(rest, call, run);
    match first {
        Hook::Trace(trace) => trace.around(call, &mut next),
        Hook::Perf(perf) => perf.around(call, &mut next),
        Hook::Fault(fault) => fault.around(call, &mut next),
        Hook::Flight => next(call),
    }
}
