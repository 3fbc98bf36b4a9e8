//! Tests of `Op`: every operation calls the method of its kind.

use std::ptr;
use std::sync::{Arc, Mutex};

use super::*;
use crate::atomic::{Datatype, RmaIoc};
use crate::rma::RmaIov;
use crate::{
    Address, Atomic, Collective, Iov, IovMut, Membership, Msg, Rma, Tagged, atomic, av, collective,
};

/// An endpoint that records the method, peer, context and flags of the last call.
#[derive(Debug, Default)]
struct Recorder(Mutex<Option<Call>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call {
    method: &'static str,
    peer: FiAddr,
    context: Context,
    flags: OpFlags,
}

impl Recorder {
    fn record(
        &self,
        method: &'static str,
        peer: FiAddr,
        context: Context,
        flags: OpFlags,
    ) -> Result {
        *self.0.lock().unwrap() = Some(Call {
            method,
            peer,
            context,
            flags,
        });
        Ok(())
    }

    fn take_call(&self) -> Option<Call> {
        self.0.lock().unwrap().take()
    }
}

const NO_CONTEXT: Context = Context(0);

impl Msg for Recorder {
    unsafe fn sendmsg(&self, msg: &msg::SendMsg<'_>, flags: OpFlags) -> Result {
        self.record("sendmsg", msg.dest, msg.context, flags)
    }

    unsafe fn recvmsg(&self, msg: &msg::RecvMsg<'_>, flags: OpFlags) -> Result {
        self.record("recvmsg", msg.src, msg.context, flags)
    }

    fn inject(&self, buf: &[u8], dest: FiAddr, data: Option<u64>) -> Result {
        assert_eq!((buf, data), (&BYTES[..], Some(DATA)));
        self.record("inject", dest, NO_CONTEXT, OpFlags::DEFAULT)
    }
}

impl Tagged for Recorder {
    unsafe fn tsendmsg(&self, msg: &tagged::SendMsg<'_>, flags: OpFlags) -> Result {
        self.record("tsendmsg", msg.dest, msg.context, flags)
    }

    unsafe fn trecvmsg(&self, msg: &tagged::RecvMsg<'_>, flags: OpFlags) -> Result {
        self.record("trecvmsg", msg.src, msg.context, flags)
    }

    fn tinject(&self, buf: &[u8], dest: FiAddr, tag: u64, data: Option<u64>) -> Result {
        assert_eq!((buf, tag, data), (&BYTES[..], 5, Some(DATA)));
        self.record("tinject", dest, NO_CONTEXT, OpFlags::DEFAULT)
    }
}

impl Rma for Recorder {
    unsafe fn readmsg(&self, msg: &ReadMsg<'_>, flags: OpFlags) -> Result {
        self.record("readmsg", msg.src, msg.context, flags)
    }

    unsafe fn writemsg(&self, msg: &WriteMsg<'_>, flags: OpFlags) -> Result {
        self.record("writemsg", msg.dest, msg.context, flags)
    }

    fn inject_write(
        &self,
        buf: &[u8],
        dest: FiAddr,
        addr: u64,
        key: u64,
        data: Option<u64>,
    ) -> Result {
        assert_eq!((buf, addr, key, data), (&BYTES[..], 6, 7, Some(DATA)));
        self.record("inject_write", dest, NO_CONTEXT, OpFlags::DEFAULT)
    }
}

impl Atomic for Recorder {
    unsafe fn atomicmsg(&self, msg: &AtomicMsg<'_>, flags: OpFlags) -> Result {
        self.record("atomicmsg", msg.dest, msg.context, flags)
    }

    unsafe fn fetch_atomicmsg(
        &self,
        msg: &AtomicMsg<'_>,
        result: &[IocMut],
        result_desc: &[Desc],
        flags: OpFlags,
    ) -> Result {
        assert_eq!((result.len(), result_desc), (1, &[Desc(1)][..]));
        self.record("fetch_atomicmsg", msg.dest, msg.context, flags)
    }

    unsafe fn compare_atomicmsg(
        &self,
        msg: &AtomicMsg<'_>,
        compare: &[Ioc],
        compare_desc: &[Desc],
        result: &[IocMut],
        result_desc: &[Desc],
        flags: OpFlags,
    ) -> Result {
        assert_eq!((compare.len(), compare_desc), (1, &[Desc(2)][..]));
        assert_eq!((result.len(), result_desc), (1, &[Desc(1)][..]));
        self.record("compare_atomicmsg", msg.dest, msg.context, flags)
    }

    fn inject_atomic(&self, buf: &[u8], target: &Target) -> Result {
        assert_eq!(buf, &BYTES[..]);
        self.record("inject_atomic", target.dest, NO_CONTEXT, OpFlags::DEFAULT)
    }
}

impl Collective for Recorder {
    fn join(&self, _: &av::Set, _: Context) -> Result<Arc<dyn Membership>> {
        Err(Errno::NoSys)
    }

    unsafe fn collective(&self, msg: &CollectiveMsg, flags: OpFlags) -> Result {
        self.record("collective", msg.group, msg.context, flags)
    }
}

// SAFETY: the recorder accesses no memory.
unsafe impl Endpoint for Recorder {
    fn address(&self) -> Result<Address> {
        Err(Errno::AddrNotAvail)
    }

    fn cancel(&self, _: Context) -> Result {
        Err(Errno::NoEnt)
    }

    fn collective(&self) -> Option<&dyn Collective> {
        Some(self)
    }
}

impl SharedReceives for Recorder {
    fn cancel(&self, _: Context) -> Result {
        Err(Errno::NoEnt)
    }
}

const PEER: FiAddr = FiAddr(3);
const DATA: u64 = 4;
const BYTES: [u8; 2] = [8, 9];

/// Calls `check` with one operation of each kind, the method that posts it, and its completion
/// flags.
fn for_each_kind(check: impl Fn(Op<'_>, &'static str, CompletionFlags)) {
    use CompletionFlags as C;
    let (context, data) = (Context(1), DATA);
    let iov = [Iov::from_raw(ptr::null(), 2)];
    let iov_mut = [IovMut::from_raw(ptr::null_mut(), 2)];
    let (desc, buf) = (&[][..], &BYTES[..]);
    let (addr, key) = (6, 7);
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
        iov: &[IocMut::from_raw(ptr::null_mut(), 1)],
        desc: &[Desc(1)],
    };
    let compared = Compared {
        iov: &[Ioc::from_raw(ptr::null(), 1)],
        desc: &[Desc(2)],
    };
    let send = msg::SendMsg {
        iov: &iov,
        desc,
        dest: PEER,
        context,
        data,
    };
    check(Op::Send(send), "sendmsg", C::MSG | C::SEND);
    let recv = msg::RecvMsg {
        iov: &iov_mut,
        desc,
        src: PEER,
        context,
    };
    check(Op::Recv(recv), "recvmsg", C::MSG | C::RECV);
    let inject = Op::Inject {
        buf,
        dest: PEER,
        data: Some(data),
    };
    check(inject, "inject", C::MSG | C::SEND);
    let send = tagged::SendMsg {
        iov: &iov,
        desc,
        dest: PEER,
        tag: 5,
        context,
        data,
    };
    check(Op::TaggedSend(send), "tsendmsg", C::TAGGED | C::SEND);
    let recv = tagged::RecvMsg {
        iov: &iov_mut,
        desc,
        src: PEER,
        tag: TagMatch { tag: 5, ignore: 1 },
        context,
    };
    check(Op::TaggedRecv(recv), "trecvmsg", C::TAGGED | C::RECV);
    let inject = Op::TaggedInject {
        buf,
        dest: PEER,
        tag: 5,
        data: Some(data),
    };
    check(inject, "tinject", C::TAGGED | C::SEND);
    let read = ReadMsg {
        iov: &iov_mut,
        desc,
        src: PEER,
        rma_iov: &rma_iov,
        context,
    };
    check(Op::Read(read), "readmsg", C::RMA | C::READ);
    let write = WriteMsg {
        iov: &iov,
        desc,
        dest: PEER,
        rma_iov: &rma_iov,
        context,
        data,
    };
    check(Op::Write(write), "writemsg", C::RMA | C::WRITE);
    let inject = Op::InjectWrite {
        buf,
        dest: PEER,
        addr,
        key,
        data: Some(data),
    };
    check(inject, "inject_write", C::RMA | C::WRITE);
    check(Op::Atomic(atomic), "atomicmsg", C::ATOMIC | C::WRITE);
    let fetch = Op::FetchAtomic(atomic, fetched);
    check(fetch, "fetch_atomicmsg", C::ATOMIC | C::READ);
    let compare = Op::CompareAtomic(atomic, compared, fetched);
    check(compare, "compare_atomicmsg", C::ATOMIC | C::READ);
    let target = Target {
        dest: PEER,
        addr,
        key,
        datatype: Datatype::Uint16,
        op: atomic::Op::Sum,
    };
    let inject = Op::InjectAtomic { buf, target };
    check(inject, "inject_atomic", C::ATOMIC | C::WRITE);
    let barrier = CollectiveMsg::new(collective::Op::Barrier, PEER, Datatype::Uint8, context);
    check(Op::Collective(barrier), "collective", C::COLLECTIVE);
}

#[test]
fn an_operation_calls_the_method_of_its_kind() {
    let ep = Recorder::default();
    for_each_kind(|op, method, kind| {
        let op = op.with_context(Context(2));
        let is_injected = op.context() == NO_CONTEXT;
        assert_eq!(is_injected, method.contains("inject"), "{op:?}");
        // SAFETY: the recorder accesses no memory.
        assert_eq!(unsafe { op.post(&ep, OpFlags::DEFAULT) }, Ok(()));
        let expected = Call {
            method,
            peer: op.peer(),
            context: op.context(),
            flags: OpFlags::DEFAULT,
        };
        assert_eq!((ep.take_call(), op.kind()), (Some(expected), kind));
        assert_eq!(op.peer(), PEER);
        // SAFETY: as above.
        let posted = unsafe { op.post(&ep as &dyn Endpoint, OpFlags::FENCE) };
        if is_injected {
            assert_eq!((posted, ep.take_call()), (Err(Errno::BadFlags), None))
        } else {
            assert_eq!(ep.take_call().map(|call| call.flags), Some(OpFlags::FENCE))
        }
    });
}

#[test]
fn only_receives_are_posted_to_shared_receives() {
    let srx = Recorder::default();
    for_each_kind(|op, method, kind| {
        // SAFETY: as above.
        let posted = unsafe { op.post_shared(&srx, OpFlags::DEFAULT) };
        if kind.contains(CompletionFlags::RECV) {
            assert_eq!(srx.take_call().map(|call| call.method), Some(method))
        } else {
            assert_eq!((posted, srx.take_call()), (Err(Errno::NoSys), None))
        }
    });
}

#[test]
fn tagged_operations_have_a_tag() {
    for_each_kind(|op, method, kind| {
        let expected = match (kind.contains(CompletionFlags::TAGGED), method) {
            (false, _) => None,
            (true, "trecvmsg") => Some(TagMatch { tag: 5, ignore: 1 }),
            (true, _) => Some(TagMatch::exact(5)),
        };
        assert_eq!(op.tag(), expected, "{op:?}");
    });
}
