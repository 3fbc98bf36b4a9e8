//! Reports: how an operation of ours is told of when it is over.

use crate::Ep;
use selvedge::{CompletionFlags, Context, Errno, FiAddr, OpFlags};

/// What stands in the completion of an operation, once there is one.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// Which operation it is.
    pub what: CompletionFlags,
    /// Comes back with it.
    pub context: Context,
    /// The resolved flags of the operation.
    pub flags: OpFlags,
    /// Whether success completes (fi_inject(3) does not). Errors always do.
    pub completes: bool,
    /// Bytes of the message.
    pub len: usize,
}

impl Report {
    /// The operation is done; nothing of ours touches its memory any more.
    #[inline(always)]
    pub fn done(&self, ep: &Ep) {
        match self.flags.contains(OpFlags::DEFERRED) {
            true => ep.tx_deferred_done(self.context, self.what, self.flags, self.len),
            false => self.done_plainly(ep),
        }
    }

    /// As [`Self::done`], for what is no deferred work for sure: its flags were held against a set
    /// without [`OpFlags::DEFERRED`].
    #[inline(always)]
    pub fn done_plainly(&self, ep: &Ep) {
        match self.completes {
            true => ep.tx_done(self.context, self.what, self.flags, self.len),
            false if self.flags.contains(OpFlags::PEER_TRANSFER) => {}
            false => ep.tx_counted(self.what, self.len),
        }
    }

    /// The operation to `peer` has failed, and nothing of ours touches its memory any more; `detail`
    /// says which peer and what happened.
    #[cold]
    pub fn failed(&self, ep: &Ep, errno: Errno, peer: FiAddr, detail: impl Into<String>) {
        match self.flags.contains(OpFlags::PEER_TRANSFER) {
            true => ep.layer_failed(self.context, errno, detail),
            false if !self.completes => ep.inject_failed(self.what, errno, peer, detail),
            false => ep.tx_failed(self.context, self.what, errno, peer, detail),
        }
    }
}
