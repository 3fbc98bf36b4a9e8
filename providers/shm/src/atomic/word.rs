//! The usual atomic: one element of eight bytes, in special memory that is mapped here. It is done
//! without a request being made of it, which would take longer than the instruction itself.

use selvedge::atomic::{AtomicMsg, Ioc, IocMut, RmaIoc};
use selvedge::rma::RmaIov;
use selvedge::{FiAddr, Iov, IovMut, OpFlags, Result};
use selvedge_kit::Report;
use selvedge_kit::atomic::{Args, Kernel};
use selvedge_kit::copy::{RxBuf, TxBuf};

use super::post::injected;
use super::{rights, sent};
use crate::endpoint::Endpoint;
use crate::state::State;

/// Bytes of the element.
const LEN: usize = 8;

impl Endpoint {
    /// Carries the atomic out if it is a usual one, all of whose lists have one element. `false`,
    /// and nothing has happened, otherwise.
    ///
    /// # Safety
    /// As [`selvedge::Atomic::compare_atomicmsg`], for the operands of `msg`, `compare` and `result`.
    #[expect(unsafe_code, reason = "the promise becomes values here")]
    #[inline]
    pub(super) unsafe fn post_word(
        &self,
        kernel: &Kernel,
        msg: &AtomicMsg<'_>,
        compare: &[Ioc],
        result: &[IocMut],
        flags: OpFlags,
    ) -> Result<bool> {
        let &[target] = msg.rma_iov else {
            return Ok(false);
        };
        if kernel.size() != LEN || target.count != 1 {
            return Ok(false);
        }
        // SAFETY: passed on from the caller.
        let operand = unsafe { word(kernel.has_operand(), msg.iov) };
        // SAFETY: as above.
        let compare = unsafe { word(kernel.has_compare(), compare) };
        // SAFETY: as above.
        let result = unsafe { room(kernel.has_result(), result) };
        let (Some(operand), Some(compare), Some(result)) = (operand, compare, result) else {
            return Ok(false);
        };
        let report = Report {
            what: sent(kernel),
            context: msg.context,
            flags,
            completes: true,
            len: LEN,
        };
        self.apply_word(
            kernel,
            msg.dest,
            &target,
            [operand, compare],
            result,
            report,
        )
    }

    /// Carries an injected atomic out, likewise.
    #[inline]
    pub(super) fn inject_word(
        &self,
        kernel: &Kernel,
        operand: u64,
        dest: FiAddr,
        target: &RmaIoc,
    ) -> Result<bool> {
        if kernel.size() != LEN {
            return Ok(false);
        }
        let report = injected(kernel, LEN);
        self.apply_word(kernel, dest, target, [operand, 0], None, report)
    }

    #[inline(always)]
    fn apply_word(
        &self,
        kernel: &Kernel,
        dest: FiAddr,
        target: &RmaIoc,
        words: [u64; 2],
        result: Option<RxBuf>,
        mut report: Report,
    ) -> Result<bool> {
        let piece = RmaIov {
            addr: target.addr,
            len: LEN,
            key: target.key,
        };
        let mut state = self.inner.state.lock()?;
        report.flags = state.ep.tx_flags(report.flags);
        Ok(state.apply_word(kernel, dest, &piece, words, result, &report))
    }
}

impl State {
    #[inline(always)]
    fn apply_word(
        &mut self,
        kernel: &Kernel,
        dest: FiAddr,
        piece: &RmaIov,
        words: [u64; 2],
        result: Option<RxBuf>,
        report: &Report,
    ) -> bool {
        if self.ep.tx_cq.room() == 0 {
            return false;
        }
        let Some(peer) = self.usual_peer(dest, report.flags) else {
            return false;
        };
        // An answer that is still to come belongs before this.
        if !peer.atomics.is_idle() {
            return false;
        }
        let Some((span, at)) = peer.windows.find(piece, rights(kernel)) else {
            return false;
        };
        if kernel.writes() && !span.is_writable() {
            return false;
        }
        let [operand, compare] = words.map(u64::to_ne_bytes);
        let mut earlier = [0; LEN];
        let args = Args {
            operand: &operand,
            compare: &compare,
            result: &mut earlier,
        };
        if span.apply(at, kernel, 1, args).is_err() {
            return false;
        }
        if let Some(mut result) = result {
            result.write_word(u64::from_ne_bytes(earlier));
        }
        report.done_plainly(&self.ep);
        true
    }
}

/// The one element of a list, 0 where none is wanted; nothing for any other list.
///
/// # Safety
/// As [`TxBuf::one`], for the element.
#[expect(unsafe_code, reason = "the promise becomes a value here")]
#[inline(always)]
unsafe fn word(wanted: bool, list: &[Ioc]) -> Option<u64> {
    match *list {
        _ if !wanted => Some(0),
        // SAFETY: passed on from the caller.
        [one] if one.count == 1 => Some(unsafe { TxBuf::one(Iov::from_raw(one.addr, LEN)) }.word()),
        _ => None,
    }
}

/// Room for the one element of a list, if it is wanted; nothing for any other list.
///
/// # Safety
/// As [`RxBuf::one`], for the element.
#[expect(unsafe_code, reason = "the promise becomes a value here")]
#[inline(always)]
unsafe fn room(wanted: bool, list: &[IocMut]) -> Option<Option<RxBuf>> {
    match *list {
        _ if !wanted => Some(None),
        [one] if one.count == 1 => {
            // SAFETY: passed on from the caller.
            Some(Some(unsafe { RxBuf::one(IovMut::from_raw(one.addr, LEN)) }))
        }
        _ => None,
    }
}
