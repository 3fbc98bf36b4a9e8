//! Posting one-sided operations: reads, writes and atomics are the link's, with its peer in place of
//! ours. Memory, places and keys are passed on as they are; regions are registered with both links.

#![expect(unsafe_code, reason = "the raw face: a post is a promise about memory")]

use selvedge::atomic::{self, AtomicMsg, Attr, Datatype, Family, Ioc, RmaIoc};
use selvedge::rma::{RmaIov, WriteMsg};
use selvedge::{CompletionFlags, Context, Errno, FiAddr, Iov, Op, OpFlags, Result};
use selvedge_kit::atomic::query;
use selvedge_kit::{Report, one_sided_as_ops};

use crate::endpoint::Endpoint;
use crate::post::{IOV_LIMIT, TX_FLAGS};
use crate::state::{Op as Under, State};

/// Flags of what is injected: the endpoint's defaults decide when it is counted.
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
            Ok(smaller(near?, far?))
        }
    }
}

/// What both links carry.
pub(crate) fn smaller(near: Attr, far: Attr) -> Attr {
    Attr {
        count: near.count.min(far.count),
        ..near
    }
}

impl Endpoint {
    /// Posts a one-sided operation. What is injected is a post of the link's that has copied its bytes
    /// when the call ends.
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
                let (pieces, report) = injected(&op, flags)?;
                // SAFETY: `buf` is borrowed for the whole call.
                unsafe { self.access(&op, pieces, report) }
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
                let (pieces, report) = injected(&op, INJECT)?;
                // SAFETY: as above.
                unsafe { self.access(&op, pieces, report) }
            }
            _ => {
                let (pieces, report) = reported(op, flags)?;
                // SAFETY: passed on from the caller.
                unsafe { self.access(op, pieces, report) }
            }
        }
    }

    unsafe fn access(&self, op: &Op<'_>, pieces: usize, mut report: Report) -> Result {
        if !TX_FLAGS.contains(report.flags) {
            return Err(Errno::BadFlags);
        }
        if pieces > IOV_LIMIT {
            return Err(Errno::Inval);
        }
        let mut state = self.shell.lock()?;
        report.flags = state.ep.tx_flags(report.flags);
        if report.flags.contains(OpFlags::INJECT) && report.len > self.inject_size {
            return Err(Errno::MsgSize);
        }
        let peer = state.peer_at(op.peer())?;
        // SAFETY: passed on from the caller.
        unsafe { state.access(peer, report, op) }
    }
}

impl State {
    unsafe fn access(&mut self, peer: usize, report: Report, op: &Op<'_>) -> Result {
        self.check_room(peer, &report)?;
        self.greet(peer)?;
        let (link, at) = (self.peers[peer].link, self.peers[peer].at);
        let key = self.ops.vacant_key();
        // The earlier ones are over when a fence gets here.
        let flags = report.flags.difference(OpFlags::FENCE) | OpFlags::COMPLETION;
        let endpoint = self.links[link].endpoint();
        let op = on_link(*op, at, Context(key as u64));
        // SAFETY: passed on from the caller, who hears of the end when the link has told us.
        unsafe { op.post(endpoint, flags)? };
        self.ops.insert(Under::Access(peer, report));
        self.peers[peer].busy += 1;
        self.hot = link;
        Ok(())
    }
}

/// The same for a peer of a link.
fn on_link(mut op: Op<'_>, peer: FiAddr, context: Context) -> Op<'_> {
    match &mut op {
        Op::Read(msg) => (msg.src, msg.desc) = (peer, &[]),
        Op::Write(msg) => (msg.dest, msg.desc) = (peer, &[]),
        Op::Atomic(msg) => (msg.dest, msg.desc) = (peer, &[]),
        Op::FetchAtomic(msg, to) => (msg.dest, msg.desc, to.desc) = (peer, &[], &[]),
        Op::CompareAtomic(msg, with, to) => {
            (msg.dest, msg.desc) = (peer, &[]);
            (with.desc, to.desc) = (&[], &[]);
        }
        _ => {}
    }
    op.with_context(context)
}

/// How many pieces of local memory an operation names, and how it is told of.
fn reported(op: &Op<'_>, flags: OpFlags) -> Result<(usize, Report)> {
    let (what, pieces, len) = match op {
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
        Op::Atomic(msg) => change(Family::Base, msg, 0)?,
        Op::FetchAtomic(msg, to) => change(Family::Fetch, msg, to.iov.len())?,
        Op::CompareAtomic(msg, with, to) => {
            change(Family::Compare, msg, to.iov.len().max(with.iov.len()))?
        }
        _ => return Err(Errno::NoSys),
    };
    let report = Report {
        kind: what,
        context: op.context(),
        flags,
        reports_success: true,
        len,
    };
    Ok((pieces, report))
}

fn injected(op: &Op<'_>, flags: OpFlags) -> Result<(usize, Report)> {
    let (pieces, mut report) = reported(op, flags)?;
    report.reports_success = false;
    Ok((pieces, report))
}

/// What the completion of an atomic says that it was, the pieces of its longest list, of which `others`
/// are those beside the operands, and its bytes.
fn change(
    family: Family,
    msg: &AtomicMsg<'_>,
    others: usize,
) -> Result<(CompletionFlags, usize, usize)> {
    let kernel = query(family, msg.datatype, msg.op)?;
    let count = sum(msg.rma_iov.iter().map(|target| target.count));
    let len = count.checked_mul(kernel.size()).ok_or(Errno::MsgSize)?;
    let operands = match kernel.has_operand() {
        true => msg.iov.len(),
        false => 0,
    };
    Ok((kernel.sent(), operands.max(others), len))
}

fn sum(counts: impl Iterator<Item = usize>) -> usize {
    counts.fold(0, usize::saturating_add)
}
