//! Posts atomics: the initiator checks what it can, and takes over the memory of the results, which
//! the caller has promised to keep valid.
//!
//! The target executes the atomics (`connection::one_sided`). It must be a Selvedge endpoint:
//! libfabric's protocol has no atomics.

use selvedge::atomic::{AtomicMsg, Attr, Datatype, Family, Ioc, IocMut, Op, RmaIoc, Target};
use selvedge::{Atomic, Desc, Errno, FiAddr, Iov, IovMut, OpFlags, Result};
use selvedge_kit::Report;
use selvedge_kit::atomic::{Kernel, attr, query};
use selvedge_kit::copy::{RxBuf, TxBuf};
use selvedge_kit::segments::RMA_IOV_LIMIT;

use crate::connection::one_sided::encode_operation;
use crate::connection::operation::{Body, Operation, Response};
use crate::endpoint::Endpoint;
use crate::endpoint::msg::{IOV_LIMIT, TX_DEFAULTS, borrowed, inject_report};
use crate::wire::frame::Header;

const FLAGS: OpFlags = TX_DEFAULTS
    .union(OpFlags::DEFAULT)
    .union(OpFlags::REMOTE_CQ_DATA)
    .union(OpFlags::FENCE)
    .union(OpFlags::MORE)
    .union(OpFlags::DEFERRED);

/// An atomic that has passed the checks and is about to be posted.
struct Request<'a> {
    kernel: Kernel,
    dest: FiAddr,
    targets: &'a [RmaIoc],
    body: Body,
    result: Option<RxBuf>,
    data: u64,
    report: Report,
}

#[expect(unsafe_code, reason = "the raw API: a post is a promise about memory")]
impl Atomic for Endpoint {
    unsafe fn atomicmsg(&self, msg: &AtomicMsg<'_>, flags: OpFlags) -> Result {
        let kernel = query(Family::Base, msg.datatype, msg.op)?;
        // SAFETY: the caller's promise about the operands is passed on.
        self.post_atomic(unsafe { request(kernel, self.inject_size, msg, &[], None, flags)? })
    }

    unsafe fn fetch_atomicmsg(
        &self,
        msg: &AtomicMsg<'_>,
        result: &[IocMut],
        _result_desc: &[Desc],
        flags: OpFlags,
    ) -> Result {
        let kernel = query(Family::Fetch, msg.datatype, msg.op)?;
        // SAFETY: the caller's promise about operands and results is passed on.
        self.post_atomic(unsafe {
            request(kernel, self.inject_size, msg, &[], Some(result), flags)?
        })
    }

    unsafe fn compare_atomicmsg(
        &self,
        msg: &AtomicMsg<'_>,
        compare: &[Ioc],
        _compare_desc: &[Desc],
        result: &[IocMut],
        _result_desc: &[Desc],
        flags: OpFlags,
    ) -> Result {
        let kernel = query(Family::Compare, msg.datatype, msg.op)?;
        // SAFETY: the caller's promise about operands, comparisons and results is passed on.
        self.post_atomic(unsafe {
            request(kernel, self.inject_size, msg, compare, Some(result), flags)?
        })
    }

    fn inject_atomic(&self, buf: &[u8], target: &Target) -> Result {
        let kernel = query(Family::Base, target.datatype, target.op)?;
        if !buf.len().is_multiple_of(kernel.size()) {
            return Err(Errno::Inval);
        }
        kernel.check_len(buf.len(), self.inject_size)?;
        let target_ioc = RmaIoc {
            addr: target.addr,
            count: buf.len() / kernel.size(),
            key: target.key,
        };
        self.post_atomic(Request {
            kernel,
            dest: target.dest,
            targets: &[target_ioc],
            body: borrowed(buf),
            result: None,
            data: 0,
            report: inject_report(kernel.sent(), OpFlags::INJECT | OpFlags::DEFAULT, buf.len()),
        })
    }

    fn valid(&self, family: Family, datatype: Datatype, op: Op) -> Result<Attr> {
        attr(self.inject_size, family, datatype, op)
    }
}

impl Endpoint {
    fn post_atomic(&self, request: Request<'_>) -> Result {
        let Request {
            kernel, mut report, ..
        } = request;
        if !FLAGS.contains(report.flags) {
            return Err(Errno::BadFlags);
        }
        let mut state = self.shell.lock()?;
        report.flags = state.ep.tx_flags(report.flags);
        let has_data = report.flags.contains(OpFlags::REMOTE_CQ_DATA);
        let peer = state.peer_at(request.dest)?;
        let operation = Operation {
            header: Header::Atomic {
                operation: encode_operation(&kernel),
                data: has_data.then_some(request.data),
                targets: request.targets.to_vec(),
                len: request.body.len(),
            },
            body: request.body,
            response: Response::AtomicResult(request.result),
            report,
        };
        state.post(peer, operation)
    }
}

/// Checks an atomic, copies the operands and comparands, and takes over the memory of the results.
///
/// # Safety
/// As [`Atomic::compare_atomicmsg`], for the operands of `msg`, `compare` and `result`.
#[expect(unsafe_code, reason = "the promise becomes values here")]
unsafe fn request<'a>(
    kernel: Kernel,
    max_len: usize,
    msg: &AtomicMsg<'a>,
    compare: &[Ioc],
    result: Option<&[IocMut]>,
    flags: OpFlags,
) -> Result<Request<'a>> {
    if !(1..=RMA_IOV_LIMIT).contains(&msg.rma_iov.len()) {
        return Err(Errno::Inval);
    }
    // An atomic read ignores its operands (fi_atomic(3)).
    let operand = if kernel.has_operand() { msg.iov } else { &[] };
    // SAFETY: passed on from the caller.
    let operand = unsafe { read_from(&kernel, operand)? };
    // SAFETY: as above.
    let compare = unsafe { read_from(&kernel, compare)? };
    let result = match result {
        // SAFETY: as above.
        Some(result) => Some(unsafe { write_to(&kernel, result)? }),
        None => None,
    };
    let counts = msg.rma_iov.iter().map(|target| target.count);
    let count = counts.fold(0, |sum: usize, count| sum.saturating_add(count));
    let len = count.checked_mul(kernel.size()).ok_or(Errno::MsgSize)?;
    let fits = |is_used, len_of: usize| len_of == if is_used { len } else { 0 };
    if !fits(kernel.has_operand(), operand.len())
        || !fits(kernel.has_compare(), compare.len())
        || !fits(kernel.has_result(), result.as_ref().map_or(0, RxBuf::len))
    {
        return Err(Errno::Inval);
    }
    kernel.check_len(len, max_len)?;
    let mut bytes = vec![0; operand.len() + compare.len()];
    let (first, second) = bytes.split_at_mut(operand.len());
    operand.read(0, first);
    compare.read(0, second);
    Ok(Request {
        kernel,
        dest: msg.dest,
        targets: msg.rma_iov,
        body: Body::Copied(bytes.into()),
        result,
        data: msg.data,
        report: Report {
            kind: kernel.sent(),
            context: msg.context,
            flags,
            reports_success: true,
            len,
        },
    })
}

/// # Safety
/// As [`TxBuf::new`], for the memory of all elements that `list` names.
#[expect(unsafe_code, reason = "the promise becomes a value here")]
unsafe fn read_from(kernel: &Kernel, list: &[Ioc]) -> Result<TxBuf> {
    let mut iov = [Iov::new(&[]); IOV_LIMIT];
    let iov = iov.get_mut(..list.len()).ok_or(Errno::Inval)?;
    for (iov, ioc) in iov.iter_mut().zip(list) {
        let len = ioc.count.checked_mul(kernel.size()).ok_or(Errno::MsgSize)?;
        *iov = Iov::from_raw(ioc.addr, len);
    }
    // SAFETY: passed on from the caller.
    Ok(unsafe { TxBuf::new(iov) })
}

/// # Safety
/// As [`RxBuf::new`], for the memory of all elements that `list` names.
#[expect(unsafe_code, reason = "the promise becomes a value here")]
unsafe fn write_to(kernel: &Kernel, list: &[IocMut]) -> Result<RxBuf> {
    let mut iov = [IovMut::new(&mut []); IOV_LIMIT];
    let iov = iov.get_mut(..list.len()).ok_or(Errno::Inval)?;
    for (iov, ioc) in iov.iter_mut().zip(list) {
        let len = ioc.count.checked_mul(kernel.size()).ok_or(Errno::MsgSize)?;
        *iov = IovMut::from_raw(ioc.addr, len);
    }
    // SAFETY: passed on from the caller.
    Ok(unsafe { RxBuf::new(iov) })
}
