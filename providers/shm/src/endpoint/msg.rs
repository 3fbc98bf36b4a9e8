//! Posting tagged and untagged messages. The entry points turn the caller's promise about memory
//! into a [`TxBuf`] or [`RxBuf`]; the code behind them is safe.

use selvedge::{
    Context, Errno, FiAddr, Iov, IovMut, Msg, OpFlags, Result, TagMatch, Tagged, msg, tagged,
};
use selvedge_kit::copy::{RxBuf, TxBuf};
use selvedge_kit::srx::{COMMON_FLAGS, Kind, Posted, Source};

use crate::endpoint::send::{SendParams, send as send_message, send_word};
use crate::endpoint::state::State;
use crate::endpoint::{Endpoint, lending, receive};
use crate::transfers::cmd::{Header, IOV_LIMIT};

/// Flags that an endpoint may add to its sends by default.
pub(crate) const TX_DEFAULTS: OpFlags = OpFlags::COMPLETION
    .union(OpFlags::INJECT)
    .union(OpFlags::INJECT_COMPLETE)
    .union(OpFlags::TRANSMIT_COMPLETE)
    .union(OpFlags::DELIVERY_COMPLETE)
    .union(OpFlags::MATCH_COMPLETE);
/// Flags that an endpoint may add to its receives by default.
pub(crate) const RX_DEFAULTS: OpFlags = OpFlags::COMPLETION.union(OpFlags::MULTI_RECV);

const TX_FLAGS: OpFlags = TX_DEFAULTS
    .union(OpFlags::DEFAULT)
    .union(OpFlags::REMOTE_CQ_DATA)
    .union(OpFlags::FENCE)
    .union(OpFlags::DEFERRED)
    .union(OpFlags::MORE);

/// Flags of a send that lends its bytes.
const LENDING_FLAGS: OpFlags = TX_FLAGS
    .difference(OpFlags::INJECT)
    .difference(OpFlags::DEFERRED)
    .union(OpFlags::LEND);

/// Flags of a send that the collective layer posts.
const LAYER_FLAGS: OpFlags = OpFlags::PEER_TRANSFER.union(OpFlags::INJECT);

#[expect(unsafe_code, reason = "the raw API: a post is a promise about memory")]
impl Msg for Endpoint {
    #[inline]
    unsafe fn sendmsg(&self, msg: &msg::SendMsg<'_>, flags: OpFlags) -> Result {
        let header = build_header(Kind::Msg, 0, msg.data, flags);
        // SAFETY: passed on from the caller.
        unsafe { self.post_send(msg.iov, header, msg.dest, msg.context, flags) }
    }

    #[inline]
    unsafe fn recvmsg(&self, msg: &msg::RecvMsg<'_>, flags: OpFlags) -> Result {
        let tag = TagMatch::exact(0);
        // SAFETY: passed on from the caller.
        unsafe { self.post_recv(Kind::Msg, msg.iov, tag, msg.src, msg.context, flags) }
    }

    #[inline]
    fn inject(&self, buf: &[u8], dest: FiAddr, data: Option<u64>) -> Result {
        self.post_inject(Kind::Msg, buf, dest, 0, data)
    }
}

#[expect(unsafe_code, reason = "the raw API: a post is a promise about memory")]
impl Tagged for Endpoint {
    #[inline]
    unsafe fn tsendmsg(&self, msg: &tagged::SendMsg<'_>, flags: OpFlags) -> Result {
        let header = build_header(Kind::Tagged, msg.tag, msg.data, flags);
        // SAFETY: passed on from the caller.
        unsafe { self.post_send(msg.iov, header, msg.dest, msg.context, flags) }
    }

    #[inline]
    unsafe fn trecvmsg(&self, msg: &tagged::RecvMsg<'_>, flags: OpFlags) -> Result {
        // SAFETY: passed on from the caller.
        unsafe { self.post_recv(Kind::Tagged, msg.iov, msg.tag, msg.src, msg.context, flags) }
    }

    #[inline]
    fn tinject(&self, buf: &[u8], dest: FiAddr, tag: u64, data: Option<u64>) -> Result {
        self.post_inject(Kind::Tagged, buf, dest, tag, data)
    }
}

impl Endpoint {
    /// Posts a send.
    ///
    /// # Safety
    /// As [`TxBuf::new`].
    #[expect(unsafe_code, reason = "the promise becomes a value here")]
    #[inline(always)]
    unsafe fn post_send(
        &self,
        iov: &[Iov],
        header: Header,
        dest: FiAddr,
        context: Context,
        flags: OpFlags,
    ) -> Result {
        if !TX_FLAGS.contains(flags) {
            // SAFETY: passed on from the caller.
            return unsafe { self.post_with_rare_flags(iov, header, dest, context, flags) };
        }
        let mut state = self.shell.lock()?;
        let flags = state.setup.ep.tx_flags(flags);
        // Each use constructs its own parameters, so that the fast path keeps them in registers.
        let params = || SendParams {
            header,
            dest,
            context,
            flags,
            reports_success: true,
        };
        if let &[segment] = iov
            && segment.len == 8
        {
            // SAFETY: passed on from the caller.
            let word = unsafe { TxBuf::one(segment) }.word();
            if send_word(&mut state, word, &params()) {
                return Ok(());
            }
        }
        // SAFETY: as above.
        send_message(
            &mut state,
            unsafe { TxBuf::with_limit(iov, IOV_LIMIT)? },
            &params(),
        )
    }

    /// Posts a send that lends its bytes, or a send of the collective layer.
    ///
    /// # Errors
    /// [`Errno::BadFlags`] when there is no layer, or for other flags than [`LENDING_FLAGS`] and
    /// [`LAYER_FLAGS`].
    ///
    /// # Safety
    /// As [`TxBuf::new`].
    #[expect(unsafe_code, reason = "the promise becomes a value here")]
    #[cold]
    #[inline(never)]
    unsafe fn post_with_rare_flags(
        &self,
        iov: &[Iov],
        header: Header,
        dest: FiAddr,
        context: Context,
        flags: OpFlags,
    ) -> Result {
        let mut state = self.shell.lock()?;
        if flags.contains(OpFlags::LEND) {
            // SAFETY: passed on from the caller.
            let buf = unsafe { TxBuf::with_limit(iov, IOV_LIMIT)? };
            return post_lent(&mut state, buf, header, dest, context, flags);
        }
        let is_of_layer = flags.contains(OpFlags::PEER_TRANSFER) && state.setup.ep.has_layer();
        if !is_of_layer || !LAYER_FLAGS.contains(flags) {
            return Err(Errno::BadFlags);
        }
        let params = SendParams {
            header,
            dest,
            context,
            flags,
            reports_success: !flags.contains(OpFlags::INJECT),
        };
        // SAFETY: passed on from the caller.
        let buf = unsafe { TxBuf::with_limit(iov, IOV_LIMIT)? };
        if buf.len() == 8 && send_word(&mut state, buf.word(), &params) {
            return Ok(());
        }
        send_message(&mut state, buf, &params)
    }

    #[inline]
    fn post_inject(
        &self,
        kind: Kind,
        bytes: &[u8],
        dest: FiAddr,
        tag: u64,
        data: Option<u64>,
    ) -> Result {
        #[expect(
            unsafe_code,
            reason = "a borrowed slice as a buffer, for this call only"
        )]
        // SAFETY: `bytes` is borrowed for the whole call, and an injected message is copied before
        // the call returns: `transfers::send::send` keeps no buffer of a message with `INJECT`.
        let buf = unsafe { TxBuf::one(Iov::new(bytes)) };
        let mut state = self.shell.lock()?;
        let flags = state.setup.ep.inject_flags();
        let params = || SendParams {
            header: Header { kind, tag, data },
            dest,
            context: Context::default(),
            flags,
            reports_success: false,
        };
        if buf.len() == 8 && send_word(&mut state, buf.word(), &params()) {
            return Ok(());
        }
        send_message(&mut state, buf, &params())
    }

    /// Posts a receive.
    ///
    /// # Safety
    /// As [`RxBuf::new`].
    #[expect(unsafe_code, reason = "the promise becomes a value here")]
    #[inline(always)]
    unsafe fn post_recv(
        &self,
        kind: Kind,
        iov: &[IovMut],
        tag: TagMatch,
        src: FiAddr,
        context: Context,
        flags: OpFlags,
    ) -> Result {
        let mut state = self.shell.lock()?;
        let flags = state.setup.ep.rx_flags(kind, flags);
        // Each use constructs its own value, as in `post_send`.
        let posted = |buf| Posted {
            buf,
            src: Source::ANY,
            tag,
            context,
            flags,
            kind,
        };
        if let &[segment] = iov
            && src == state.matching.policy.any_source
            && COMMON_FLAGS.contains(flags)
        {
            // SAFETY: passed on from the caller.
            receive::post(&mut state, posted(unsafe { RxBuf::one(segment) }));
            return Ok(());
        }
        // SAFETY: as above.
        receive::post_from(
            &mut state,
            src,
            posted(unsafe { RxBuf::with_limit(iov, IOV_LIMIT)? }),
        )
    }
}

/// Posts a send with [`OpFlags::LEND`]. A function of its own: inlined, it costs every other send 13
/// instructions.
#[inline(never)]
fn post_lent(
    state: &mut State,
    buf: TxBuf,
    header: Header,
    dest: FiAddr,
    context: Context,
    flags: OpFlags,
) -> Result {
    if !LENDING_FLAGS.contains(flags) {
        return Err(Errno::BadFlags);
    }
    let params = SendParams {
        header,
        dest,
        context,
        flags: state.setup.ep.tx_flags(flags) - OpFlags::INJECT,
        reports_success: true,
    };
    lending::post(state, buf, params)
}

/// Builds the header of a message.
#[inline]
fn build_header(kind: Kind, tag: u64, data: u64, flags: OpFlags) -> Header {
    let data = flags.contains(OpFlags::REMOTE_CQ_DATA).then_some(data);
    Header { kind, tag, data }
}
