//! What every endpoint keeps: its queues, default flags and completion policy.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use selvedge::cq::{Entry, ErrEntry};
use selvedge::{
    Bindings, CompletionFlags, CompletionQueue, Context, Counter, Counters, Errno, Error, FiAddr,
    Info, OpFlags,
};

use crate::cq::{CqRing, Progress};
use crate::srx::{Envelope, Posted};

/// The resolved bindings of an endpoint, and how its operations report that they are done.
///
/// Under selective completion only operations with [`OpFlags::COMPLETION`] report success; errors
/// always do. Counters count both.
#[derive(Debug)]
pub struct Ep {
    /// Where sends and other own operations complete.
    pub tx_cq: Arc<CqRing>,
    /// Where receives complete; may be the same queue.
    pub rx_cq: Arc<CqRing>,
    /// Report every operation on `tx_cq`.
    tx_all: bool,
    /// Report every operation on `rx_cq`.
    rx_all: bool,
    tx_default: OpFlags,
    rx_default: OpFlags,
    cntrs: Counters,
}

impl Ep {
    /// Resolves what an endpoint was bound to.
    ///
    /// # Errors
    /// [`Errno::Inval`] for a completion queue of another provider.
    pub fn resolve(bind: &Bindings, info: &Info) -> Result<Self, Error> {
        Ok(Self {
            tx_cq: own_cq(&bind.tx_cq, "tx_cq")?,
            rx_cq: own_cq(&bind.rx_cq, "rx_cq")?,
            tx_all: !bind.tx_selective,
            rx_all: !bind.rx_selective,
            tx_default: info.tx_attr.op_flags,
            rx_default: info.rx_attr.op_flags,
            cntrs: bind.cntrs.clone(),
        })
    }

    /// Has the queues drive `progress`.
    pub fn attach(&self, progress: &Arc<dyn Progress>) {
        self.tx_cq.attach(Arc::clone(progress));
        self.rx_cq.attach(Arc::clone(progress));
    }

    /// Ends what [`Self::attach`] began; no call of `progress` by the queues is running afterwards.
    pub fn detach(&self, progress: &Arc<dyn Progress>) {
        self.tx_cq.detach(progress);
        self.rx_cq.detach(progress);
    }

    /// The flags of a send or another own operation, with the endpoint's defaults where
    /// [`OpFlags::DEFAULT`] asks for them.
    #[inline]
    pub const fn tx_flags(&self, flags: OpFlags) -> OpFlags {
        resolved(flags, self.tx_default)
    }

    /// The flags of a receive, likewise.
    #[inline]
    pub const fn rx_flags(&self, flags: OpFlags) -> OpFlags {
        resolved(flags, self.rx_default)
    }

    /// An own operation with the resolved flags `op` is done. `what` says which, for instance
    /// [`crate::srx::Kind::sent`].
    #[inline(always)]
    pub fn tx_done(&self, context: Context, what: CompletionFlags, op: OpFlags) {
        self.tx_counted(what);
        if self.tx_all || op.contains(OpFlags::COMPLETION) {
            let entry = Entry {
                context,
                flags: what,
                ..Entry::default()
            };
            self.tx_cq.push(entry, FiAddr::UNSPEC);
        }
    }

    /// An own operation of the kind that never completes (fi_inject(3)) is done: it only counts.
    #[inline]
    pub fn tx_counted(&self, what: CompletionFlags) {
        if let Some(cntr) = self.tx_cntr(what) {
            cntr.add(1);
        }
    }

    /// An own operation to `peer` has failed; `detail` says which peer and what happened.
    #[cold]
    pub fn tx_failed(
        &self,
        context: Context,
        what: CompletionFlags,
        errno: Errno,
        peer: FiAddr,
        detail: impl Into<String>,
    ) {
        if let Some(cntr) = self.tx_cntr(what) {
            cntr.add_err(1);
        }
        let entry = Entry {
            context,
            flags: what,
            ..Entry::default()
        };
        let mut error = ErrEntry::new(entry, errno, detail);
        error.src = peer;
        self.tx_cq.push_err(error);
    }

    /// A receive is done: `len` bytes of the message are in its buffer, which is the caller's again
    /// from here on. A message that was longer is reported as truncated.
    #[inline(always)]
    pub fn rx_done(&self, posted: Posted, env: &Envelope, len: usize, src: FiAddr) {
        if len < env.len {
            return self.rx_trunc(posted, env, len, src);
        }
        let reports = self.rx_all || posted.flags.contains(OpFlags::COMPLETION);
        let entry = received(posted, env, len);
        if let Some(cntr) = &self.cntrs.recv {
            cntr.add(1);
        }
        if reports {
            self.rx_cq.push(entry, src);
        }
    }

    /// A receive took the `len` bytes of a longer message that fitted.
    #[cold]
    pub fn rx_trunc(&self, posted: Posted, env: &Envelope, len: usize, src: FiAddr) {
        let olen = env.len - len;
        let detail = format!(
            "message of {} bytes, receive of {len}: {olen} lost",
            env.len
        );
        let mut error = ErrEntry::new(received(posted, env, len), Errno::Trunc, detail);
        error.olen = olen;
        self.rx_error(error, src);
    }

    /// A receive has failed before or in the middle of a message; `detail` says which peer and what
    /// happened.
    #[cold]
    pub fn rx_failed(&self, posted: Posted, errno: Errno, src: FiAddr, detail: impl Into<String>) {
        let entry = Entry {
            context: posted.context,
            flags: posted.kind.received(),
            tag: posted.tag.tag,
            ..Entry::default()
        };
        drop(posted);
        self.rx_error(ErrEntry::new(entry, errno, detail), src);
    }

    fn rx_error(&self, mut error: ErrEntry, src: FiAddr) {
        error.src = src;
        if let Some(cntr) = &self.cntrs.recv {
            cntr.add_err(1);
        }
        self.rx_cq.push_err(error);
    }

    #[inline]
    fn tx_cntr(&self, what: CompletionFlags) -> Option<&Arc<dyn Counter>> {
        let cntrs = &self.cntrs;
        if what.contains(CompletionFlags::SEND) {
            cntrs.send.as_ref()
        } else if what.contains(CompletionFlags::READ) {
            cntrs.read.as_ref()
        } else {
            cntrs.write.as_ref()
        }
    }
}

/// The entry of a message that was received; takes the receive, so that nothing touches its buffer
/// once the entry can be read.
#[inline(always)]
fn received(posted: Posted, env: &Envelope, len: usize) -> Entry {
    let Posted {
        buf, context, kind, ..
    } = posted;
    drop(buf);
    let data = if env.has_data {
        CompletionFlags::REMOTE_CQ_DATA
    } else {
        CompletionFlags::empty()
    };
    Entry {
        context,
        flags: kind.received() | data,
        len,
        buf: 0,
        data: env.data,
        tag: env.tag,
    }
}

#[inline]
const fn resolved(flags: OpFlags, default: OpFlags) -> OpFlags {
    if flags.contains(OpFlags::DEFAULT) {
        flags.difference(OpFlags::DEFAULT).union(default)
    } else {
        flags
    }
}

fn own_cq(cq: &Arc<dyn CompletionQueue>, name: &str) -> Result<Arc<CqRing>, Error> {
    let any: Arc<dyn Any + Send + Sync> = Arc::<dyn CompletionQueue>::clone(cq);
    any.downcast().map_err(|_| foreign(name, cq))
}

fn foreign(name: &str, cq: &dyn fmt::Debug) -> Error {
    let what = format!("endpoint: {name} {cq:?} was opened from another provider's domain");
    Error::new(Errno::Inval, what)
}
