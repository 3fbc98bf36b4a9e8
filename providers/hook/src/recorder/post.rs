//! `Post`: a recorded call, with its arguments for a trace.

use selvedge::atomic::AtomicMsg;
use selvedge::rma::{ReadMsg, RmaIov, WriteMsg};
use selvedge::{Address, Context, FiAddr, Iov, IovMut, Op, OpFlags, collective};
use selvedge_kit::telemetry::TimedOp;

use crate::hooks::Args;

/// A recorded call of an endpoint: an operation, or a call of its connection.
#[derive(Debug)]
pub(crate) struct Post<'a> {
    pub(crate) name: &'static str,
    /// The kind of the operation, by which it is timed; `None` for a call that posts none.
    pub(crate) op_kind: Option<TimedOp>,
    pub(crate) len: usize,
    pub(crate) peer: FiAddr,
    pub(crate) context: Context,
    pub(crate) flags: OpFlags,
    /// The tag, or the address of the first remote segment.
    pub(crate) tag: u64,
    /// The ignored bits of the tag, or the key of the first remote segment.
    pub(crate) key: u64,
    /// The object of the call, if it is not a peer: an address or a collective.
    pub(crate) object_name: String,
    args: PostArgs<'a>,
}

/// The arguments that a trace writes.
#[derive(Debug)]
enum PostArgs<'a> {
    Nothing,
    Context,
    Address(&'a Address),
    Op(&'a Op<'a>),
}

impl<'a> Post<'a> {
    /// A call without arguments.
    pub(crate) const fn new(name: &'static str) -> Self {
        Self {
            name,
            op_kind: None,
            len: 0,
            peer: FiAddr::UNSPEC,
            context: Context(0),
            flags: OpFlags::empty(),
            tag: 0,
            key: 0,
            object_name: String::new(),
            args: PostArgs::Nothing,
        }
    }

    /// The cancellation of an operation.
    pub(crate) fn cancel(context: Context) -> Self {
        Self {
            context,
            args: PostArgs::Context,
            ..Self::new("cancel")
        }
    }

    /// A connection request.
    pub(crate) fn connect(addr: &'a Address, data: &[u8]) -> Self {
        Self {
            len: data.len(),
            object_name: addr.to_string(),
            args: PostArgs::Address(addr),
            ..Self::new("connect")
        }
    }

    /// An operation.
    pub(crate) fn from_op(op: &'a Op<'a>, flags: OpFlags) -> Self {
        let (name, op_kind, len) = match op {
            Op::Send(msg) => ("sendmsg", TimedOp::Send, readable_bytes(msg.iov)),
            Op::Recv(msg) => ("recvmsg", TimedOp::Receive, writable_bytes(msg.iov)),
            Op::Inject { buf, .. } => ("inject", TimedOp::Inject, buf.len()),
            Op::TaggedSend(msg) => ("tsendmsg", TimedOp::TaggedSend, readable_bytes(msg.iov)),
            Op::TaggedRecv(msg) => ("trecvmsg", TimedOp::TaggedReceive, writable_bytes(msg.iov)),
            Op::TaggedInject { buf, .. } => ("tinject", TimedOp::Inject, buf.len()),
            Op::Read(msg) => ("readmsg", TimedOp::Read, writable_bytes(msg.iov)),
            Op::Write(msg) => ("writemsg", TimedOp::Write, readable_bytes(msg.iov)),
            Op::InjectWrite { buf, .. } => ("inject_write", TimedOp::Inject, buf.len()),
            Op::Atomic(msg) => ("atomicmsg", TimedOp::Atomic, changed_bytes(msg)),
            Op::FetchAtomic(msg, _) => ("fetch_atomicmsg", TimedOp::Atomic, changed_bytes(msg)),
            Op::CompareAtomic(msg, ..) => {
                ("compare_atomicmsg", TimedOp::Atomic, changed_bytes(msg))
            }
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
            Op::Read(msg) => first_segment(msg.rma_iov),
            Op::Write(msg) => first_segment(msg.rma_iov),
            Op::InjectWrite { addr, key, .. } => (*addr, *key),
            _ => op.tag().map_or((0, 0), |tag| (tag.tag, tag.ignore)),
        };
        let object_name = match op {
            Op::Collective(msg) => format!("{:?}", msg.coll),
            _ => String::new(),
        };
        Self {
            name,
            op_kind: Some(op_kind),
            len,
            peer: op.peer(),
            context: op.context(),
            flags,
            tag,
            key,
            object_name,
            args: PostArgs::Op(op),
        }
    }

    /// Writes the arguments for a trace.
    pub(super) fn write_args(&self, args: &mut Args) {
        match self.args {
            PostArgs::Nothing => {}
            PostArgs::Context => {
                args.num("context", self.context.0);
            }
            PostArgs::Address(addr) => {
                args.text("addr", addr).num("len", self.len as u64);
            }
            PostArgs::Op(op) => self.write_op_args(op, args),
        }
    }

    fn write_op_args(&self, op: &Op<'_>, args: &mut Args) {
        match op {
            Op::Collective(msg) => {
                args.text("coll", &self.object_name)
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
        if self.op_kind != Some(TimedOp::Inject) {
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

fn readable_bytes(iov: &[Iov]) -> usize {
    iov.iter().fold(0, |sum, it| it.len.saturating_add(sum))
}

fn writable_bytes(iov: &[IovMut]) -> usize {
    iov.iter().fold(0, |sum, it| it.len.saturating_add(sum))
}

fn elements(msg: &AtomicMsg<'_>) -> usize {
    let counts = msg.rma_iov.iter().map(|it| it.count);
    counts.fold(0, usize::saturating_add)
}

fn changed_bytes(msg: &AtomicMsg<'_>) -> usize {
    elements(msg).saturating_mul(msg.datatype.size())
}

/// Address and key of the first remote segment.
fn first_segment(rma_iov: &[RmaIov]) -> (u64, u64) {
    rma_iov
        .first()
        .map_or((0, 0), |segment| (segment.addr, segment.key))
}
