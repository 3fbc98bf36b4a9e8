//! Posts of one-sided operations. Reads, writes and atomics are operations of the link, with the
//! peer's address index on the link. Buffers, addresses and keys are passed on unchanged; regions
//! are registered with both links.

#![expect(unsafe_code, reason = "the raw API: a post is a promise about memory")]

use selvedge::atomic::{self, AtomicMsg, Attr, Datatype, Family, Ioc, RmaIoc};
use selvedge::rma::{RmaIov, WriteMsg};
use selvedge::{CompletionFlags, Context, Errno, FiAddr, Iov, Op, OpFlags, Result};
use selvedge_kit::atomic::query;
use selvedge_kit::{Report, one_sided_as_ops};

use crate::endpoint::Endpoint;
use crate::limits::TX_FLAGS;
use crate::state::{Op as LinkOp, State};

/// Flags of injected operations: the endpoint's defaults decide when they are counted.
const INJECT: OpFlags = OpFlags::INJECT.union(OpFlags::DEFAULT);

one_sided_as_ops!(impl Rma for Endpoint);

one_sided_as_ops! {
    impl Atomic for Endpoint {
        fn valid(&self, family: Family, datatype: Datatype, op: atomic::Op) -> Result<Attr> {
            let state = self.shell.lock()?;
            let [near, far] = state.links.each_ref().map(|link| {
                let endpoint = link.endpoint();
                endpoint.valid(family, datatype, op)
            });
            Ok(common_attr(near?, far?))
        }
    }
}

/// The attributes that both links support.
pub(crate) fn common_attr(near: Attr, far: Attr) -> Attr {
    Attr {
        count: near.count.min(far.count),
        ..near
    }
}

impl Endpoint {
    /// Posts a one-sided operation. An injected operation is a post of the link that copies its
    /// bytes before the call ends.
    ///
    /// # Safety
    /// As [`Op::post`].
    unsafe fn post(&self, op: &Op<'_>, flags: OpFlags) -> Result {
        match *op {
            Op::InjectWrite {
                buf,
                dest,
                addr,
                key,
                data,
            } => {
                let len = buf.len();
                let flags = match data {
                    Some(_) => INJECT | OpFlags::REMOTE_CQ_DATA,
                    None => INJECT,
                };
                let op = Op::Write(WriteMsg {
                    iov: &[Iov::new(buf)],
                    desc: &[],
                    dest,
                    rma_iov: &[RmaIov { addr, len, key }],
                    context: Context::default(),
                    data: data.unwrap_or(0),
                });
                let (segments, report) = inject_report(&op, flags)?;
                // SAFETY: `buf` is borrowed for the whole call.
                unsafe { self.post_one_sided(&op, segments, report) }
            }
            Op::InjectAtomic { buf, target } => {
                let kernel = query(Family::Base, target.datatype, target.op)?;
                if !buf.len().is_multiple_of(kernel.size()) {
                    return Err(Errno::Inval);
                }
                let count = buf.len() / kernel.size();
                let op = Op::Atomic(AtomicMsg {
                    iov: &[Ioc::from_raw(buf.as_ptr().cast(), count)],
                    desc: &[],
                    dest: target.dest,
                    rma_iov: &[RmaIoc {
                        addr: target.addr,
                        count,
                        key: target.key,
                    }],
                    datatype: target.datatype,
                    op: target.op,
                    context: Context::default(),
                    data: 0,
                });
                let (segments, report) = inject_report(&op, INJECT)?;
                // SAFETY: as above.
                unsafe { self.post_one_sided(&op, segments, report) }
            }
            _ => {
                let (segments, report) = report_of(op, flags)?;
                // SAFETY: passed on from the caller.
                unsafe { self.post_one_sided(op, segments, report) }
            }
        }
    }

    unsafe fn post_one_sided(&self, op: &Op<'_>, segments: usize, mut report: Report) -> Result {
        if !TX_FLAGS.contains(report.flags) {
            return Err(Errno::BadFlags);
        }
        if segments > self.iov_limit {
            return Err(Errno::Inval);
        }
        let mut state = self.shell.lock()?;
        report.flags = state.ep.tx_flags(report.flags);
        if report.flags.contains(OpFlags::INJECT) && report.len > self.inject_size {
            return Err(Errno::MsgSize);
        }
        let peer = state.peer_at(op.peer())?;
        // SAFETY: passed on from the caller.
        unsafe { state.post_one_sided(peer, report, op) }
    }
}

impl State {
    unsafe fn post_one_sided(&mut self, peer: usize, report: Report, op: &Op<'_>) -> Result {
        self.check_room(peer, &report)?;
        if let Some(errno) = self.peers[peer].failure.take() {
            return Err(errno);
        }
        self.send_hello(peer)?;
        let (link, link_addr) = (self.peers[peer].link, self.peers[peer].link_addr);
        let key = self.ops.vacant_key();
        // `check_room` admits a fenced operation only after the earlier ones have completed.
        let flags = report.flags.difference(OpFlags::FENCE) | OpFlags::COMPLETION;
        let endpoint = self.links[link].endpoint();
        let op = with_link_peer(*op, link_addr, Context(key as u64));
        // SAFETY: passed on from the caller, which reads the completion only after the link's.
        unsafe { op.post(endpoint, flags)? };
        self.ops.insert(LinkOp::OneSided(peer, report));
        self.transmits[link] += 1;
        self.peers[peer].outstanding += 1;
        self.active_link = link;
        Ok(())
    }
}

/// The same operation with the peer's address index on the link.
fn with_link_peer(mut op: Op<'_>, peer: FiAddr, context: Context) -> Op<'_> {
    match &mut op {
        Op::Read(msg) => (msg.src, msg.desc) = (peer, &[]),
        Op::Write(msg) => (msg.dest, msg.desc) = (peer, &[]),
        Op::Atomic(msg) => (msg.dest, msg.desc) = (peer, &[]),
        Op::FetchAtomic(msg, fetched) => (msg.dest, msg.desc, fetched.desc) = (peer, &[], &[]),
        Op::CompareAtomic(msg, compared, fetched) => {
            (msg.dest, msg.desc) = (peer, &[]);
            (compared.desc, fetched.desc) = (&[], &[]);
        }
        _ => {}
    }
    op.with_context(context)
}

/// The number of local segments that an operation names, and its report.
fn report_of(op: &Op<'_>, flags: OpFlags) -> Result<(usize, Report)> {
    let (op_kind, segments, len) = match op {
        Op::Read(msg) => (
            op.kind(),
            msg.iov.len(),
            sum(msg.iov.iter().map(|it| it.len)),
        ),
        Op::Write(msg) => (
            op.kind(),
            msg.iov.len(),
            sum(msg.iov.iter().map(|it| it.len)),
        ),
        Op::Atomic(msg) => atomic_report(Family::Base, msg, 0)?,
        Op::FetchAtomic(msg, fetched) => atomic_report(Family::Fetch, msg, fetched.iov.len())?,
        Op::CompareAtomic(msg, compared, fetched) => atomic_report(
            Family::Compare,
            msg,
            fetched.iov.len().max(compared.iov.len()),
        )?,
        _ => return Err(Errno::NoSys),
    };
    let report = Report {
        kind: op_kind,
        context: op.context(),
        flags,
        reports_success: true,
        len,
    };
    Ok((segments, report))
}

fn inject_report(op: &Op<'_>, flags: OpFlags) -> Result<(usize, Report)> {
    let (segments, mut report) = report_of(op, flags)?;
    report.reports_success = false;
    Ok((segments, report))
}

/// The completion flags of an atomic, the segments of its longest list, and its bytes.
/// `other_segments` is the number of segments of the other lists.
fn atomic_report(
    family: Family,
    msg: &AtomicMsg<'_>,
    other_segments: usize,
) -> Result<(CompletionFlags, usize, usize)> {
    let kernel = query(family, msg.datatype, msg.op)?;
    let count = sum(msg.rma_iov.iter().map(|target| target.count));
    let len = count.checked_mul(kernel.size()).ok_or(Errno::MsgSize)?;
    let operands = if kernel.has_operand() {
        msg.iov.len()
    } else {
        0
    };
    Ok((kernel.sent(), operands.max(other_segments), len))
}

fn sum(counts: impl Iterator<Item = usize>) -> usize {
    counts.fold(0, usize::saturating_add)
}
