//! Posting one-sided operations: reads, writes and atomics are the link's, with its peer in place of
//! ours. Memory, places and keys are passed on as they are; regions are registered with both links.

#![expect(unsafe_code, reason = "the raw face: a post is a promise about memory")]

use selvedge::atomic::{AtomicMsg, Attr, Datatype, Family, Ioc, IocMut, Op, RmaIoc, Target};
use selvedge::rma::{ReadMsg, RmaIov, WriteMsg};
use selvedge::{Atomic, CompletionFlags, Context, Desc, Errno, FiAddr, Iov, OpFlags, Result, Rma};
use selvedge_kit::Report;
use selvedge_kit::atomic::{Kernel, query};

use crate::endpoint::Endpoint;
use crate::post::{IOV_LIMIT, TX_FLAGS};
use crate::state::{Op as Under, State};

const WRITE: CompletionFlags = CompletionFlags::RMA.union(CompletionFlags::WRITE);
const READ: CompletionFlags = CompletionFlags::RMA.union(CompletionFlags::READ);

/// Flags of what is injected: the endpoint's defaults decide when it is counted.
const INJECT: OpFlags = OpFlags::INJECT.union(OpFlags::DEFAULT);

/// A post on the link of its peer: the link's endpoint, the peer's index and our context there, and
/// the resolved flags.
type Post<'a> = &'a dyn Fn(&dyn selvedge::Endpoint, FiAddr, Context, OpFlags) -> Result;

impl Rma for Endpoint {
    unsafe fn readmsg(&self, msg: &ReadMsg<'_>, flags: OpFlags) -> Result {
        let len = sum(msg.iov.iter().map(|piece| piece.len));
        let report = report(READ, msg.context, flags, len);
        self.access(
            msg.src,
            msg.iov.len(),
            report,
            &|link, src, context, flags| {
                let msg = ReadMsg {
                    src,
                    context,
                    desc: &[],
                    ..*msg
                };
                // SAFETY: passed on from the caller, who hears of the end when the link has told us.
                unsafe { link.readmsg(&msg, flags) }
            },
        )
    }

    unsafe fn writemsg(&self, msg: &WriteMsg<'_>, flags: OpFlags) -> Result {
        let len = sum(msg.iov.iter().map(|piece| piece.len));
        let report = report(WRITE, msg.context, flags, len);
        self.access(
            msg.dest,
            msg.iov.len(),
            report,
            &|link, dest, context, flags| {
                let msg = WriteMsg {
                    dest,
                    context,
                    desc: &[],
                    ..*msg
                };
                // SAFETY: as above.
                unsafe { link.writemsg(&msg, flags) }
            },
        )
    }

    fn inject_write(
        &self,
        buf: &[u8],
        dest: FiAddr,
        addr: u64,
        key: u64,
        data: Option<u64>,
    ) -> Result {
        let flags = match data {
            Some(_) => INJECT | OpFlags::REMOTE_CQ_DATA,
            None => INJECT,
        };
        let len = buf.len();
        self.access(
            dest,
            1,
            injected(WRITE, flags, len),
            &|link, dest, context, flags| {
                let msg = WriteMsg {
                    iov: &[Iov::new(buf)],
                    desc: &[],
                    dest,
                    rma_iov: &[RmaIov { addr, len, key }],
                    context,
                    data: data.unwrap_or(0),
                };
                // SAFETY: `buf` is borrowed for the whole call, and with `INJECT` the link has copied it
                // when the call ends.
                unsafe { link.writemsg(&msg, flags) }
            },
        )
    }
}

impl Atomic for Endpoint {
    unsafe fn atomicmsg(&self, msg: &AtomicMsg<'_>, flags: OpFlags) -> Result {
        let (count, report) = change(Family::Base, msg, flags)?;
        self.access(msg.dest, count, report, &|link, dest, context, flags| {
            let msg = at(msg, dest, context);
            // SAFETY: passed on from the caller, who hears of the end when the link has told us.
            unsafe { link.atomicmsg(&msg, flags) }
        })
    }

    unsafe fn fetch_atomicmsg(
        &self,
        msg: &AtomicMsg<'_>,
        result: &[IocMut],
        _result_desc: &[Desc],
        flags: OpFlags,
    ) -> Result {
        let (count, report) = change(Family::Fetch, msg, flags)?;
        let count = count.max(result.len());
        self.access(msg.dest, count, report, &|link, dest, context, flags| {
            let msg = at(msg, dest, context);
            // SAFETY: as above.
            unsafe { link.fetch_atomicmsg(&msg, result, &[], flags) }
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
        let (count, report) = change(Family::Compare, msg, flags)?;
        let count = count.max(result.len()).max(compare.len());
        self.access(msg.dest, count, report, &|link, dest, context, flags| {
            let msg = at(msg, dest, context);
            // SAFETY: as above.
            unsafe { link.compare_atomicmsg(&msg, compare, &[], result, &[], flags) }
        })
    }

    fn inject_atomic(&self, buf: &[u8], target: &Target) -> Result {
        let kernel = query(Family::Base, target.datatype, target.op)?;
        if !buf.len().is_multiple_of(kernel.size()) {
            return Err(Errno::Inval);
        }
        let count = buf.len() / kernel.size();
        let rma_iov = [RmaIoc {
            addr: target.addr,
            count,
            key: target.key,
        }];
        let report = injected(kernel.sent(), INJECT, buf.len());
        self.access(target.dest, 1, report, &|link, dest, context, flags| {
            let msg = AtomicMsg {
                iov: &[Ioc::from_raw(buf.as_ptr().cast(), count)],
                desc: &[],
                dest,
                rma_iov: &rma_iov,
                datatype: target.datatype,
                op: target.op,
                context,
                data: 0,
            };
            // SAFETY: as for `inject_write`.
            unsafe { link.atomicmsg(&msg, flags) }
        })
    }

    fn valid(&self, family: Family, datatype: Datatype, op: Op) -> Result<Attr> {
        let state = self.shell.lock()?;
        let [near, far] = state.links.each_ref().map(|link| {
            let endpoint = link.endpoint();
            endpoint.valid(family, datatype, op)
        });
        Ok(smaller(near?, far?))
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
    fn access(&self, peer: FiAddr, pieces: usize, mut report: Report, post: Post<'_>) -> Result {
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
        let peer = state.peer_at(peer)?;
        state.access(peer, report, post)
    }
}

impl State {
    fn access(&mut self, peer: usize, report: Report, post: Post<'_>) -> Result {
        self.check_room(peer, &report)?;
        self.greet(peer)?;
        let (link, at) = (self.peers[peer].link, self.peers[peer].at);
        let key = self.ops.vacant_key();
        // The earlier ones are over when a fence gets here.
        let flags = report.flags.difference(OpFlags::FENCE) | OpFlags::COMPLETION;
        let endpoint = self.links[link].endpoint();
        post(endpoint, at, Context(key as u64), flags)?;
        self.ops.insert(Under::Access(peer, report));
        self.peers[peer].busy += 1;
        self.hot = link;
        Ok(())
    }
}

fn report(what: CompletionFlags, context: Context, flags: OpFlags, len: usize) -> Report {
    Report {
        what,
        context,
        flags,
        completes: true,
        len,
    }
}

fn injected(what: CompletionFlags, flags: OpFlags, len: usize) -> Report {
    Report {
        completes: false,
        ..report(what, Context::default(), flags, len)
    }
}

/// How an atomic is told of, and how many pieces its operands have.
fn change(family: Family, msg: &AtomicMsg<'_>, flags: OpFlags) -> Result<(usize, Report)> {
    let kernel: Kernel = query(family, msg.datatype, msg.op)?;
    let count = sum(msg.rma_iov.iter().map(|target| target.count));
    let len = count.checked_mul(kernel.size()).ok_or(Errno::MsgSize)?;
    let pieces = if kernel.has_operand() {
        msg.iov.len()
    } else {
        0
    };
    Ok((pieces, report(kernel.sent(), msg.context, flags, len)))
}

/// The same for a peer of a link.
fn at<'a>(msg: &AtomicMsg<'a>, dest: FiAddr, context: Context) -> AtomicMsg<'a> {
    AtomicMsg {
        dest,
        context,
        desc: &[],
        ..*msg
    }
}

fn sum(counts: impl Iterator<Item = usize>) -> usize {
    counts.fold(0, usize::saturating_add)
}
