//! The data transfer calls of the man pages. Each call is made by the function with its name.

#![expect(
    unsafe_code,
    reason = "posting requires that memory outlives the operation"
)]

use selvedge::atomic::{AtomicExt as _, AtomicMsg, Family, Ioc, IocMut, RmaIoc, Target};
use selvedge::{
    Context, Desc, Errno, FiAddr, MsgExt as _, OpFlags, RmaExt as _, TagMatch, TaggedExt as _,
};
use selvedge_testkit::domain::{
    Access, AtomicCall, DomainEndpoint, Recv, Remote, Segment, SegmentLists, Send,
};

use super::case::Form;

/// The arguments that all calls have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallArgs<'a> {
    pub(super) form: Form,
    /// The buffer, in as many segments as the form takes.
    pub(super) segments: &'a [Segment<'a>],
    pub(super) peer: FiAddr,
    pub(super) tag: Option<u64>,
    pub(super) data: Option<u64>,
    pub(super) remote: Remote,
    /// The flags, for the forms that take flags.
    pub(super) flags: OpFlags,
    pub(super) context: u64,
}

/// Posts a message once.
///
/// # Errors
/// The provider's error.
pub(super) fn send(endpoint: &DomainEndpoint, args: &CallArgs<'_>) -> Result<(), Errno> {
    let &CallArgs { peer, tag, .. } = args;
    let mut lists = SegmentLists::default();
    let (iov, desc) = lists.read(endpoint, args.segments);
    let context = Context(args.context);
    match (args.form, tag, args.data) {
        (Form::Inject, None, data) => inject(args, |bytes| endpoint.ep.inject(bytes, peer, data)),
        (Form::Inject, Some(tag), data) => {
            inject(args, |bytes| endpoint.ep.tinject(bytes, peer, tag, data))
        }
        (Form::Message, ..) => {
            let send = Send::new(peer, args.context)
                .tag(tag)
                .data(args.data)
                .flags(args.flags);
            endpoint.send(args.segments, &send)
        }
        (Form::Plain, None, None) => {
            // SAFETY: the memory belongs to the endpoint's domain (`SegmentLists`), which the owner
            // of the endpoint keeps longer than the endpoint; there are no references to it.
            unsafe { endpoint.ep.send(iov[0], desc[0], peer, context) }
        }
        (Form::Plain, None, Some(data)) => {
            // SAFETY: as above.
            unsafe { endpoint.ep.senddata(iov[0], desc[0], data, peer, context) }
        }
        (Form::Plain, Some(tag), None) => {
            // SAFETY: as above.
            unsafe { endpoint.ep.tsend(iov[0], desc[0], peer, tag, context) }
        }
        (Form::Plain, Some(tag), Some(data)) => {
            // SAFETY: as above.
            unsafe {
                endpoint
                    .ep
                    .tsenddata(iov[0], desc[0], data, peer, tag, context)
            }
        }
        // SAFETY: as above.
        (Form::List, None, _) => unsafe { endpoint.ep.sendv(iov, desc, peer, context) },
        // SAFETY: as above.
        (Form::List, Some(tag), _) => unsafe { endpoint.ep.tsendv(iov, desc, peer, tag, context) },
    }
}

/// Posts a receive from any source once.
///
/// # Errors
/// The provider's error.
pub(super) fn recv(endpoint: &DomainEndpoint, args: &CallArgs<'_>) -> Result<(), Errno> {
    let mut lists = SegmentLists::default();
    let (iov, desc) = lists.write(endpoint, args.segments);
    let (src, context) = (FiAddr::UNSPEC, Context(args.context));
    let tag = args.tag.map(TagMatch::exact);
    match (args.form, tag) {
        (Form::Message, tag) => {
            let recv = Recv::new(args.context).from(src).tag(tag).flags(args.flags);
            endpoint.recv(args.segments, &recv)
        }
        // SAFETY: as in `send`.
        (Form::List, None) => unsafe { endpoint.ep.recvv(iov, desc, src, context) },
        // SAFETY: as in `send`.
        (Form::List, Some(tag)) => unsafe { endpoint.ep.trecvv(iov, desc, src, tag, context) },
        // SAFETY: as in `send`.
        (_, None) => unsafe { endpoint.ep.recv(iov[0], desc[0], src, context) },
        (_, Some(tag)) => {
            // SAFETY: as in `send`.
            unsafe { endpoint.ep.trecv(iov[0], desc[0], src, tag, context) }
        }
    }
}

/// Posts a write once.
///
/// # Errors
/// The provider's error.
pub(super) fn write(endpoint: &DomainEndpoint, args: &CallArgs<'_>) -> Result<(), Errno> {
    let &CallArgs { peer, remote, .. } = args;
    let Remote { addr, key } = remote;
    let mut lists = SegmentLists::default();
    let (iov, desc) = lists.read(endpoint, args.segments);
    let context = Context(args.context);
    match (args.form, args.data) {
        (Form::Inject, data) => inject(args, |bytes| {
            endpoint.ep.inject_write(bytes, peer, addr, key, data)
        }),
        (Form::Message, _) => endpoint.write(args.segments, &access(args)),
        (Form::Plain, None) => {
            // SAFETY: as in `send`.
            unsafe { endpoint.ep.write(iov[0], desc[0], peer, addr, key, context) }
        }
        (Form::Plain, Some(data)) => {
            // SAFETY: as in `send`.
            unsafe {
                endpoint
                    .ep
                    .writedata(iov[0], desc[0], data, peer, addr, key, context)
            }
        }
        // SAFETY: as in `send`.
        (Form::List, _) => unsafe { endpoint.ep.writev(iov, desc, peer, addr, key, context) },
    }
}

/// Posts a read once.
///
/// # Errors
/// The provider's error.
pub(super) fn read(endpoint: &DomainEndpoint, args: &CallArgs<'_>) -> Result<(), Errno> {
    let &CallArgs { peer, remote, .. } = args;
    let Remote { addr, key } = remote;
    let mut lists = SegmentLists::default();
    let (iov, desc) = lists.write(endpoint, args.segments);
    let context = Context(args.context);
    match args.form {
        Form::Message => endpoint.read(args.segments, &access(args)),
        // SAFETY: as in `send`.
        Form::List => unsafe { endpoint.ep.readv(iov, desc, peer, addr, key, context) },
        Form::Plain | Form::Inject => {
            // SAFETY: as in `send`.
            unsafe { endpoint.ep.read(iov[0], desc[0], peer, addr, key, context) }
        }
    }
}

fn access(args: &CallArgs<'_>) -> Access {
    Access::new(args.peer, args.remote, args.context)
        .data(args.data)
        .flags(args.flags)
}

/// Calls `call` with the bytes of the only segment.
fn inject(args: &CallArgs<'_>, call: impl FnOnce(&[u8]) -> Result<(), Errno>) -> Result<(), Errno> {
    let segment = &args.segments[0];
    segment.memory.with(segment.at, segment.len, call)
}

/// The buffers of an atomic operation in addition to its operands.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExtraBuffers<'a> {
    pub(super) comparands: &'a [Segment<'a>],
    pub(super) results: &'a [Segment<'a>],
}

/// Posts an atomic once.
///
/// # Errors
/// The provider's error.
pub(super) fn atomic(
    endpoint: &DomainEndpoint,
    call: AtomicCall,
    args: &CallArgs<'_>,
    extra: ExtraBuffers<'_>,
) -> Result<(), Errno> {
    let target = Target {
        dest: args.peer,
        addr: args.remote.addr,
        key: args.remote.key,
        datatype: call.datatype,
        op: call.op,
    };
    if args.form == Form::Inject {
        return inject(args, |bytes| endpoint.ep.inject_atomic(bytes, &target));
    }
    let collect = |segments| Elements::collect(endpoint, segments, call.datatype.size());
    let elements = AtomicElements {
        operands: collect(args.segments),
        comparands: collect(extra.comparands),
        results: collect(extra.results),
    };
    match args.form {
        Form::Message => post_with_flags(endpoint, call, args, &elements),
        form => post_without_flags(
            endpoint,
            call.family,
            form,
            &elements,
            &target,
            Context(args.context),
        ),
    }
}

/// The elements of all buffers of an atomic operation.
struct AtomicElements {
    operands: Elements,
    comparands: Elements,
    results: Elements,
}

/// Segments as vectors of elements to read or to write, with their descriptors.
struct Elements {
    read: Vec<Ioc>,
    write: Vec<IocMut>,
    desc: Vec<Desc>,
}

impl Elements {
    fn collect(endpoint: &DomainEndpoint, segments: &[Segment<'_>], size: usize) -> Self {
        let base = |segment: &Segment<'_>| (segment.base(endpoint), segment.len / size);
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

fn post_with_flags(
    endpoint: &DomainEndpoint,
    call: AtomicCall,
    args: &CallArgs<'_>,
    elements: &AtomicElements,
) -> Result<(), Errno> {
    let (operands, results) = (&elements.operands, &elements.results);
    let msg = AtomicMsg {
        iov: &operands.read,
        desc: &operands.desc,
        dest: args.peer,
        rma_iov: &[RmaIoc {
            addr: args.remote.addr,
            count: operands.read.iter().map(|operand| operand.count).sum(),
            key: args.remote.key,
        }],
        datatype: call.datatype,
        op: call.op,
        context: Context(args.context),
        data: 0,
    };
    let (ep, flags) = (&endpoint.ep, args.flags);
    match call.family {
        // SAFETY: the memory belongs to the endpoint's domain (`Elements`), which the owner of the
        // endpoint keeps longer than the endpoint; there are no references to it.
        Family::Base => unsafe { ep.atomicmsg(&msg, flags) },
        Family::Fetch => {
            // SAFETY: as above.
            unsafe { ep.fetch_atomicmsg(&msg, &results.write, &results.desc, flags) }
        }
        Family::Compare => {
            let Elements { read, desc, .. } = &elements.comparands;
            // SAFETY: as above.
            unsafe { ep.compare_atomicmsg(&msg, read, desc, &results.write, &results.desc, flags) }
        }
    }
}

fn post_without_flags(
    endpoint: &DomainEndpoint,
    family: Family,
    form: Form,
    elements: &AtomicElements,
    target: &Target,
    context: Context,
) -> Result<(), Errno> {
    let AtomicElements {
        operands,
        comparands,
        results,
    } = elements;
    let ep = &endpoint.ep;
    if form == Form::List {
        let buf = (&operands.read[..], &operands.desc[..]);
        let compare = (&comparands.read[..], &comparands.desc[..]);
        let result = (&results.write[..], &results.desc[..]);
        return match family {
            // SAFETY: as in `post_with_flags`.
            Family::Base => unsafe { ep.atomicv(buf.0, buf.1, target, context) },
            // SAFETY: as in `post_with_flags`.
            Family::Fetch => unsafe { ep.fetch_atomicv(buf, result, target, context) },
            // SAFETY: as in `post_with_flags`.
            Family::Compare => unsafe { ep.compare_atomicv(buf, compare, result, target, context) },
        };
    }
    let buf = (operands.read[0], operands.desc[0]);
    let compare = (comparands.read[0], comparands.desc[0]);
    let result = (results.write[0], results.desc[0]);
    match family {
        // SAFETY: as in `post_with_flags`.
        Family::Base => unsafe { ep.atomic(buf.0, buf.1, target, context) },
        // SAFETY: as in `post_with_flags`.
        Family::Fetch => unsafe { ep.fetch_atomic(buf, result, target, context) },
        // SAFETY: as in `post_with_flags`.
        Family::Compare => unsafe { ep.compare_atomic(buf, compare, result, target, context) },
    }
}
