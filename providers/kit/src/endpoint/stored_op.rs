//! An operation that outlives the call that posts it: an [`Op`] that owns its lists.

use selvedge::atomic::{self, AtomicMsg, Datatype, Ioc, IocMut, RmaIoc, Target};
use selvedge::collective::CollectiveMsg;
use selvedge::op::{Compared, Fetched};
use selvedge::rma::{ReadMsg, RmaIov, WriteMsg};
use selvedge::{Context, Desc, FiAddr, Iov, IovMut, Op, TagMatch, msg, tagged};

/// An [`Op`] whose lists and injected bytes are copied. The memory that the lists refer to is not
/// copied: the promise of [`Op::post`] has to hold until [`Self::op`] has been posted and has
/// completed.
#[derive(Debug)]
pub struct StoredOp {
    kind: Kind,
    peer: FiAddr,
    context: Context,
    data: u64,
    /// The descriptors: one for each segment, or none.
    desc: Vec<Desc>,
}

#[derive(Debug)]
enum Kind {
    Send(Vec<Iov>),
    Recv(Vec<IovMut>),
    Inject(Vec<u8>, Option<u64>),
    TaggedSend(Vec<Iov>, u64),
    TaggedRecv(Vec<IovMut>, TagMatch),
    TaggedInject(Vec<u8>, u64, Option<u64>),
    Read(Vec<IovMut>, Vec<RmaIov>),
    Write(Vec<Iov>, Vec<RmaIov>),
    InjectWrite {
        bytes: Vec<u8>,
        addr: u64,
        key: u64,
        data: Option<u64>,
    },
    Atomic(AtomicArgs),
    FetchAtomic(AtomicArgs, FetchBuffers),
    CompareAtomic(AtomicArgs, Vec<Ioc>, Vec<Desc>, FetchBuffers),
    InjectAtomic(Vec<u8>, Target),
    Collective(CollectiveMsg),
}

#[derive(Debug)]
struct AtomicArgs {
    iov: Vec<Ioc>,
    rma_iov: Vec<RmaIoc>,
    datatype: Datatype,
    op: atomic::Op,
}

#[derive(Debug)]
struct FetchBuffers {
    iov: Vec<IocMut>,
    desc: Vec<Desc>,
}

impl StoredOp {
    /// Copies the lists of an operation.
    pub fn new(op: &Op<'_>) -> Self {
        let (kind, data, desc) = match *op {
            Op::Send(msg) => (Kind::Send(msg.iov.into()), msg.data, msg.desc),
            Op::Recv(msg) => (Kind::Recv(msg.iov.into()), 0, msg.desc),
            Op::Inject { buf, data, .. } => (Kind::Inject(buf.into(), data), 0, &[][..]),
            Op::TaggedSend(msg) => (
                Kind::TaggedSend(msg.iov.into(), msg.tag),
                msg.data,
                msg.desc,
            ),
            Op::TaggedRecv(msg) => (Kind::TaggedRecv(msg.iov.into(), msg.tag), 0, msg.desc),
            Op::TaggedInject { buf, tag, data, .. } => {
                (Kind::TaggedInject(buf.into(), tag, data), 0, &[][..])
            }
            Op::Read(msg) => (Kind::Read(msg.iov.into(), msg.rma_iov.into()), 0, msg.desc),
            Op::Write(msg) => {
                let kind = Kind::Write(msg.iov.into(), msg.rma_iov.into());
                (kind, msg.data, msg.desc)
            }
            Op::InjectWrite {
                buf,
                addr,
                key,
                data,
                ..
            } => {
                let bytes = buf.into();
                let kind = Kind::InjectWrite {
                    bytes,
                    addr,
                    key,
                    data,
                };
                (kind, 0, &[][..])
            }
            Op::Atomic(msg) => (Kind::Atomic(msg.into()), msg.data, msg.desc),
            Op::FetchAtomic(msg, fetched) => (
                Kind::FetchAtomic(msg.into(), fetched.into()),
                msg.data,
                msg.desc,
            ),
            Op::CompareAtomic(msg, compared, fetched) => {
                let (compare, desc) = (compared.iov.into(), compared.desc.into());
                let kind = Kind::CompareAtomic(msg.into(), compare, desc, fetched.into());
                (kind, msg.data, msg.desc)
            }
            Op::InjectAtomic { buf, target } => {
                (Kind::InjectAtomic(buf.into(), target), 0, &[][..])
            }
            Op::Collective(msg) => (Kind::Collective(msg), 0, &[][..]),
        };
        Self {
            kind,
            peer: op.peer(),
            context: op.context(),
            data,
            desc: desc.into(),
        }
    }

    /// The operation, with the copied lists.
    pub fn op(&self) -> Op<'_> {
        let (desc, context, data, peer) = (&*self.desc, self.context, self.data, self.peer);
        let (src, dest) = (peer, peer);
        match &self.kind {
            Kind::Send(iov) => Op::Send(msg::SendMsg {
                iov,
                desc,
                dest,
                context,
                data,
            }),
            Kind::Recv(iov) => Op::Recv(msg::RecvMsg {
                iov,
                desc,
                src,
                context,
            }),
            &Kind::Inject(ref buf, data) => Op::Inject { buf, dest, data },
            &Kind::TaggedSend(ref iov, tag) => Op::TaggedSend(tagged::SendMsg {
                iov,
                desc,
                dest,
                tag,
                context,
                data,
            }),
            &Kind::TaggedRecv(ref iov, tag) => Op::TaggedRecv(tagged::RecvMsg {
                iov,
                desc,
                src,
                tag,
                context,
            }),
            &Kind::TaggedInject(ref buf, tag, data) => Op::TaggedInject {
                buf,
                dest,
                tag,
                data,
            },
            Kind::Read(iov, rma_iov) => Op::Read(ReadMsg {
                iov,
                desc,
                src,
                rma_iov,
                context,
            }),
            Kind::Write(iov, rma_iov) => Op::Write(WriteMsg {
                iov,
                desc,
                dest,
                rma_iov,
                context,
                data,
            }),
            &Kind::InjectWrite {
                bytes: ref buf,
                addr,
                key,
                data,
            } => Op::InjectWrite {
                buf,
                dest,
                addr,
                key,
                data,
            },
            Kind::Atomic(args) => Op::Atomic(self.atomic(args)),
            Kind::FetchAtomic(args, buffers) => {
                Op::FetchAtomic(self.atomic(args), buffers.fetched())
            }
            Kind::CompareAtomic(args, iov, desc, buffers) => {
                let compared = Compared { iov, desc };
                Op::CompareAtomic(self.atomic(args), compared, buffers.fetched())
            }
            &Kind::InjectAtomic(ref buf, target) => Op::InjectAtomic { buf, target },
            Kind::Collective(msg) => Op::Collective(*msg),
        }
    }

    fn atomic<'a>(&'a self, args: &'a AtomicArgs) -> AtomicMsg<'a> {
        AtomicMsg {
            iov: &args.iov,
            desc: &self.desc,
            dest: self.peer,
            rma_iov: &args.rma_iov,
            datatype: args.datatype,
            op: args.op,
            context: self.context,
            data: self.data,
        }
    }
}

impl From<AtomicMsg<'_>> for AtomicArgs {
    fn from(msg: AtomicMsg<'_>) -> Self {
        Self {
            iov: msg.iov.into(),
            rma_iov: msg.rma_iov.into(),
            datatype: msg.datatype,
            op: msg.op,
        }
    }
}

impl From<Fetched<'_>> for FetchBuffers {
    fn from(fetched: Fetched<'_>) -> Self {
        Self {
            iov: fetched.iov.into(),
            desc: fetched.desc.into(),
        }
    }
}

impl FetchBuffers {
    fn fetched(&self) -> Fetched<'_> {
        let (iov, desc) = (&*self.iov, &*self.desc);
        Fetched { iov, desc }
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use selvedge::collective;

    use super::*;

    const PEER: FiAddr = FiAddr(3);

    /// One stored operation of each kind, and the text of its original, whose lists are dropped.
    fn one_of_each_kind() -> Vec<(StoredOp, String)> {
        let (context, data, addr, key) = (Context(1), 4, 6, 7);
        let iov = [Iov::from_raw(ptr::null(), 2), Iov::from_raw(ptr::null(), 3)];
        let iov_mut = [IovMut::from_raw(ptr::null_mut(), 2)];
        let (descs, bytes) = ([Desc(8), Desc(9)], [10, 11]);
        let (desc, buf) = (&descs[..], &bytes[..]);
        let rma_iov = [RmaIov { addr, len: 2, key }];
        let atomic = AtomicMsg {
            iov: &[Ioc::from_raw(ptr::null(), 1)],
            desc,
            dest: PEER,
            rma_iov: &[RmaIoc {
                addr,
                count: 1,
                key,
            }],
            datatype: Datatype::Uint16,
            op: atomic::Op::Sum,
            context,
            data,
        };
        let fetched = Fetched {
            iov: &[IocMut::from_raw(ptr::null_mut(), 12)],
            desc: &[Desc(13)],
        };
        let compared = Compared {
            iov: &[Ioc::from_raw(ptr::null(), 14)],
            desc: &[Desc(15)],
        };
        let target = Target {
            dest: PEER,
            addr,
            key,
            datatype: Datatype::Uint16,
            op: atomic::Op::Max,
        };
        let (src, dest, iov) = (PEER, PEER, &iov[..]);
        let tag = TagMatch { tag: 5, ignore: 1 };
        let barrier = collective::Op::Barrier;
        let ops = [
            Op::Send(msg::SendMsg {
                iov,
                desc,
                dest,
                context,
                data,
            }),
            Op::Recv(msg::RecvMsg {
                iov: &iov_mut,
                desc,
                src,
                context,
            }),
            Op::Inject {
                buf,
                dest,
                data: Some(data),
            },
            Op::TaggedSend(tagged::SendMsg {
                iov,
                desc,
                dest,
                tag: 5,
                context,
                data,
            }),
            Op::TaggedRecv(tagged::RecvMsg {
                iov: &iov_mut,
                desc,
                src,
                tag,
                context,
            }),
            Op::TaggedInject {
                buf,
                dest,
                tag: 5,
                data: None,
            },
            Op::Read(ReadMsg {
                iov: &iov_mut,
                desc,
                src,
                rma_iov: &rma_iov,
                context,
            }),
            Op::Write(WriteMsg {
                iov,
                desc,
                dest,
                rma_iov: &rma_iov,
                context,
                data,
            }),
            Op::InjectWrite {
                buf,
                dest,
                addr,
                key,
                data: Some(data),
            },
            Op::Atomic(atomic),
            Op::FetchAtomic(atomic, fetched),
            Op::CompareAtomic(atomic, compared, fetched),
            Op::InjectAtomic { buf, target },
            Op::Collective(CollectiveMsg::new(barrier, PEER, Datatype::Int8, context)),
        ];
        ops.iter()
            .map(|op| (StoredOp::new(op), format!("{op:?}")))
            .collect()
    }

    #[test]
    fn a_stored_operation_equals_its_original() {
        for (stored, original) in one_of_each_kind() {
            assert_eq!(format!("{:?}", stored.op()), original);
        }
    }
}
