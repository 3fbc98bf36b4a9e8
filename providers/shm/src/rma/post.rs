//! Posting one-sided operations. The unsafe entry points turn the caller's promise about memory
//! into a [`TxBuf`] or [`RxBuf`]; the code behind them is safe.
//!
//! An operation on special memory is over when the post returns; see [`super::direct`].

use selvedge::rma::{ReadMsg, RmaIov, WriteMsg};
use selvedge::{
    CompletionFlags, Context, Desc, Errno, FiAddr, Iov, IovMut, OpFlags, Result, Rma, RmaExt,
};
use selvedge_kit::Report;
use selvedge_kit::copy::{RxBuf, TxBuf};
use selvedge_kit::segments::RmaSegments;

use super::{LocalBuffer, RmaOp, fast, initiate};
use crate::endpoint::Endpoint;
use crate::endpoint::msg::TX_DEFAULTS;
use crate::endpoint::state::State;
use crate::provider::setup::Setup;
use crate::transfers::cmd::IOV_LIMIT;

const WRITE: CompletionFlags = CompletionFlags::RMA.union(CompletionFlags::WRITE);
const READ: CompletionFlags = CompletionFlags::RMA.union(CompletionFlags::READ);

const READ_FLAGS: OpFlags = TX_DEFAULTS
    .union(OpFlags::DEFAULT)
    .union(OpFlags::FENCE)
    .union(OpFlags::MORE)
    .union(OpFlags::DEFERRED);
const WRITE_FLAGS: OpFlags = READ_FLAGS.union(OpFlags::REMOTE_CQ_DATA);

/// The parameters of a posted one-sided operation.
#[derive(Clone, Copy, Debug)]
struct Post<'a> {
    peer: FiAddr,
    /// The peer's memory.
    rma_iov: &'a [RmaIov],
    data: Option<u64>,
    report: Report,
}

#[expect(unsafe_code, reason = "the raw API: a post is a promise about memory")]
impl Rma for Endpoint {
    #[inline]
    unsafe fn readmsg(&self, msg: &ReadMsg<'_>, flags: OpFlags) -> Result {
        if !READ_FLAGS.contains(flags) {
            return Err(Errno::BadFlags);
        }
        if let (&[buf], [segment]) = (msg.iov, msg.rma_iov)
            && buf.len == 8
            && segment.len == 8
            // SAFETY: passed on from the caller.
            && unsafe { self.read_word(buf, msg.src, segment, msg.context, flags) }
        {
            return Ok(());
        }
        // SAFETY: passed on from the caller.
        unsafe { self.read_slow(msg, flags) }
    }

    #[inline]
    unsafe fn read_one(
        &self,
        buf: IovMut,
        desc: Desc,
        src: FiAddr,
        addr: u64,
        key: u64,
        context: Context,
    ) -> Result {
        let len = buf.len;
        let segment = RmaIov { addr, len, key };
        // SAFETY: passed on from the caller.
        if len == 8 && unsafe { self.read_word(buf, src, &segment, context, OpFlags::DEFAULT) } {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { self.read_one_slow((buf, desc), src, addr, key, context) }
    }

    #[inline]
    unsafe fn write_one(
        &self,
        buf: Iov,
        desc: Desc,
        dest: FiAddr,
        addr: u64,
        key: u64,
        context: Context,
    ) -> Result {
        let len = buf.len;
        let segment = RmaIov { addr, len, key };
        // SAFETY: passed on from the caller.
        if len == 8 && unsafe { self.write_word(buf, dest, &segment, context) } {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { self.write_one_slow((buf, desc), dest, addr, key, context) }
    }

    #[inline]
    unsafe fn writemsg(&self, msg: &WriteMsg<'_>, flags: OpFlags) -> Result {
        if !WRITE_FLAGS.contains(flags) {
            return Err(Errno::BadFlags);
        }
        if let (&[buf], [segment]) = (msg.iov, msg.rma_iov)
            && buf.len == 8
            && segment.len == 8
        {
            // SAFETY: the caller's promise is the one that `TxBuf::new` wants.
            let word = unsafe { TxBuf::one(buf) }.word();
            let mut state = self.shell.lock()?;
            let report = report(WRITE, msg.context, write_flags(&state.setup, flags), 8);
            // Two calls, so that a write without data compiles to the shorter path.
            let (state, data) = (&mut *state, msg.data);
            let is_done = if report.flags.contains(OpFlags::REMOTE_CQ_DATA) {
                fast::put_word(state, word, msg.dest, segment, Some(data), &report)
            } else {
                fast::put_word(state, word, msg.dest, segment, None, &report)
            };
            if is_done {
                return Ok(());
            }
        }
        // SAFETY: passed on from the caller.
        unsafe { self.write_slow(msg, flags) }
    }

    #[inline]
    fn inject_write(
        &self,
        bytes: &[u8],
        dest: FiAddr,
        addr: u64,
        key: u64,
        data: Option<u64>,
    ) -> Result {
        if bytes.len() > self.inject_size {
            return Err(Errno::MsgSize);
        }
        let len = bytes.len();
        let segment = RmaIov { addr, len, key };
        let report = |state: &State| Report {
            kind: WRITE,
            context: Context::default(),
            flags: write_flags(&state.setup, OpFlags::INJECT | OpFlags::DEFAULT),
            reports_success: false,
            len,
        };
        if let Ok(word) = bytes.try_into() {
            let word = u64::from_ne_bytes(word);
            let mut state = self.shell.lock()?;
            let report = report(&state);
            if fast::put_word(&mut state, word, dest, &segment, data, &report) {
                return Ok(());
            }
        }
        // SAFETY: `bytes` is borrowed for the whole call, and an operation with `INJECT` keeps no
        // buffer beyond it: bytes that are not sent at once are copied.
        let buf = unsafe { TxBuf::new(&[Iov::new(bytes)]) };
        let mut state = self.shell.lock()?;
        let report = report(&state);
        let post = || Post {
            peer: dest,
            rma_iov: std::slice::from_ref(&segment),
            data,
            report,
        };
        post_write(&mut state, buf, post)
    }
}

#[expect(unsafe_code, reason = "the raw API: a post is a promise about memory")]
impl Endpoint {
    /// Reads eight bytes of mapped special memory with one load. Returns `false` without effect if
    /// the segment is not mapped special memory or the fast path's preconditions do not hold.
    ///
    /// # Safety
    /// As [`Rma::readmsg`], for `buf`, which has eight bytes.
    #[inline(always)]
    unsafe fn read_word(
        &self,
        buf: IovMut,
        src: FiAddr,
        segment: &RmaIov,
        context: Context,
        flags: OpFlags,
    ) -> bool {
        let Some(mut state) = self.shell.core().state.try_lock() else {
            return false;
        };
        // SAFETY: the caller's promise is the one that `RxBuf::new` wants.
        let buf = unsafe { RxBuf::one(buf) };
        let report = report(READ, context, state.setup.ep.tx_flags(flags), 8);
        fast::get_word(&mut state, buf, src, segment, &report)
    }

    /// Writes eight bytes of mapped special memory with one store and the default flags. Returns
    /// `false` without effect if the segment is not mapped special memory or the fast path's
    /// preconditions do not hold.
    ///
    /// # Safety
    /// As [`Rma::writemsg`], for `buf`, which has eight bytes.
    #[inline(always)]
    unsafe fn write_word(
        &self,
        buf: Iov,
        dest: FiAddr,
        segment: &RmaIov,
        context: Context,
    ) -> bool {
        let Some(mut state) = self.shell.core().state.try_lock() else {
            return false;
        };
        // SAFETY: the caller's promise is the one that `TxBuf::new` wants.
        let word = unsafe { TxBuf::one(buf) }.word();
        let report = report(
            WRITE,
            context,
            write_flags(&state.setup, OpFlags::DEFAULT),
            8,
        );
        fast::put_word(&mut state, word, dest, segment, None, &report)
    }

    /// Slow path of [`Rma::read_one`].
    ///
    /// # Safety
    /// As [`Rma::readmsg`], for `buf`.
    #[inline(never)]
    unsafe fn read_one_slow(
        &self,
        (buf, desc): (IovMut, Desc),
        src: FiAddr,
        addr: u64,
        key: u64,
        context: Context,
    ) -> Result {
        // SAFETY: passed on from the caller.
        unsafe { self.readv(&[buf], &[desc], src, addr, key, context) }
    }

    /// Slow path of [`Rma::write_one`].
    ///
    /// # Safety
    /// As [`Rma::writemsg`], for `buf`.
    #[inline(never)]
    unsafe fn write_one_slow(
        &self,
        (buf, desc): (Iov, Desc),
        dest: FiAddr,
        addr: u64,
        key: u64,
        context: Context,
    ) -> Result {
        // SAFETY: passed on from the caller.
        unsafe { self.writev(&[buf], &[desc], dest, addr, key, context) }
    }

    /// Slow path of [`Rma::readmsg`].
    ///
    /// # Safety
    /// As [`Rma::readmsg`].
    #[inline(never)]
    unsafe fn read_slow(&self, msg: &ReadMsg<'_>, flags: OpFlags) -> Result {
        // SAFETY: the caller's promise is the one that `RxBuf::new` wants.
        let buf = unsafe { RxBuf::with_limit(msg.iov, IOV_LIMIT)? };
        let mut state = self.shell.lock()?;
        let (flags, len) = (state.setup.ep.tx_flags(flags), buf.len());
        let post = || Post {
            peer: msg.src,
            rma_iov: msg.rma_iov,
            data: None,
            report: report(READ, msg.context, flags, len),
        };
        post_read(&mut state, buf, post)
    }

    /// Slow path of [`Rma::writemsg`].
    ///
    /// # Safety
    /// As [`Rma::writemsg`].
    #[inline(never)]
    unsafe fn write_slow(&self, msg: &WriteMsg<'_>, flags: OpFlags) -> Result {
        // SAFETY: the caller's promise is the one that `TxBuf::new` wants.
        let buf = unsafe { TxBuf::with_limit(msg.iov, IOV_LIMIT)? };
        let mut state = self.shell.lock()?;
        let (flags, len) = (write_flags(&state.setup, flags), buf.len());
        let has_data = flags.contains(OpFlags::REMOTE_CQ_DATA);
        let post = || Post {
            peer: msg.dest,
            rma_iov: msg.rma_iov,
            data: has_data.then_some(msg.data),
            report: report(WRITE, msg.context, flags, len),
        };
        post_write(&mut state, buf, post)
    }
}

/// Returns the [`Report`] of an operation that reports its success.
#[inline(always)]
fn report(kind: CompletionFlags, context: Context, flags: OpFlags, len: usize) -> Report {
    Report {
        kind,
        context,
        flags,
        reports_success: true,
        len,
    }
}

/// Returns the flags of a write: the caller's flags or the endpoint's defaults, and the completion
/// level that the configuration demands of every write.
#[inline(always)]
fn write_flags(setup: &Setup, flags: OpFlags) -> OpFlags {
    setup.ep.tx_flags(flags) | setup.config.write_flags
}

/// Writes to a peer's memory. `post` is called for each use, so that the fast path keeps the values
/// in registers.
#[inline(always)]
fn post_write<'a>(state: &mut State, buf: TxBuf, post: impl Fn() -> Post<'a>) -> Result {
    let Post {
        peer,
        rma_iov,
        data,
        report,
    } = post();
    if fast::write(state, &buf, peer, rma_iov, data, &report) {
        return Ok(());
    }
    post_general(state, &post(), LocalBuffer::Source(buf))
}

/// Reads a peer's memory. `post` as in [`post_write`].
#[inline(always)]
fn post_read<'a>(state: &mut State, mut buf: RxBuf, post: impl Fn() -> Post<'a>) -> Result {
    let Post {
        peer,
        rma_iov,
        report,
        ..
    } = post();
    if fast::read(state, &mut buf, peer, rma_iov, &report) {
        drop(buf);
        report.done_not_deferred(&state.setup.ep);
        return Ok(());
    }
    post_general(state, &post(), LocalBuffer::Destination(buf))
}

#[inline(never)]
fn post_general(state: &mut State, post: &Post<'_>, local: LocalBuffer) -> Result {
    if post.report.reports_success && state.setup.ep.tx_cq.room() == 0 {
        return Err(Errno::Again);
    }
    initiate::post(&mut state.connector(), post.access()?, local)
}

impl Post<'_> {
    /// Builds the operation. Fails with [`Errno::Inval`] if segments and buffer differ in length.
    fn access(&self) -> Result<RmaOp> {
        let segments = RmaSegments::new(self.rma_iov)?;
        if segments.len() != self.report.len {
            return Err(Errno::Inval);
        }
        Ok(RmaOp {
            segments,
            peer: self.peer,
            data: self.data,
            report: self.report,
        })
    }
}
