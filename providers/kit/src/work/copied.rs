//! A transfer that outlives its post: the same with lists of its own.

use selvedge::atomic::{AtomicMsg, Datatype, Ioc, IocMut, Op, RmaIoc};
use selvedge::rma::{ReadMsg, RmaIov, WriteMsg};
use selvedge::trigger::{Compared, Fetched, Transfer};
use selvedge::{Context, Desc, FiAddr, Iov, IovMut, TagMatch, msg, tagged};

/// A [`Transfer`] with lists of its own.
#[derive(Debug)]
pub(super) struct Copied {
    kind: Kind,
    peer: FiAddr,
    context: Context,
    data: u64,
    /// As many as pieces, or none.
    desc: Vec<Desc>,
}

#[derive(Debug)]
enum Kind {
    Send(Vec<Iov>),
    Recv(Vec<IovMut>),
    TaggedSend(Vec<Iov>, u64),
    TaggedRecv(Vec<IovMut>, TagMatch),
    Read(Vec<IovMut>, Vec<RmaIov>),
    Write(Vec<Iov>, Vec<RmaIov>),
    Atomic(Elements),
    FetchAtomic(Elements, Earlier),
    CompareAtomic(Elements, Vec<Ioc>, Vec<Desc>, Earlier),
}

#[derive(Debug)]
struct Elements {
    iov: Vec<Ioc>,
    rma_iov: Vec<RmaIoc>,
    datatype: Datatype,
    op: Op,
}

#[derive(Debug)]
struct Earlier {
    iov: Vec<IocMut>,
    desc: Vec<Desc>,
}

impl Copied {
    pub(super) fn new(transfer: &Transfer<'_>) -> Self {
        let (kind, peer, data, desc) = match *transfer {
            Transfer::Send(it) => (Kind::Send(it.iov.into()), it.dest, it.data, it.desc),
            Transfer::Recv(it) => (Kind::Recv(it.iov.into()), it.src, 0, it.desc),
            Transfer::TaggedSend(it) => {
                let kind = Kind::TaggedSend(it.iov.into(), it.tag);
                (kind, it.dest, it.data, it.desc)
            }
            Transfer::TaggedRecv(it) => {
                (Kind::TaggedRecv(it.iov.into(), it.tag), it.src, 0, it.desc)
            }
            Transfer::Read(it) => {
                let kind = Kind::Read(it.iov.into(), it.rma_iov.into());
                (kind, it.src, 0, it.desc)
            }
            Transfer::Write(it) => {
                let kind = Kind::Write(it.iov.into(), it.rma_iov.into());
                (kind, it.dest, it.data, it.desc)
            }
            Transfer::Atomic(it) => (Kind::Atomic(it.into()), it.dest, it.data, it.desc),
            Transfer::FetchAtomic(it, to) => {
                let kind = Kind::FetchAtomic(it.into(), to.into());
                (kind, it.dest, it.data, it.desc)
            }
            Transfer::CompareAtomic(it, with, to) => {
                let (compare, desc) = (with.iov.into(), with.desc.into());
                let kind = Kind::CompareAtomic(it.into(), compare, desc, to.into());
                (kind, it.dest, it.data, it.desc)
            }
        };
        Self {
            kind,
            peer,
            context: transfer.context(),
            data,
            desc: desc.into(),
        }
    }

    /// What it is a copy of.
    pub(super) fn transfer(&self) -> Transfer<'_> {
        let (desc, context, data, peer) = (&*self.desc, self.context, self.data, self.peer);
        let (src, dest) = (peer, peer);
        match &self.kind {
            Kind::Send(iov) => Transfer::Send(msg::SendMsg {
                iov,
                desc,
                dest,
                context,
                data,
            }),
            Kind::Recv(iov) => Transfer::Recv(msg::RecvMsg {
                iov,
                desc,
                src,
                context,
            }),
            Kind::TaggedSend(iov, tag) => Transfer::TaggedSend(tagged::SendMsg {
                iov,
                desc,
                dest,
                tag: *tag,
                context,
                data,
            }),
            Kind::TaggedRecv(iov, tag) => Transfer::TaggedRecv(tagged::RecvMsg {
                iov,
                desc,
                src,
                tag: *tag,
                context,
            }),
            Kind::Read(iov, rma_iov) => Transfer::Read(ReadMsg {
                iov,
                desc,
                src,
                rma_iov,
                context,
            }),
            Kind::Write(iov, rma_iov) => Transfer::Write(WriteMsg {
                iov,
                desc,
                dest,
                rma_iov,
                context,
                data,
            }),
            Kind::Atomic(elements) => Transfer::Atomic(self.atomic(elements)),
            Kind::FetchAtomic(elements, to) => {
                Transfer::FetchAtomic(self.atomic(elements), to.fetched())
            }
            Kind::CompareAtomic(elements, iov, desc, to) => {
                let with = Compared { iov, desc };
                Transfer::CompareAtomic(self.atomic(elements), with, to.fetched())
            }
        }
    }

    fn atomic<'a>(&'a self, elements: &'a Elements) -> AtomicMsg<'a> {
        AtomicMsg {
            iov: &elements.iov,
            desc: &self.desc,
            dest: self.peer,
            rma_iov: &elements.rma_iov,
            datatype: elements.datatype,
            op: elements.op,
            context: self.context,
            data: self.data,
        }
    }
}

impl From<AtomicMsg<'_>> for Elements {
    fn from(msg: AtomicMsg<'_>) -> Self {
        Self {
            iov: msg.iov.into(),
            rma_iov: msg.rma_iov.into(),
            datatype: msg.datatype,
            op: msg.op,
        }
    }
}

impl From<Fetched<'_>> for Earlier {
    fn from(to: Fetched<'_>) -> Self {
        Self {
            iov: to.iov.into(),
            desc: to.desc.into(),
        }
    }
}

impl Earlier {
    fn fetched(&self) -> Fetched<'_> {
        let (iov, desc) = (&*self.iov, &*self.desc);
        Fetched { iov, desc }
    }
}
