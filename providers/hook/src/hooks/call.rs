//! A call of an object, as the hooks see it.

use std::fmt::Write as _;

use selvedge::{Errno, Error, Result};

use super::output::escape;

/// The sorted names of all calls: of methods, and of the closing of objects.
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

/// A call as hooks see it.
pub(crate) struct Call<'a> {
    /// The name of the method.
    pub(crate) name: &'static str,
    /// The number of the object, which `trace` writes.
    pub(crate) object: u64,
    /// Writes the arguments.
    pub(super) args: &'a dyn Fn(&mut Args),
    /// The values that a successful call has returned, as members of a JSON object.
    pub(crate) returned: Option<String>,
}

impl Call<'_> {
    /// Returns the arguments as members of a JSON object.
    pub(crate) fn args(&self) -> String {
        let mut args = Args(String::new());
        (self.args)(&mut args);
        args.0
    }
}

/// The members of a JSON object, without its braces.
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

/// The error type of a call.
pub(crate) trait Failure {
    /// Returns the error of a call that a hook made fail with `errno`.
    fn from_errno(errno: Errno, call: &str) -> Self;
    fn number(&self) -> Errno;
}

impl Failure for Errno {
    fn from_errno(errno: Errno, _: &str) -> Self {
        errno
    }

    fn number(&self) -> Errno {
        *self
    }
}

impl Failure for Error {
    fn from_errno(errno: Errno, call: &str) -> Self {
        Self::new(errno, format!("a hook (FI_HOOK_FAULT) made {call} fail"))
    }

    fn number(&self) -> Errno {
        self.errno()
    }
}

/// The next hook, or the call itself.
pub(crate) type Next<'a> = &'a mut dyn FnMut(&mut Call<'_>) -> Result;
