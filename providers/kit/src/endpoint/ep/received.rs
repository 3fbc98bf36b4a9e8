//! The reporting of completed and failed receives.

use selvedge::cq::{Entry, ErrEntry};
use selvedge::{Address, CompletionFlags, Context, Errno, FiAddr, OpFlags};

use super::Ep;
use crate::copy::Part;
use crate::cq::Sink;
use crate::srx::{Envelope, Posted};
use crate::telemetry::{EventKind, OpCounter};

impl Ep {
    /// Reports a receive: `len` bytes of the message are in its buffer. The buffer then belongs to
    /// the caller again. A longer message is reported as truncated.
    #[inline(always)]
    pub fn rx_done(
        &self,
        posted: Posted,
        env: &Envelope,
        len: usize,
        src: FiAddr,
        sink: &mut Sink<'_>,
    ) {
        if len < env.len {
            return self.rx_trunc(posted, env, len, src);
        }
        if posted.flags.contains(OpFlags::DEFERRED) {
            return self.rx_deferred_done(posted, env, len, src);
        }
        let (entry, flags) = received_entry(posted, env, len);
        self.rx_report(entry, flags, src, sink);
    }

    /// Reports a lent message by its number. The buffer of the receive was not used, and the
    /// receive is reported under selective completion, too.
    pub fn rx_lent(
        &self,
        posted: Posted,
        env: &Envelope,
        number: usize,
        src: FiAddr,
        sink: &mut Sink<'_>,
    ) {
        let (mut entry, flags) = received_entry(posted, env, env.len);
        entry.flags |= CompletionFlags::LENT;
        entry.buf = number;
        let flags = flags | OpFlags::COMPLETION;
        self.rx_report(entry, flags, src, sink);
    }

    /// As [`Self::rx_done`], for deferred work.
    #[cold]
    fn rx_deferred_done(&self, posted: Posted, env: &Envelope, len: usize, src: FiAddr) {
        let (mut entry, flags) = received_entry(posted, env, len);
        let Some(op) = self.deferred_ops.complete(entry.context) else {
            return self.rx_report(entry, flags, src, &mut Sink::none());
        };
        self.stats.count(OpCounter::Received, entry.len);
        if op.succeeded() {
            entry.context = op.context;
            self.rx_cq.push(entry, src);
        }
    }

    /// Whether a message from this source has to be reported with [`Self::rx_unknown`]: its sender
    /// is not in the address vector, and the application has requested reports of such senders
    /// ([`selvedge::Caps::SOURCE_ERR`]).
    #[inline(always)]
    pub fn is_unknown(&self, src: FiAddr) -> bool {
        src == FiAddr::UNSPEC && self.source_err
    }

    /// As [`Self::rx_done`], for a message whose sender is not in the address vector: reports an
    /// error that carries the sender's address, in the form that address vectors take.
    #[cold]
    pub fn rx_unknown(&self, posted: Posted, env: &Envelope, len: usize, address: &Address) {
        if posted.flags.contains(OpFlags::PEER_TRANSFER) {
            return if len < env.len {
                self.rx_trunc(posted, env, len, FiAddr::UNSPEC)
            } else {
                self.report_to_layer(posted.context, Ok(len))
            };
        }
        let mut error = if len < env.len {
            truncation_error(posted, env, len)
        } else {
            let (entry, _) = received_entry(posted, env, len);
            let detail = format!("the sender {address} is not in the address vector");
            ErrEntry::new(entry, Errno::AddrNotAvail, detail)
        };
        error.err_data = address.to_bytes();
        error.err_data.truncate(self.max_err_data);
        self.rx_error(error, FiAddr::UNSPEC);
    }

    /// Reports a complete message whose receive, posted with the resolved flags `op`, is already
    /// dropped.
    #[inline(always)]
    pub fn rx_report(&self, entry: Entry, op: OpFlags, src: FiAddr, sink: &mut Sink<'_>) {
        if !self.rx_all && !op.contains(OpFlags::COMPLETION) {
            return self.count_unreported(entry.context, entry.len, op);
        }
        self.rx_count(entry.len);
        sink.push(&self.rx_cq, entry, src);
    }

    /// Counts a receive that requested no completion, or reports it to the layer.
    #[inline(never)]
    fn count_unreported(&self, context: Context, len: usize, op: OpFlags) {
        if op.contains(OpFlags::PEER_TRANSFER) {
            self.report_to_layer(context, Ok(len))
        } else {
            self.rx_count(len)
        }
    }

    #[inline(always)]
    fn rx_count(&self, len: usize) {
        self.stats.count(OpCounter::Received, len);
        if let Some(cntr) = &self.cntrs.recv {
            cntr.count(len);
        }
    }

    /// Reports a receive that took the first `len` bytes of a longer message.
    #[cold]
    pub fn rx_trunc(&self, posted: Posted, env: &Envelope, len: usize, src: FiAddr) {
        if posted.flags.contains(OpFlags::PEER_TRANSFER) {
            let detail = format!(
                "a message of {} bytes, where {len} bytes were expected",
                env.len
            );
            return self.layer_failed(posted.context, Errno::Trunc, detail);
        }
        self.rx_error(truncation_error(posted, env, len), src);
    }

    /// Reports that a receive has failed, before or during a message. `detail` names the peer and
    /// the cause.
    #[cold]
    pub fn rx_failed(&self, posted: Posted, errno: Errno, src: FiAddr, detail: impl Into<String>) {
        if posted.flags.contains(OpFlags::PEER_TRANSFER) {
            return self.layer_failed(posted.context, errno, detail);
        }
        let entry = Entry {
            context: posted.context,
            flags: posted.kind.received() | release_flag(posted.buf.finish()),
            tag: posted.tag.tag,
            ..Entry::default()
        };
        self.rx_error(ErrEntry::new(entry, errno, detail), src);
    }

    /// Reports that a receive was cancelled.
    #[cold]
    pub fn rx_cancelled(&self, posted: Posted) {
        let detail = "the receive was cancelled";
        self.rx_failed(posted, Errno::Canceled, FiAddr::UNSPEC, detail);
    }

    /// Reports the message that a peek, claim or discard has found. A peek is always reported and
    /// never counted.
    #[cold]
    pub fn rx_peeked(&self, posted: &Posted, env: &Envelope, extra: CompletionFlags, src: FiAddr) {
        if posted.flags.contains(OpFlags::PEER_TRANSFER) {
            return self.report_to_layer(posted.context, Ok(env.len));
        }
        let entry = Entry {
            context: posted.context,
            flags: posted.kind.received() | data_flag(env) | extra,
            len: env.len,
            buf: 0,
            data: env.data,
            tag: env.tag,
        };
        self.rx_cq.push(entry, src);
    }

    /// Reports that a peek has found no message.
    #[cold]
    pub fn rx_no_message(&self, posted: &Posted) {
        let entry = Entry {
            context: posted.context,
            flags: posted.kind.received(),
            tag: posted.tag.tag,
            ..Entry::default()
        };
        let detail = "no unexpected message matches";
        if posted.flags.contains(OpFlags::PEER_TRANSFER) {
            return self.layer_failed(posted.context, Errno::NoMsg, detail);
        }
        self.rx_cq
            .push_err(ErrEntry::new(entry, Errno::NoMsg, detail));
    }

    fn rx_error(&self, mut error: ErrEntry, src: FiAddr) {
        let (context, kind) = (error.entry.context, CompletionFlags::RECV);
        let Some(context) = self.failed_context(context, kind) else {
            return;
        };
        (error.entry.context, error.src) = (context, src);
        self.stats.count(OpCounter::ReceiveErrors, 0);
        let (detail, errno) = (&error.detail, error.errno.as_raw());
        self.stats
            .record_event(EventKind::ReceiveFailed, detail, errno as u64);
        self.rx_cq.push_err(error);
    }
}

/// The entry of a received message, and the flags that decide whether it is reported. Consumes the
/// receive, so that its buffer is not accessed once the entry can be read.
#[inline(always)]
fn received_entry(posted: Posted, env: &Envelope, len: usize) -> (Entry, OpFlags) {
    let Posted {
        buf,
        context,
        kind,
        flags,
        ..
    } = posted;
    let entry = Entry {
        context,
        flags: kind.received() | data_flag(env),
        len,
        buf: 0,
        data: env.data,
        tag: env.tag,
    };
    match buf.finish() {
        None => (entry, flags),
        Some(part) => received_in_multi(entry, flags, part),
    }
}

#[inline(always)]
fn data_flag(env: &Envelope) -> CompletionFlags {
    if env.has_data {
        CompletionFlags::REMOTE_CQ_DATA
    } else {
        CompletionFlags::empty()
    }
}

/// As [`received_entry`], for a message in a multi-receive buffer.
#[cold]
fn received_in_multi(mut entry: Entry, mut flags: OpFlags, part: Part) -> (Entry, OpFlags) {
    entry.buf = part.start;
    entry.flags |= release_flag(Some(part));
    if part.is_last {
        flags |= OpFlags::COMPLETION;
    }
    (entry, flags)
}

/// The flag of the last entry of a multi-receive buffer.
fn release_flag(part: Option<Part>) -> CompletionFlags {
    match part {
        Some(Part { is_last: true, .. }) => CompletionFlags::MULTI_RECV,
        _ => CompletionFlags::empty(),
    }
}

fn truncation_error(posted: Posted, env: &Envelope, len: usize) -> ErrEntry {
    let olen = env.len - len;
    let detail = format!(
        "message of {} bytes, receive of {len}: {olen} lost",
        env.len
    );
    let (entry, _) = received_entry(posted, env, len);
    let mut error = ErrEntry::new(entry, Errno::Trunc, detail);
    error.olen = olen;
    error
}
