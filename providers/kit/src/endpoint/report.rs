//! The report of an operation that has completed: completion entry, counter, or failure.

use crate::Ep;
use selvedge::{CompletionFlags, Context, Errno, FiAddr, OpFlags};

/// The fields of an operation's completion, kept until it completes.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// The flags of the completion that name the kind of the operation.
    pub kind: CompletionFlags,
    /// The caller's context, for the completion.
    pub context: Context,
    /// The resolved flags of the operation.
    pub flags: OpFlags,
    /// Whether success has a completion (fi_inject(3) has none). Errors always have one.
    pub reports_success: bool,
    /// The length of the message in bytes.
    pub len: usize,
}

impl Report {
    /// Reports success. The provider does not access the operation's memory any more.
    #[inline(always)]
    pub fn done(&self, ep: &Ep) {
        if self.flags.contains(OpFlags::DEFERRED) {
            ep.tx_deferred_done(self.context, self.kind, self.flags, self.len)
        } else {
            self.done_not_deferred(ep)
        }
    }

    /// As [`Self::done`], for an operation that is certainly not deferred work: the caller has
    /// checked its flags against a set without [`OpFlags::DEFERRED`].
    #[inline(always)]
    pub fn done_not_deferred(&self, ep: &Ep) {
        if self.reports_success {
            ep.tx_done(self.context, self.kind, self.flags, self.len);
        } else if !self.flags.contains(OpFlags::PEER_TRANSFER) {
            ep.tx_counted(self.kind, self.len);
        }
    }

    /// Reports that the operation to `peer` has failed. The provider does not access the
    /// operation's memory any more. `detail` names the peer and the cause.
    #[cold]
    pub fn failed(&self, ep: &Ep, errno: Errno, peer: FiAddr, detail: impl Into<String>) {
        if self.flags.contains(OpFlags::PEER_TRANSFER) {
            ep.layer_failed(self.context, errno, detail);
        } else if self.reports_success {
            ep.tx_failed(self.context, self.kind, errno, peer, detail);
        } else {
            ep.inject_failed(self.kind, errno, peer, detail);
        }
    }
}
