//! Posting: the caller's promise about memory becomes a value, and the rest is safe code.

#![expect(unsafe_code, reason = "the raw API: a post is a promise about memory")]

use selvedge::{
    Atomic, Context, Errno, FiAddr, Iov, Msg, OpFlags, Result, Rma, TagMatch, Tagged, msg,
};
use selvedge_kit::Report;
use selvedge_kit::copy::{RxBuf, TxBuf};
use selvedge_kit::srx::{Kind, Posted, Source};

use crate::endpoint::Endpoint;
use crate::socket::IOV_LIMIT;
use crate::state::{Body, Datagram};

/// Flags that an endpoint may add to its sends by default. A send is complete when the kernel has
/// taken the datagram; delivery is not confirmed.
pub(crate) const TX_DEFAULTS: OpFlags = OpFlags::COMPLETION
    .union(OpFlags::INJECT)
    .union(OpFlags::INJECT_COMPLETE)
    .union(OpFlags::TRANSMIT_COMPLETE)
    .union(OpFlags::MULTICAST);

const TX_FLAGS: OpFlags = TX_DEFAULTS.union(OpFlags::DEFAULT).union(OpFlags::MORE);
const RX_FLAGS: OpFlags = OpFlags::COMPLETION
    .union(OpFlags::DEFAULT)
    .union(OpFlags::MORE);

impl Msg for Endpoint {
    unsafe fn sendmsg(&self, msg: &msg::SendMsg<'_>, flags: OpFlags) -> Result {
        if !TX_FLAGS.contains(flags) {
            return Err(Errno::BadFlags);
        }
        if msg.iov.len() > IOV_LIMIT {
            return Err(Errno::Inval);
        }
        // SAFETY: passed on from the caller.
        let buf = unsafe { TxBuf::new(msg.iov) };
        self.post_send(buf, msg.dest, msg.context, flags, true)
    }

    unsafe fn recvmsg(&self, msg: &msg::RecvMsg<'_>, flags: OpFlags) -> Result {
        if !RX_FLAGS.contains(flags) {
            return Err(Errno::BadFlags);
        }
        if msg.iov.len() > IOV_LIMIT {
            return Err(Errno::Inval);
        }
        // SAFETY: passed on from the caller.
        let buf = unsafe { RxBuf::new(msg.iov) };
        let mut state = self.shell.lock()?;
        let posted = Posted {
            buf,
            src: Source::ANY,
            tag: TagMatch::exact(0),
            context: msg.context,
            flags: state.ep.rx_flags(Kind::Msg, flags),
            kind: Kind::Msg,
        };
        state.post_receive(posted);
        Ok(())
    }

    fn inject(&self, bytes: &[u8], dest: FiAddr, data: Option<u64>) -> Result {
        if data.is_some() {
            // A datagram has room for the message alone.
            return Err(Errno::OpNotSupp);
        }
        // SAFETY: `bytes` is borrowed for the whole call, and a datagram posted with `INJECT` is
        // sent or copied before the call ends (`State::queue`), or dropped with an error.
        let buf = unsafe { TxBuf::one(Iov::new(bytes)) };
        let flags = OpFlags::INJECT | OpFlags::DEFAULT;
        self.post_send(buf, dest, Context::default(), flags, false)
    }
}

impl Endpoint {
    fn post_send(
        &self,
        buf: TxBuf,
        dest: FiAddr,
        context: Context,
        flags: OpFlags,
        reports_success: bool,
    ) -> Result {
        let mut state = self.shell.lock()?;
        let flags = state.ep.tx_flags(flags);
        let len = buf.len();
        if len > self.max_msg_size || flags.contains(OpFlags::INJECT) && len > self.inject_size {
            return Err(Errno::MsgSize);
        }
        let dest_addr = state.destination(dest)?;
        state.post(Datagram {
            peer: dest,
            dest_addr,
            body: Body::Borrowed(buf),
            report: Report {
                kind: Kind::Msg.sent(),
                context,
                flags,
                reports_success,
                len,
            },
        })
    }
}

impl Tagged for Endpoint {}
impl Rma for Endpoint {}
impl Atomic for Endpoint {}
