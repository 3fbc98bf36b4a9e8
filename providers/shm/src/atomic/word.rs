//! Fast path of atomics: one element of eight bytes, in mapped special memory. The fast path builds
//! no [`super::Request`], which would take longer than the instruction itself.

use selvedge::atomic::{AtomicMsg, Family, Ioc, IocMut, RmaIoc, Target};
use selvedge::rma::RmaIov;
use selvedge::{Context, FiAddr, Iov, IovMut, OpFlags};
use selvedge_kit::Report;
use selvedge_kit::atomic::{Args, Kernel, Single};
use selvedge_kit::copy::{RxBuf, TxBuf};

use super::completion_flags;
use super::post::inject_report;
use crate::endpoint::Endpoint;
use crate::endpoint::state::State;
use crate::memory::keys;
use crate::rma::fast::{FAST_FLAGS, fast_peer};
use crate::rma::remote_memory::PrefetchHint;
use crate::smr::bytes::Span;
use crate::smr::prefetch;

/// Bytes of an element.
const LEN: usize = 8;

/// An operation on one element of eight bytes.
pub(super) trait WordOp {
    fn family(&self) -> Family;
    fn has_operand(&self) -> bool;
    /// Whether the mapping has to be writable.
    fn writes(&self) -> bool;
    /// The rights that the operation needs, in the key table's encoding.
    fn rights(&self) -> u32;
    /// Applies the operation to the element at `offset` of a span, with the operand and the compare
    /// value in `words`. Returns the fetched value; `None` without effect if the element is
    /// not aligned.
    fn apply(&self, span: &Span, offset: usize, words: [u64; 2]) -> Option<u64>;
}

impl WordOp for Single {
    #[inline(always)]
    fn family(&self) -> Family {
        self.family()
    }

    #[inline(always)]
    fn has_operand(&self) -> bool {
        self.has_operand()
    }

    #[inline(always)]
    fn writes(&self) -> bool {
        self.writes()
    }

    #[inline(always)]
    fn rights(&self) -> u32 {
        keys::rights(self.access())
    }

    #[inline(always)]
    fn apply(&self, span: &Span, offset: usize, words: [u64; 2]) -> Option<u64> {
        span.apply_single(offset, *self, words)
    }
}

/// A kernel on elements of eight bytes.
impl WordOp for Kernel {
    fn family(&self) -> Family {
        self.family()
    }

    fn has_operand(&self) -> bool {
        self.has_operand()
    }

    fn writes(&self) -> bool {
        self.writes()
    }

    fn rights(&self) -> u32 {
        keys::rights(self.access())
    }

    #[inline]
    fn apply(&self, span: &Span, offset: usize, words: [u64; 2]) -> Option<u64> {
        let [operand, compare] = words.map(u64::to_ne_bytes);
        let mut fetched = [0; LEN];
        let args = Args {
            operand: &operand,
            compare: &compare,
            result: &mut fetched,
        };
        let is_applied = span.apply(offset, self, 1, args);
        is_applied.then(|| u64::from_ne_bytes(fetched))
    }
}

impl Endpoint {
    /// Executes an atomic all of whose lists have one element. Returns `false` without effect if a
    /// precondition of the fast path does not hold.
    ///
    /// # Safety
    /// As [`selvedge::Atomic::compare_atomicmsg`], for the operands of `msg`, `compare` and
    /// `result`.
    #[expect(unsafe_code, reason = "the promise becomes values here")]
    #[inline(always)]
    pub(super) unsafe fn post_word(
        &self,
        word_op: &impl WordOp,
        msg: &AtomicMsg<'_>,
        compare: &[Ioc],
        result: &[IocMut],
        flags: OpFlags,
    ) -> bool {
        let [target] = msg.rma_iov else {
            return false;
        };
        if target.count != 1 {
            return false;
        }
        let family = word_op.family();
        // SAFETY: passed on from the caller.
        let operand = unsafe { operand_word(word_op.has_operand(), msg.iov) };
        // SAFETY: as above.
        let compare = unsafe { operand_word(family == Family::Compare, compare) };
        // SAFETY: as above.
        let result = unsafe { result_buf(family != Family::Base, result) };
        let (Some(operand), Some(compare), Some(result)) = (operand, compare, result) else {
            return false;
        };
        let report = Report {
            kind: completion_flags(family),
            context: msg.context,
            flags,
            reports_success: true,
            len: LEN,
        };
        let words = [operand, compare];
        self.apply_word(word_op, msg.dest, target, words, result, report)
    }

    /// As [`Self::post_word`], for the short forms. `result` is empty for an atomic without fetched
    /// values.
    ///
    /// # Safety
    /// As [`selvedge::Atomic::fetch_atomicmsg`], for `operand` and `result`.
    #[expect(unsafe_code, reason = "the promise becomes values here")]
    #[inline(always)]
    pub(super) unsafe fn post_one(
        &self,
        single: &Single,
        operand: Ioc,
        result: &[IocMut],
        target: &Target,
        context: Context,
    ) -> bool {
        if operand.count != 1 {
            return false;
        }
        let family = single.family();
        // SAFETY: passed on from the caller.
        let operand = unsafe { operand_word(single.has_operand(), &[operand]) };
        // SAFETY: as above.
        let result = unsafe { result_buf(family != Family::Base, result) };
        let (Some(operand), Some(result)) = (operand, result) else {
            return false;
        };
        let report = Report {
            kind: completion_flags(family),
            context,
            flags: OpFlags::DEFAULT,
            reports_success: true,
            len: LEN,
        };
        let range = RmaIoc {
            addr: target.addr,
            count: 1,
            key: target.key,
        };
        let words = [operand, 0];
        self.apply_word(single, target.dest, &range, words, result, report)
    }

    /// As [`Self::post_word`], for an injected atomic.
    #[inline(always)]
    pub(super) fn inject_word(
        &self,
        word_op: &impl WordOp,
        operand: u64,
        dest: FiAddr,
        target: &RmaIoc,
    ) -> bool {
        let report = inject_report(LEN);
        self.apply_word(word_op, dest, target, [operand, 0], None, report)
    }

    #[inline(always)]
    fn apply_word(
        &self,
        word_op: &impl WordOp,
        dest: FiAddr,
        target: &RmaIoc,
        words: [u64; 2],
        result: Option<RxBuf>,
        mut report: Report,
    ) -> bool {
        let segment = RmaIov {
            addr: target.addr,
            len: LEN,
            key: target.key,
        };
        let Some(mut state) = self.shell.core().state.try_lock() else {
            return false;
        };
        report.flags = state.setup.ep.tx_flags(report.flags);
        apply_word(&mut state, word_op, dest, &segment, words, result, &report)
    }
}

#[inline(always)]
fn apply_word(
    state: &mut State,
    word_op: &impl WordOp,
    dest: FiAddr,
    segment: &RmaIov,
    words: [u64; 2],
    result: Option<RxBuf>,
    report: &Report,
) -> bool {
    let State {
        setup,
        peers,
        prefetch_hint,
        ..
    } = state;
    let guess = prefetch_hint.guess(dest, segment);
    if let Some(line) = guess {
        prefetch::for_writing(line);
    }
    let Some(peer) = fast_peer(setup, peers, dest, report, FAST_FLAGS) else {
        return false;
    };
    // An outstanding atomic precedes this one.
    if !peer.atomics.is_idle() {
        return false;
    }
    let Some((span, offset)) = peer.mapped_regions.find(segment, word_op.rights()) else {
        return false;
    };
    if word_op.writes() && !span.is_writable() {
        return false;
    }
    let Some(fetched) = word_op.apply(span, offset, words) else {
        return false;
    };
    if let Some(mut result) = result {
        result.write_word(fetched);
    }
    if PrefetchHint::is_wrong(guess, span, offset) {
        *prefetch_hint = PrefetchHint::of_segment(dest, segment, span, offset);
    }
    report.done_not_deferred(&setup.ep);
    true
}

/// Loads the only element of a list. Returns 0 if the operation has no such operand, and `None` for
/// a list of another length.
///
/// # Safety
/// As [`TxBuf::one`], for the element.
#[expect(unsafe_code, reason = "the promise becomes a value here")]
#[inline(always)]
unsafe fn operand_word(has_operand: bool, list: &[Ioc]) -> Option<u64> {
    match *list {
        _ if !has_operand => Some(0),
        // SAFETY: passed on from the caller.
        [one] if one.count == 1 => Some(unsafe { TxBuf::one(Iov::from_raw(one.addr, LEN)) }.word()),
        _ => None,
    }
}

/// The buffer for the fetched value, if the operation has one. `None` for a list of another length.
///
/// # Safety
/// As [`RxBuf::one`], for the element.
#[expect(unsafe_code, reason = "the promise becomes a value here")]
#[inline(always)]
unsafe fn result_buf(has_result: bool, list: &[IocMut]) -> Option<Option<RxBuf>> {
    match *list {
        _ if !has_result => Some(None),
        [one] if one.count == 1 => {
            // SAFETY: passed on from the caller.
            Some(Some(unsafe { RxBuf::one(IovMut::from_raw(one.addr, LEN)) }))
        }
        _ => None,
    }
}
