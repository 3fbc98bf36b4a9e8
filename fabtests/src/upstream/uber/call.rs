//! The calls of the man pages, each posted under its own name.

#![expect(unsafe_code, reason = "posts are promises about memory")]

use selvedge::atomic::{AtomicExt as _, AtomicMsg, Family, Ioc, IocMut, RmaIoc, Target};
use selvedge::{
    Context, Desc, Errno, FiAddr, MsgExt as _, OpFlags, RmaExt as _, TagMatch, TaggedExt as _,
};
use selvedge_testkit::domain::{
    Access, AtomicCall, DomainEndpoint, Lists, Recv, Remote, Segment, Send,
};

use super::case::Form;

/// What every call says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order<'a> {
    pub(super) form: Form,
    /// The buffer, in as many pieces as the form has.
    pub(super) segments: &'a [Segment<'a>],
    pub(super) peer: FiAddr,
    pub(super) tag: Option<u64>,
    pub(super) data: Option<u64>,
    pub(super) remote: Remote,
    /// Of the forms that take flags.
    pub(super) flags: OpFlags,
    pub(super) context: u64,
}

/// Posts a message, once.
///
/// # Errors
/// The provider's.
pub(super) fn send(end: &DomainEndpoint, order: &Order<'_>) -> Result<(), Errno> {
    let &Order { peer, tag, .. } = order;
    let mut lists = Lists::default();
    let (iov, desc) = lists.read(end, order.segments);
    let context = Context(order.context);
    match (order.form, tag, order.data) {
        (Form::Inject, None, data) => inject(order, |bytes| end.ep.inject(bytes, peer, data)),
        (Form::Inject, Some(tag), data) => {
            inject(order, |bytes| end.ep.tinject(bytes, peer, tag, data))
        }
        (Form::Message, ..) => {
            let send = Send::new(peer, order.context)
                .tag(tag)
                .data(order.data)
                .flags(order.flags);
            end.send(order.segments, &send)
        }
        (Form::Plain, None, None) => {
            // SAFETY: the memory is of the endpoint's domain (`Lists`), which the endpoint's owner
            // keeps longer than the endpoint; nobody has references to it.
            unsafe { end.ep.send(iov[0], desc[0], peer, context) }
        }
        (Form::Plain, None, Some(data)) => {
            // SAFETY: as above.
            unsafe { end.ep.senddata(iov[0], desc[0], data, peer, context) }
        }
        (Form::Plain, Some(tag), None) => {
            // SAFETY: as above.
            unsafe { end.ep.tsend(iov[0], desc[0], peer, tag, context) }
        }
        (Form::Plain, Some(tag), Some(data)) => {
            // SAFETY: as above.
            unsafe { end.ep.tsenddata(iov[0], desc[0], data, peer, tag, context) }
        }
        // SAFETY: as above.
        (Form::List, None, _) => unsafe { end.ep.sendv(iov, desc, peer, context) },
        // SAFETY: as above.
        (Form::List, Some(tag), _) => unsafe { end.ep.tsendv(iov, desc, peer, tag, context) },
    }
}

/// Posts a receive from anybody, once.
///
/// # Errors
/// The provider's.
pub(super) fn recv(end: &DomainEndpoint, order: &Order<'_>) -> Result<(), Errno> {
    let mut lists = Lists::default();
    let (iov, desc) = lists.write(end, order.segments);
    let (src, context) = (FiAddr::UNSPEC, Context(order.context));
    let tag = order.tag.map(TagMatch::exact);
    match (order.form, tag) {
        (Form::Message, tag) => {
            let recv = Recv::new(order.context)
                .from(src)
                .tag(tag)
                .flags(order.flags);
            end.recv(order.segments, &recv)
        }
        // SAFETY: as in `send`.
        (Form::List, None) => unsafe { end.ep.recvv(iov, desc, src, context) },
        // SAFETY: as in `send`.
        (Form::List, Some(tag)) => unsafe { end.ep.trecvv(iov, desc, src, tag, context) },
        // SAFETY: as in `send`.
        (_, None) => unsafe { end.ep.recv(iov[0], desc[0], src, context) },
        (_, Some(tag)) => {
            // SAFETY: as in `send`.
            unsafe { end.ep.trecv(iov[0], desc[0], src, tag, context) }
        }
    }
}

/// Posts a write, once.
///
/// # Errors
/// The provider's.
pub(super) fn write(end: &DomainEndpoint, order: &Order<'_>) -> Result<(), Errno> {
    let &Order { peer, remote, .. } = order;
    let Remote { addr, key } = remote;
    let mut lists = Lists::default();
    let (iov, desc) = lists.read(end, order.segments);
    let context = Context(order.context);
    match (order.form, order.data) {
        (Form::Inject, data) => inject(order, |bytes| {
            end.ep.inject_write(bytes, peer, addr, key, data)
        }),
        (Form::Message, _) => end.write(order.segments, &access(order)),
        (Form::Plain, None) => {
            // SAFETY: as in `send`.
            unsafe { end.ep.write(iov[0], desc[0], peer, addr, key, context) }
        }
        (Form::Plain, Some(data)) => {
            // SAFETY: as in `send`.
            unsafe {
                end.ep
                    .writedata(iov[0], desc[0], data, peer, addr, key, context)
            }
        }
        // SAFETY: as in `send`.
        (Form::List, _) => unsafe { end.ep.writev(iov, desc, peer, addr, key, context) },
    }
}

/// Posts a read, once.
///
/// # Errors
/// The provider's.
pub(super) fn read(end: &DomainEndpoint, order: &Order<'_>) -> Result<(), Errno> {
    let &Order { peer, remote, .. } = order;
    let Remote { addr, key } = remote;
    let mut lists = Lists::default();
    let (iov, desc) = lists.write(end, order.segments);
    let context = Context(order.context);
    match order.form {
        Form::Message => end.read(order.segments, &access(order)),
        // SAFETY: as in `send`.
        Form::List => unsafe { end.ep.readv(iov, desc, peer, addr, key, context) },
        Form::Plain | Form::Inject => {
            // SAFETY: as in `send`.
            unsafe { end.ep.read(iov[0], desc[0], peer, addr, key, context) }
        }
    }
}

fn access(order: &Order<'_>) -> Access {
    Access::new(order.peer, order.remote, order.context)
        .data(order.data)
        .flags(order.flags)
}

/// Calls with the bytes of the only piece.
fn inject(order: &Order<'_>, call: impl FnOnce(&[u8]) -> Result<(), Errno>) -> Result<(), Errno> {
    let segment = &order.segments[0];
    segment.memory.with(segment.at, segment.len, call)
}

/// The memory of an atomic besides its operands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beside<'a> {
    pub(super) comparands: &'a [Segment<'a>],
    pub(super) results: &'a [Segment<'a>],
}

/// Posts an atomic, once.
///
/// # Errors
/// The provider's.
pub(super) fn atomic(
    end: &DomainEndpoint,
    call: AtomicCall,
    order: &Order<'_>,
    beside: Beside<'_>,
) -> Result<(), Errno> {
    let target = Target {
        dest: order.peer,
        addr: order.remote.addr,
        key: order.remote.key,
        datatype: call.datatype,
        op: call.op,
    };
    if order.form == Form::Inject {
        return inject(order, |bytes| end.ep.inject_atomic(bytes, &target));
    }
    let elements = |segments| Elements::of(end, segments, call.datatype.size());
    let parts = Parts {
        operands: elements(order.segments),
        comparands: elements(beside.comparands),
        results: elements(beside.results),
    };
    match order.form {
        Form::Message => with_flags(end, call, order, &parts),
        form => short(
            end,
            call.family,
            form,
            &parts,
            &target,
            Context(order.context),
        ),
    }
}

/// The memory of an atomic.
struct Parts {
    operands: Elements,
    comparands: Elements,
    results: Elements,
}

/// Pieces as elements, to be read or written, with their descriptors.
struct Elements {
    read: Vec<Ioc>,
    write: Vec<IocMut>,
    desc: Vec<Desc>,
}

impl Elements {
    fn of(end: &DomainEndpoint, segments: &[Segment<'_>], size: usize) -> Self {
        let base = |segment: &Segment<'_>| (segment.base(end), segment.len / size);
        let read = |segment| {
            let (base, count) = base(segment);
            Ioc::from_raw(base.cast_const().cast(), count)
        };
        let write = |segment| {
            let (base, count) = base(segment);
            IocMut::from_raw(base.cast(), count)
        };
        Self {
            read: segments.iter().map(read).collect(),
            write: segments.iter().map(write).collect(),
            desc: segments
                .iter()
                .map(|segment| segment.rights.desc())
                .collect(),
        }
    }
}

fn with_flags(
    end: &DomainEndpoint,
    call: AtomicCall,
    order: &Order<'_>,
    parts: &Parts,
) -> Result<(), Errno> {
    let (operands, results) = (&parts.operands, &parts.results);
    let msg = AtomicMsg {
        iov: &operands.read,
        desc: &operands.desc,
        dest: order.peer,
        rma_iov: &[RmaIoc {
            addr: order.remote.addr,
            count: operands.read.iter().map(|operand| operand.count).sum(),
            key: order.remote.key,
        }],
        datatype: call.datatype,
        op: call.op,
        context: Context(order.context),
        data: 0,
    };
    let (ep, flags) = (&end.ep, order.flags);
    match call.family {
        // SAFETY: the memory is of the endpoint's domain (`Elements`), which the endpoint's owner
        // keeps longer than the endpoint; nobody has references to it.
        Family::Base => unsafe { ep.atomicmsg(&msg, flags) },
        Family::Fetch => {
            // SAFETY: as above.
            unsafe { ep.fetch_atomicmsg(&msg, &results.write, &results.desc, flags) }
        }
        Family::Compare => {
            let Elements { read, desc, .. } = &parts.comparands;
            // SAFETY: as above.
            unsafe { ep.compare_atomicmsg(&msg, read, desc, &results.write, &results.desc, flags) }
        }
    }
}

fn short(
    end: &DomainEndpoint,
    family: Family,
    form: Form,
    parts: &Parts,
    target: &Target,
    context: Context,
) -> Result<(), Errno> {
    let Parts {
        operands,
        comparands,
        results,
    } = parts;
    let ep = &end.ep;
    if form == Form::List {
        let buf = (&operands.read[..], &operands.desc[..]);
        let compare = (&comparands.read[..], &comparands.desc[..]);
        let result = (&results.write[..], &results.desc[..]);
        return match family {
            // SAFETY: as in `with_flags`.
            Family::Base => unsafe { ep.atomicv(buf.0, buf.1, target, context) },
            // SAFETY: as in `with_flags`.
            Family::Fetch => unsafe { ep.fetch_atomicv(buf, result, target, context) },
            // SAFETY: as in `with_flags`.
            Family::Compare => unsafe { ep.compare_atomicv(buf, compare, result, target, context) },
        };
    }
    let buf = (operands.read[0], operands.desc[0]);
    let compare = (comparands.read[0], comparands.desc[0]);
    let result = (results.write[0], results.desc[0]);
    match family {
        // SAFETY: as in `with_flags`.
        Family::Base => unsafe { ep.atomic(buf.0, buf.1, target, context) },
        // SAFETY: as in `with_flags`.
        Family::Fetch => unsafe { ep.fetch_atomic(buf, result, target, context) },
        // SAFETY: as in `with_flags`.
        Family::Compare => unsafe { ep.compare_atomic(buf, compare, result, target, context) },
    }
}
