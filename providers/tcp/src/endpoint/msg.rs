//! Posting of messages, tagged and untagged: the caller's promise about memory becomes a value, and
//! the rest is safe code.

use selvedge::{Context, Errno, FiAddr, Iov, Msg, OpFlags, Result, TagMatch, Tagged, msg, tagged};
use selvedge_kit::Report;
use selvedge_kit::copy::{RxBuf, TxBuf};
use selvedge_kit::srx::{Kind, Posted, Source};

use crate::connection::operation::{Body, Operation, Response};
use crate::endpoint::Endpoint;
use crate::wire::frame::{AckPolicy, Header};

/// The maximum number of segments of a local list.
pub(crate) const IOV_LIMIT: usize = 4;

/// Flags that an endpoint may add to its sends by default.
pub(crate) const TX_DEFAULTS: OpFlags = OpFlags::COMPLETION
    .union(OpFlags::INJECT)
    .union(OpFlags::INJECT_COMPLETE)
    .union(OpFlags::TRANSMIT_COMPLETE)
    .union(OpFlags::DELIVERY_COMPLETE)
    .union(OpFlags::MATCH_COMPLETE);
/// Flags that an endpoint may add to its receives by default.
pub(crate) const RX_DEFAULTS: OpFlags = OpFlags::COMPLETION.union(OpFlags::MULTI_RECV);
/// Completion levels that need the peer's acknowledgement.
pub(crate) const ACKED: OpFlags = OpFlags::TRANSMIT_COMPLETE.union(ACKED_BY_RECEIVE);
/// Completion levels that need the acknowledgement of a receive, where the peer supports it.
const ACKED_BY_RECEIVE: OpFlags = OpFlags::DELIVERY_COMPLETE.union(OpFlags::MATCH_COMPLETE);

const TX_FLAGS: OpFlags = TX_DEFAULTS
    .union(OpFlags::DEFAULT)
    .union(OpFlags::REMOTE_CQ_DATA)
    .union(OpFlags::FENCE)
    .union(OpFlags::DEFERRED)
    .union(OpFlags::MORE);

/// Flags of a send that a layer above posts.
const LAYER_FLAGS: OpFlags = OpFlags::PEER_TRANSFER.union(OpFlags::INJECT);

/// The parameters that untagged and tagged sends share.
struct Send {
    kind: Kind,
    tag: u64,
    data: u64,
    dest: FiAddr,
    context: Context,
}

#[expect(unsafe_code, reason = "the raw API: a post is a promise about memory")]
impl Msg for Endpoint {
    unsafe fn sendmsg(&self, msg: &msg::SendMsg<'_>, flags: OpFlags) -> Result {
        let send = Send {
            kind: Kind::Msg,
            tag: 0,
            data: msg.data,
            dest: msg.dest,
            context: msg.context,
        };
        // SAFETY: passed on from the caller.
        self.post_send(
            unsafe { TxBuf::with_limit(msg.iov, IOV_LIMIT)? },
            &send,
            flags,
        )
    }

    unsafe fn recvmsg(&self, msg: &msg::RecvMsg<'_>, flags: OpFlags) -> Result {
        let tag = TagMatch::exact(0);
        // SAFETY: passed on from the caller.
        let buf = unsafe { RxBuf::with_limit(msg.iov, IOV_LIMIT)? };
        self.post_recv(Kind::Msg, buf, tag, msg.src, msg.context, flags)
    }

    fn inject(&self, buf: &[u8], dest: FiAddr, data: Option<u64>) -> Result {
        let send = Send {
            kind: Kind::Msg,
            tag: 0,
            data: data.unwrap_or_default(),
            dest,
            context: Context::default(),
        };
        self.post_inject(buf, &send, data)
    }
}

#[expect(unsafe_code, reason = "the raw API: a post is a promise about memory")]
impl Tagged for Endpoint {
    unsafe fn tsendmsg(&self, msg: &tagged::SendMsg<'_>, flags: OpFlags) -> Result {
        self.check_tagged()?;
        let send = Send {
            kind: Kind::Tagged,
            tag: msg.tag,
            data: msg.data,
            dest: msg.dest,
            context: msg.context,
        };
        // SAFETY: passed on from the caller.
        self.post_send(
            unsafe { TxBuf::with_limit(msg.iov, IOV_LIMIT)? },
            &send,
            flags,
        )
    }

    unsafe fn trecvmsg(&self, msg: &tagged::RecvMsg<'_>, flags: OpFlags) -> Result {
        self.check_tagged()?;
        // SAFETY: passed on from the caller.
        let buf = unsafe { RxBuf::with_limit(msg.iov, IOV_LIMIT)? };
        self.post_recv(Kind::Tagged, buf, msg.tag, msg.src, msg.context, flags)
    }

    fn tinject(&self, buf: &[u8], dest: FiAddr, tag: u64, data: Option<u64>) -> Result {
        self.check_tagged()?;
        let send = Send {
            kind: Kind::Tagged,
            tag,
            data: data.unwrap_or_default(),
            dest,
            context: Context::default(),
        };
        self.post_inject(buf, &send, data)
    }
}

impl Endpoint {
    /// Refuses tagged operations at connected endpoints, as libfabric does.
    fn check_tagged(&self) -> Result {
        if self.is_msg_ep {
            Err(Errno::NoSys)
        } else {
            Ok(())
        }
    }

    /// Posts a send whose bytes are the caller's until it is complete.
    fn post_send(&self, buf: TxBuf, send: &Send, flags: OpFlags) -> Result {
        self.post_message(Body::Borrowed(buf), send, flags, true)
    }

    /// Posts a send whose bytes are copied before the call returns, and which does not complete.
    fn post_inject(&self, bytes: &[u8], send: &Send, data: Option<u64>) -> Result {
        let data = match data {
            Some(_) => OpFlags::REMOTE_CQ_DATA,
            None => OpFlags::empty(),
        };
        let flags = OpFlags::INJECT | OpFlags::DEFAULT | data;
        self.post_message(borrowed(bytes), send, flags, false)
    }

    #[inline]
    fn post_message(&self, body: Body, send: &Send, flags: OpFlags, completes: bool) -> Result {
        let mut state = self.shell.lock()?;
        let is_from_layer = flags.contains(OpFlags::PEER_TRANSFER) && state.ep.has_layer();
        let allowed = if is_from_layer { LAYER_FLAGS } else { TX_FLAGS };
        if !allowed.contains(flags) {
            return Err(Errno::BadFlags);
        }
        let flags = state.ep.tx_flags(flags);
        let (len, is_injected) = (body.len(), flags.contains(OpFlags::INJECT));
        if is_injected && len > self.inject_size || len > self.max_msg_size {
            return Err(Errno::MsgSize);
        }
        let peer = state.peer_at(send.dest)?;
        let has_data = flags.contains(OpFlags::REMOTE_CQ_DATA);
        let operation = Operation {
            header: Header::Message {
                kind: send.kind,
                tag: send.tag,
                data: has_data.then_some(send.data),
                ack: ack_policy(flags),
                len,
            },
            body,
            response: Response::None,
            report: Report {
                kind: send.kind.sent(),
                context: send.context,
                flags,
                reports_success: completes && !(is_from_layer && is_injected),
                len,
            },
        };
        state.post(peer, operation)
    }

    fn post_recv(
        &self,
        kind: Kind,
        buf: RxBuf,
        tag: TagMatch,
        src: FiAddr,
        context: Context,
        flags: OpFlags,
    ) -> Result {
        let mut state = self.shell.lock()?;
        let posted = Posted {
            buf,
            src: Source::ANY,
            tag,
            context,
            flags: state.ep.rx_flags(kind, flags),
            kind,
        };
        state.recv_from(src, posted)
    }
}

/// Borrows the bytes of an inject. The caller must set [`OpFlags::INJECT`] in the operation's
/// flags, so that the bytes are copied before the posting call returns.
#[expect(
    unsafe_code,
    reason = "a borrowed slice as a buffer, for this call only"
)]
pub(crate) fn borrowed(bytes: &[u8]) -> Body {
    // SAFETY: `bytes` is borrowed for the whole call. The payload of an operation with `INJECT` is
    // copied before the call ends, into the queue of its connection (`Body::is_copied`) or with the
    // whole operation (`Outgoing::wait`); or the operation is dropped with an error.
    Body::Borrowed(unsafe { TxBuf::one(Iov::new(bytes)) })
}

/// The acknowledgement policy of a message with these flags.
fn ack_policy(flags: OpFlags) -> AckPolicy {
    match flags {
        _ if flags.intersects(ACKED_BY_RECEIVE) => AckPolicy::OnReceive,
        _ if flags.intersects(ACKED) => AckPolicy::OnArrival,
        _ => AckPolicy::Never,
    }
}

/// Returns the report of an inject with these flags: counters count the inject, and a completion is
/// written only on failure.
pub(crate) fn inject_report(kind: selvedge::CompletionFlags, flags: OpFlags, len: usize) -> Report {
    Report {
        kind,
        context: Context::default(),
        flags,
        reports_success: false,
        len,
    }
}
