//! Posting of one-sided operations: the caller's promise about memory becomes a value, and the rest
//! is safe code.
//!
//! The target's part is in `one_sided`.

use selvedge::rma::{ReadMsg, RmaIov, WriteMsg};
use selvedge::{CompletionFlags, Errno, FiAddr, OpFlags, Result, Rma};
use selvedge_kit::Report;
use selvedge_kit::copy::{RxBuf, TxBuf};
use selvedge_kit::segments::RmaSegments;

use crate::connection::operation::{Body, Operation, Response};
use crate::endpoint::Endpoint;
use crate::endpoint::msg::{ACKED, IOV_LIMIT, TX_DEFAULTS, borrowed, inject_report};
use crate::wire::frame::Header;

const WRITE: CompletionFlags = CompletionFlags::RMA.union(CompletionFlags::WRITE);
const READ: CompletionFlags = CompletionFlags::RMA.union(CompletionFlags::READ);

const READ_FLAGS: OpFlags = TX_DEFAULTS
    .union(OpFlags::DEFAULT)
    .union(OpFlags::FENCE)
    .union(OpFlags::MORE)
    .union(OpFlags::DEFERRED);
const WRITE_FLAGS: OpFlags = READ_FLAGS.union(OpFlags::REMOTE_CQ_DATA);

#[expect(unsafe_code, reason = "the raw API: a post is a promise about memory")]
impl Rma for Endpoint {
    unsafe fn readmsg(&self, msg: &ReadMsg<'_>, flags: OpFlags) -> Result {
        if !READ_FLAGS.contains(flags) {
            return Err(Errno::BadFlags);
        }
        // SAFETY: passed on from the caller.
        let buf = unsafe { RxBuf::with_limit(msg.iov, IOV_LIMIT)? };
        let (len, context) = (buf.len(), msg.context);
        self.post_access(
            msg.src,
            msg.rma_iov,
            len,
            |segments, flags| Operation {
                header: Header::ReadRequest { segments },
                body: Body::none(),
                response: Response::ReadData(buf),
                report: Report {
                    kind: READ,
                    context,
                    flags,
                    reports_success: true,
                    len,
                },
            },
            flags,
        )
    }

    unsafe fn writemsg(&self, msg: &WriteMsg<'_>, flags: OpFlags) -> Result {
        if !WRITE_FLAGS.contains(flags) {
            return Err(Errno::BadFlags);
        }
        // SAFETY: passed on from the caller.
        let buf = unsafe { TxBuf::with_limit(msg.iov, IOV_LIMIT)? };
        let (len, context, data) = (buf.len(), msg.context, msg.data);
        self.post_access(
            msg.dest,
            msg.rma_iov,
            len,
            |segments, flags| Operation {
                header: Header::Write {
                    segments,
                    data: flags.contains(OpFlags::REMOTE_CQ_DATA).then_some(data),
                    wants_ack: flags.intersects(ACKED),
                },
                body: Body::Borrowed(buf),
                response: Response::None,
                report: Report {
                    kind: WRITE,
                    context,
                    flags,
                    reports_success: true,
                    len,
                },
            },
            flags,
        )
    }

    fn inject_write(
        &self,
        bytes: &[u8],
        dest: FiAddr,
        addr: u64,
        key: u64,
        data: Option<u64>,
    ) -> Result {
        let len = bytes.len();
        let segment = RmaIov { addr, len, key };
        self.post_access(
            dest,
            &[segment],
            len,
            |segments, flags| Operation {
                header: Header::Write {
                    segments,
                    data,
                    wants_ack: flags.intersects(ACKED),
                },
                body: borrowed(bytes),
                response: Response::None,
                report: inject_report(WRITE, flags, len),
            },
            OpFlags::INJECT | OpFlags::DEFAULT,
        )
    }
}

impl Endpoint {
    /// Posts the operation that `make` builds from the remote segments and the resolved flags. The
    /// total length of the segments must be `len`, the length of the local buffer.
    fn post_access(
        &self,
        peer: FiAddr,
        rma_iov: &[RmaIov],
        len: usize,
        make: impl FnOnce(RmaSegments, OpFlags) -> Operation,
        flags: OpFlags,
    ) -> Result {
        let segments = RmaSegments::new(rma_iov)?;
        if segments.len() != len {
            return Err(Errno::Inval);
        }
        let mut state = self.shell.lock()?;
        let flags = state.ep.tx_flags(flags);
        if flags.contains(OpFlags::INJECT) && len > self.inject_size {
            return Err(Errno::MsgSize);
        }
        let peer = state.peer_at(peer)?;
        state.post(peer, make(segments, flags))
    }
}
