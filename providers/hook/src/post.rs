//! Posts as hooks see them: what a trace says of them, and what is kept of them until they complete.

use std::sync::Arc;

use selvedge::atomic::AtomicMsg;
use selvedge::rma::{ReadMsg, RmaIov, WriteMsg};
use selvedge::{Address, Context, FiAddr, Iov, IovMut, Op, OpFlags, Result, collective};
use selvedge_kit::telemetry::TimedOp;

use crate::call::Args;
use crate::provider::At;
use crate::watch::Watch;

/// A call that is kept of an endpoint: an operation, or a call of its connection.
#[derive(Debug)]
pub(crate) struct Post<'a> {
    pub(crate) name: &'static str,
    /// What it is timed as, if it completes.
    pub(crate) what: Option<TimedOp>,
    pub(crate) len: usize,
    pub(crate) peer: FiAddr,
    pub(crate) context: Context,
    pub(crate) flags: OpFlags,
    /// The tag, or the address of the first remote place.
    pub(crate) tag: u64,
    /// The bits of a tag that are ignored, or the key of the first remote place.
    pub(crate) key: u64,
    /// What it is about where that is no peer.
    pub(crate) about: String,
    given: Given<'a>,
}

/// What a trace tells of what was given.
#[derive(Debug)]
enum Given<'a> {
    Nothing,
    Context,
    Address(&'a Address),
    Op(&'a Op<'a>),
}

impl<'a> Post<'a> {
    /// A call that says nothing but its name.
    pub(crate) const fn new(name: &'static str) -> Self {
        Self {
            name,
            what: None,
            len: 0,
            peer: FiAddr::UNSPEC,
            context: Context(0),
            flags: OpFlags::empty(),
            tag: 0,
            key: 0,
            about: String::new(),
            given: Given::Nothing,
        }
    }

    /// An operation that is taken back.
    pub(crate) fn cancel(context: Context) -> Self {
        Self {
            context,
            given: Given::Context,
            ..Self::new("cancel")
        }
    }

    /// A connection that is asked for.
    pub(crate) fn connect(addr: &'a Address, data: &[u8]) -> Self {
        Self {
            len: data.len(),
            about: addr.to_string(),
            given: Given::Address(addr),
            ..Self::new("connect")
        }
    }

    /// An operation.
    pub(crate) fn of(op: &'a Op<'a>, flags: OpFlags) -> Self {
        let (name, what, len) = match op {
            Op::Send(msg) => ("sendmsg", TimedOp::Send, read(msg.iov)),
            Op::Recv(msg) => ("recvmsg", TimedOp::Receive, written(msg.iov)),
            Op::Inject { buf, .. } => ("inject", TimedOp::Inject, buf.len()),
            Op::TaggedSend(msg) => ("tsendmsg", TimedOp::TaggedSend, read(msg.iov)),
            Op::TaggedRecv(msg) => ("trecvmsg", TimedOp::TaggedReceive, written(msg.iov)),
            Op::TaggedInject { buf, .. } => ("tinject", TimedOp::Inject, buf.len()),
            Op::Read(msg) => ("readmsg", TimedOp::Read, written(msg.iov)),
            Op::Write(msg) => ("writemsg", TimedOp::Write, read(msg.iov)),
            Op::InjectWrite { buf, .. } => ("inject_write", TimedOp::Inject, buf.len()),
            Op::Atomic(msg) => ("atomicmsg", TimedOp::Atomic, changed(msg)),
            Op::FetchAtomic(msg, _) => ("fetch_atomicmsg", TimedOp::Atomic, changed(msg)),
            Op::CompareAtomic(msg, ..) => ("compare_atomicmsg", TimedOp::Atomic, changed(msg)),
            Op::InjectAtomic { buf, .. } => ("inject_atomic", TimedOp::Inject, buf.len()),
            Op::Collective(msg) => {
                let len = match msg.coll {
                    collective::Op::Barrier => 0,
                    _ => msg.count.saturating_mul(msg.datatype.size()),
                };
                ("collective", TimedOp::Collective, len)
            }
        };
        let (tag, key) = match op {
            Op::Read(msg) => first(msg.rma_iov),
            Op::Write(msg) => first(msg.rma_iov),
            Op::InjectWrite { addr, key, .. } => (*addr, *key),
            _ => op.tag().map_or((0, 0), |tag| (tag.tag, tag.ignore)),
        };
        let about = match op {
            Op::Collective(msg) => format!("{:?}", msg.coll),
            _ => String::new(),
        };
        Self {
            name,
            what: Some(what),
            len,
            peer: op.peer(),
            context: op.context(),
            flags,
            tag,
            key,
            about,
            given: Given::Op(op),
        }
    }

    /// Has it pass the hooks.
    pub(crate) fn pass(
        &self,
        at: &At,
        watch: Option<&Arc<Watch>>,
        run: impl FnOnce() -> Result,
    ) -> Result {
        let call = || at.done(self.name, &|args| self.tell(args), run);
        match watch {
            None => call(),
            Some(watch) => watch.around(self, call),
        }
    }

    fn tell(&self, args: &mut Args) {
        match self.given {
            Given::Nothing => {}
            Given::Context => {
                args.num("context", self.context.0);
            }
            Given::Address(addr) => {
                args.text("addr", addr).num("len", self.len as u64);
            }
            Given::Op(op) => self.tell_op(op, args),
        }
    }

    fn tell_op(&self, op: &Op<'_>, args: &mut Args) {
        match op {
            Op::Collective(msg) => {
                args.text("coll", &self.about)
                    .num("count", msg.count as u64)
                    .num("group", msg.group.0)
                    .num("context", msg.context.0);
                return;
            }
            Op::Atomic(msg) | Op::FetchAtomic(msg, _) | Op::CompareAtomic(msg, ..) => {
                args.num("count", elements(msg) as u64)
                    .num("peer", msg.dest.0)
                    .num("context", msg.context.0)
                    .text("flags", &self.flags)
                    .text("op", &format_args!("{:?}", msg.op))
                    .text("datatype", &format_args!("{:?}", msg.datatype));
                return;
            }
            _ => args.num("len", self.len as u64).num("peer", self.peer.0),
        };
        if self.what != Some(TimedOp::Inject) {
            args.num("context", self.context.0)
                .text("flags", &self.flags);
        }
        match op {
            Op::TaggedSend(_) | Op::TaggedInject { .. } => {
                args.num("tag", self.tag);
            }
            Op::TaggedRecv(_) => {
                args.num("tag", self.tag).num("ignore", self.key);
            }
            Op::Read(ReadMsg { rma_iov: [_], .. })
            | Op::Write(WriteMsg { rma_iov: [_], .. })
            | Op::InjectWrite { .. } => {
                args.num("addr", self.tag).num("key", self.key);
            }
            _ => {}
        }
    }
}

fn read(iov: &[Iov]) -> usize {
    iov.iter().fold(0, |sum, it| it.len.saturating_add(sum))
}

fn written(iov: &[IovMut]) -> usize {
    iov.iter().fold(0, |sum, it| it.len.saturating_add(sum))
}

fn elements(msg: &AtomicMsg<'_>) -> usize {
    let counts = msg.rma_iov.iter().map(|it| it.count);
    counts.fold(0, usize::saturating_add)
}

fn changed(msg: &AtomicMsg<'_>) -> usize {
    elements(msg).saturating_mul(msg.datatype.size())
}

/// Address and key of the first place.
fn first(places: &[RmaIov]) -> (u64, u64) {
    places
        .first()
        .map_or((0, 0), |place| (place.addr, place.key))
}
