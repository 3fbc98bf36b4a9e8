//! Posting atomics: the entry points check the arguments and turn the caller's promise about memory
//! into a [`TxBuf`] or [`RxBuf`].

use selvedge::atomic::{AtomicMsg, Attr, Datatype, Family, Ioc, IocMut, Op, RmaIoc, Target};
use selvedge::{Atomic, AtomicExt, Context, Desc, Errno, Iov, IovMut, OpFlags, Result};
use selvedge_kit::Report;
use selvedge_kit::atomic::{Kernel, Single, attr, query};
use selvedge_kit::copy::{RxBuf, TxBuf};

use super::{Payload, Request, Targets, completion_flags, initiate};
use crate::endpoint::Endpoint;
use crate::endpoint::msg::TX_DEFAULTS;
use crate::endpoint::state::State;
use crate::rma::fast::{FAST_FLAGS, fast_peer};
use crate::transfers::cmd::IOV_LIMIT;

const FLAGS: OpFlags = TX_DEFAULTS
    .union(OpFlags::DEFAULT)
    .union(OpFlags::REMOTE_CQ_DATA)
    .union(OpFlags::MORE)
    .union(OpFlags::DEFERRED);

#[expect(unsafe_code, reason = "the raw API: a post is a promise about memory")]
impl Atomic for Endpoint {
    #[inline]
    unsafe fn atomicmsg(&self, msg: &AtomicMsg<'_>, flags: OpFlags) -> Result {
        if let Some(single) = Single::of(Family::Base, msg.datatype, msg.op)
            // SAFETY: the caller's promise about the operands is passed on.
            && unsafe { self.post_word(&single, msg, &[], &[], flags) }
        {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { self.post_slow(Family::Base, msg, &[], &[], flags) }
    }

    #[inline]
    unsafe fn fetch_atomicmsg(
        &self,
        msg: &AtomicMsg<'_>,
        result: &[IocMut],
        _result_desc: &[Desc],
        flags: OpFlags,
    ) -> Result {
        if let Some(single) = Single::of(Family::Fetch, msg.datatype, msg.op)
            // SAFETY: the caller's promise about operands and results is passed on.
            && unsafe { self.post_word(&single, msg, &[], result, flags) }
        {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { self.post_slow(Family::Fetch, msg, &[], result, flags) }
    }

    #[inline]
    unsafe fn compare_atomicmsg(
        &self,
        msg: &AtomicMsg<'_>,
        compare: &[Ioc],
        _compare_desc: &[Desc],
        result: &[IocMut],
        _result_desc: &[Desc],
        flags: OpFlags,
    ) -> Result {
        if let Some(single) = Single::of(Family::Compare, msg.datatype, msg.op)
            // SAFETY: the caller's promise about operands, comparisons and results is passed on.
            && unsafe { self.post_word(&single, msg, compare, result, flags) }
        {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { self.post_slow(Family::Compare, msg, compare, result, flags) }
    }

    #[inline]
    unsafe fn atomic_one(&self, buf: Ioc, desc: Desc, target: &Target, context: Context) -> Result {
        if let Some(single) = Single::of(Family::Base, target.datatype, target.op)
            // SAFETY: the caller's promise about the operands is passed on.
            && unsafe { self.post_one(&single, buf, &[], target, context) }
        {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { self.atomic_one_slow(buf, desc, target, context) }
    }

    #[inline]
    unsafe fn fetch_atomic_one(
        &self,
        buf: (Ioc, Desc),
        result: (IocMut, Desc),
        target: &Target,
        context: Context,
    ) -> Result {
        if let Some(single) = Single::of(Family::Fetch, target.datatype, target.op)
            // SAFETY: the caller's promise about operands and results is passed on.
            && unsafe { self.post_one(&single, buf.0, &[result.0], target, context) }
        {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { self.fetch_atomic_one_slow(buf, result, target, context) }
    }

    fn inject_atomic(&self, buf: &[u8], target: &Target) -> Result {
        let remote = |count| RmaIoc {
            addr: target.addr,
            count,
            key: target.key,
        };
        if let Ok(word) = buf.try_into()
            && let Some(single) = Single::of(Family::Base, target.datatype, target.op)
            && self.inject_word(&single, u64::from_ne_bytes(word), target.dest, &remote(1))
        {
            return Ok(());
        }
        let kernel = query(Family::Base, target.datatype, target.op)?;
        if !buf.len().is_multiple_of(kernel.size()) {
            return Err(Errno::Inval);
        }
        let remote = remote(buf.len() / kernel.size());
        if let Ok(word) = buf.try_into()
            && remote.count == 1
            && self.inject_word(&kernel, u64::from_ne_bytes(word), target.dest, &remote)
        {
            return Ok(());
        }
        kernel.check_len(buf.len(), self.inject_size)?;
        // SAFETY: `buf` is borrowed for the whole call, and `Payload::gather` copies it before the
        // call returns.
        let operand = unsafe { TxBuf::new(&[Iov::new(buf)]) };
        self.post_atomic(Request {
            kernel,
            dest: target.dest,
            targets: Targets::new(&[remote])?,
            payload: Payload::gather(&operand, &TxBuf::empty()),
            result: None,
            data: None,
            report: inject_report(buf.len()),
        })
    }

    fn valid(&self, family: Family, datatype: Datatype, op: Op) -> Result<Attr> {
        attr(self.inject_size, family, datatype, op)
    }
}

impl Endpoint {
    /// Slow path of [`Atomic::atomic_one`].
    ///
    /// # Safety
    /// As [`Atomic::atomicmsg`], for `buf`.
    #[expect(unsafe_code, reason = "the raw API: a post is a promise about memory")]
    #[inline(never)]
    unsafe fn atomic_one_slow(
        &self,
        buf: Ioc,
        desc: Desc,
        target: &Target,
        context: Context,
    ) -> Result {
        // SAFETY: passed on from the caller.
        unsafe { self.atomicv(&[buf], &[desc], target, context) }
    }

    /// Slow path of [`Atomic::fetch_atomic_one`].
    ///
    /// # Safety
    /// As [`Atomic::fetch_atomicmsg`], for `buf` and `result`.
    #[expect(unsafe_code, reason = "the raw API: a post is a promise about memory")]
    #[inline(never)]
    unsafe fn fetch_atomic_one_slow(
        &self,
        (buf, desc): (Ioc, Desc),
        (result, result_desc): (IocMut, Desc),
        target: &Target,
        context: Context,
    ) -> Result {
        let (buf, result) = (
            (&[buf][..], &[desc][..]),
            (&[result][..], &[result_desc][..]),
        );
        // SAFETY: passed on from the caller.
        unsafe { self.fetch_atomicv(buf, result, target, context) }
    }

    /// Slow path: every atomic that is not one instruction on one integer, and those for which a
    /// precondition of the fast path does not hold.
    ///
    /// # Safety
    /// As [`Atomic::compare_atomicmsg`], for the operands of `msg`, `compare` and `result`.
    #[expect(unsafe_code, reason = "the raw API: a post is a promise about memory")]
    #[inline(never)]
    unsafe fn post_slow(
        &self,
        family: Family,
        msg: &AtomicMsg<'_>,
        compare: &[Ioc],
        result: &[IocMut],
        flags: OpFlags,
    ) -> Result {
        let kernel = query(family, msg.datatype, msg.op)?;
        if kernel.size() == 8
            // SAFETY: passed on from the caller.
            && unsafe { self.post_word(&kernel, msg, compare, result, flags) }
        {
            return Ok(());
        }
        let result = kernel.has_result().then_some(result);
        // SAFETY: as above.
        let request =
            unsafe { build_request(kernel, self.inject_size, msg, compare, result, flags)? };
        self.post_atomic(request)
    }

    #[inline]
    fn post_atomic(&self, mut request: Request) -> Result {
        let report = &mut request.report;
        if !FLAGS.contains(report.flags) {
            return Err(Errno::BadFlags);
        }
        let mut state = self.shell.lock()?;
        report.flags = state.setup.ep.tx_flags(report.flags);
        post_request(&mut state, request)
    }
}

/// Executes an atomic directly if possible; otherwise passes the request to the general path.
#[inline]
fn post_request(state: &mut State, mut request: Request) -> Result {
    let State { setup, peers, .. } = state;
    if let Some(peer) = fast_peer(setup, peers, request.dest, &request.report, FAST_FLAGS)
        && peer.atomics.is_idle()
        && peer.apply_directly(&mut request)
    {
        request.report.done_not_deferred(&setup.ep);
        return Ok(());
    }
    initiate::post(&mut state.connector(), request)
}

/// The report of an injected atomic of `len` bytes.
pub(super) fn inject_report(len: usize) -> Report {
    Report {
        kind: completion_flags(Family::Base),
        context: Context::default(),
        flags: OpFlags::INJECT | OpFlags::DEFAULT,
        reports_success: false,
        len,
    }
}

/// Builds the request from the caller's arguments, and checks that their lengths agree.
///
/// # Safety
/// As [`Atomic::compare_atomicmsg`], for the operands of `msg`, `compare` and `result`.
#[expect(unsafe_code, reason = "the promise becomes values here")]
#[inline]
unsafe fn build_request(
    kernel: Kernel,
    inject_size: usize,
    msg: &AtomicMsg<'_>,
    compare: &[Ioc],
    result: Option<&[IocMut]>,
    flags: OpFlags,
) -> Result<Request> {
    let targets = Targets::new(msg.rma_iov)?;
    // The man page allows operands of an atomic read and ignores them.
    let operand = if kernel.has_operand() { msg.iov } else { &[] };
    // SAFETY: passed on from the caller.
    let operand = unsafe { tx_buf(&kernel, operand)? };
    // SAFETY: as above.
    let compare = unsafe { tx_buf(&kernel, compare)? };
    let result = match result {
        // SAFETY: as above.
        Some(result) => Some(unsafe { rx_buf(&kernel, result)? }),
        None => None,
    };
    let counts = targets.as_slice().iter().map(|target| target.count);
    let count = counts.fold(0, |sum: usize, count| sum.saturating_add(count));
    let len = count.checked_mul(kernel.size()).ok_or(Errno::MsgSize)?;
    let fits = |wanted, has: usize| has == if wanted { len } else { 0 };
    if !fits(kernel.has_operand(), operand.len())
        || !fits(kernel.has_compare(), compare.len())
        || !fits(kernel.has_result(), result.as_ref().map_or(0, RxBuf::len))
    {
        return Err(Errno::Inval);
    }
    kernel.check_len(len, inject_size)?;
    Ok(Request {
        kernel,
        dest: msg.dest,
        targets,
        payload: Payload::gather(&operand, &compare),
        result,
        data: flags.contains(OpFlags::REMOTE_CQ_DATA).then_some(msg.data),
        report: Report {
            kind: completion_flags(kernel.family()),
            context: msg.context,
            flags,
            reports_success: true,
            len,
        },
    })
}

/// Converts a list of elements to a buffer that is read.
///
/// # Safety
/// As [`TxBuf::new`], for the elements.
#[expect(unsafe_code, reason = "the promise becomes a value here")]
#[inline]
unsafe fn tx_buf(kernel: &Kernel, list: &[Ioc]) -> Result<TxBuf> {
    let mut iov = [Iov::new(&[]); IOV_LIMIT];
    let iov = iov.get_mut(..list.len()).ok_or(Errno::Inval)?;
    for (iov, ioc) in iov.iter_mut().zip(list) {
        let len = ioc.count.checked_mul(kernel.size()).ok_or(Errno::MsgSize)?;
        *iov = Iov::from_raw(ioc.addr, len);
    }
    // SAFETY: passed on from the caller.
    Ok(unsafe { TxBuf::new(iov) })
}

/// Converts a list of elements to a buffer that is written.
///
/// # Safety
/// As [`RxBuf::new`], for the elements.
#[expect(unsafe_code, reason = "the promise becomes a value here")]
#[inline]
unsafe fn rx_buf(kernel: &Kernel, list: &[IocMut]) -> Result<RxBuf> {
    let mut iov = [IovMut::new(&mut []); IOV_LIMIT];
    let iov = iov.get_mut(..list.len()).ok_or(Errno::Inval)?;
    for (iov, ioc) in iov.iter_mut().zip(list) {
        let len = ioc.count.checked_mul(kernel.size()).ok_or(Errno::MsgSize)?;
        *iov = IovMut::from_raw(ioc.addr, len);
    }
    // SAFETY: passed on from the caller.
    Ok(unsafe { RxBuf::new(iov) })
}
