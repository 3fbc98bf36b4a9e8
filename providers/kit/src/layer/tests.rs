//! Tests that every call of the contract reaches the object below, through layers that change
//! nothing.

#![expect(unsafe_code, reason = "objects of the contract, and posts to them")]

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use selvedge::atomic::{self, AtomicMsg, Datatype, Family, Ioc, IocMut, Target};
use selvedge::collective::{self, CollectiveMsg};
use selvedge::cq::Entry;
use selvedge::eq::Event;
use selvedge::info::{Candidate, RxAttr, Version};
use selvedge::param::Params;
use selvedge::rma::{ReadMsg, WriteMsg};
use selvedge::trigger::{Action, CompletionTarget, Work, WorkId};
use selvedge::{
    Address, AddressVector, Alias, Allocation, Atomic, Bindings, Collective, CompletionQueue,
    ConnectionManagement, Context, Counter, Desc, Domain, Endpoint, EpOption, EpOptionName, Errno,
    Error, EventQueue, Fabric, FiAddr, Hints, Info, IovMut, LateBindings, Lending, LentMemory,
    Membership, MemoryRegion, MrAccess, MrMode, Msg, Op, OpFlags, PassiveEndpoint, PeerCredentials,
    Provider, Query, Result, Rma, ScalableEndpoint, SharedReceives, TagMatch, Tagged, alloc, av,
    cntr, cq, eq, mr, msg, param, tagged,
};

use super::{Layered, LayeredProvider};

/// The calls that have reached the objects below, as `Trait::method`.
static CALLS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// The object below the layers, of every kind.
#[derive(Debug)]
struct Below;

static BELOW: Below = Below;

/// The error of every call. No default method of the contract returns this error.
const BELOW_ERROR: Errno = Errno::NoSpc;

fn fail<T>() -> Result<T, Error> {
    Err(Error::new(BELOW_ERROR, "from below"))
}

/// Implements a trait of the contract by methods that record their calls.
macro_rules! below {
    ($([$impl:tt])? $Object:ident {
        $($([$fn:tt])? fn $name:ident($($args:tt)*) $(-> $fail:ty)? { $value:expr })*
    }) => {
        // SAFETY: the methods access no memory.
        $($impl)? impl $Object for Below {
            $($($fn)? fn $name(&self, $($args)*) $(-> $fail)? {
                CALLS.lock().unwrap().insert(concat!(stringify!($Object), "::", stringify!($name)));
                $value
            })*
        }
    };
}

below! { Provider {
    fn name() -> &'static str { "below" }
    fn version() -> Version { Version::API }
    fn aliases() -> &'static [Alias] { &[Alias::SameProtocol("under")] }
    fn params() -> &'static [param::Spec] { &[] }
    fn is_enabled(_: &Params) -> bool { false }
    fn getinfo(_: &Query<'_>) -> Result<Vec<Candidate>, Error> { fail() }
    fn fabric(_: &Info) -> Result<Arc<dyn Fabric>, Error> { Ok(Arc::new(Below)) }
} }

below! { Fabric {
    fn domain(_: &Info) -> Result<Arc<dyn Domain>, Error> { fail() }
    fn eq(_: &eq::Attr) -> Result<Arc<dyn EventQueue>, Error> { fail() }
    fn passive_endpoint(_: &Info, eq: Arc<dyn EventQueue>)
        -> Result<Arc<dyn PassiveEndpoint>, Error> { is_below(&eq).then(fail).unwrap() }
} }

below! { [unsafe] Domain {
    fn cq(_: &cq::Attr) -> Result<Arc<dyn CompletionQueue>, Error> { fail() }
    fn cntr(_: &cntr::Attr) -> Result<Arc<dyn Counter>, Error> { fail() }
    fn av(_: &av::Attr) -> Result<Arc<dyn AddressVector>, Error> { fail() }
    fn endpoint(_: &Info, bind: Bindings) -> Result<Arc<dyn Endpoint>, Error> {
        are_below(&bind).then(fail).unwrap()
    }
    fn option(_: &Info, _: EpOptionName) -> Result<EpOption> { Err(BELOW_ERROR) }
    fn scalable_endpoint(_: &Info) -> Result<Arc<dyn ScalableEndpoint>, Error> { fail() }
    fn srx(_: &RxAttr) -> Result<Arc<dyn SharedReceives>, Error> { fail() }
    fn mr_mode() -> MrMode { MrMode::RAW }
    [unsafe] fn reg(_: &[IovMut], _: &mr::Attr) -> Result<Arc<dyn MemoryRegion>, Error> { fail() }
    fn alloc(_: usize, _: &alloc::Attr) -> Result<Arc<dyn Allocation>, Error> { fail() }
    [unsafe] fn queue_work(work: &Work<'_>) -> Result<WorkId, Error> {
        is_work_below(work).then(fail).unwrap()
    }
    fn cancel_work(_: WorkId) -> Result { Err(BELOW_ERROR) }
    fn flush_work(cntr: Option<&Arc<dyn Counter>>) -> Result {
        is_below(cntr.unwrap()).then_some(Err(BELOW_ERROR)).unwrap()
    }
    fn query_atomic(_: Family, _: Datatype, _: atomic::Op) -> Result<atomic::Attr> { Err(BELOW_ERROR) }
    fn query_collective(_: &collective::Query) -> Result<collective::Attr> { Err(BELOW_ERROR) }
} }

below! { [unsafe] Endpoint {
    fn address() -> Result<Address> { Err(BELOW_ERROR) }
    fn peer_credentials(_: FiAddr) -> Result<PeerCredentials> { Err(BELOW_ERROR) }
    fn cancel(_: Context) -> Result { Err(BELOW_ERROR) }
    fn set(_: EpOption) -> Result { Err(BELOW_ERROR) }
    fn option(_: EpOptionName) -> Result<EpOption> { Err(BELOW_ERROR) }
    fn bind_late(late: &LateBindings) -> Result<(), Error> {
        is_below(&late.tx_cq.as_ref().unwrap().0).then(fail).unwrap()
    }
    fn join(_: &Address, _: Context) -> Result<Arc<dyn Membership>> { Err(BELOW_ERROR) }
    fn collective() -> Option<&dyn Collective> { Some(&BELOW) }
    fn lending() -> Option<&dyn Lending> { Some(&BELOW) }
    fn cm() -> Option<&dyn ConnectionManagement> { Some(&BELOW) }
} }

below! { Lending {
    fn take_lent(_: usize) -> Result<Box<dyn LentMemory>> { Err(BELOW_ERROR) }
} }

below! { Msg {
    [unsafe] fn sendmsg(_: &msg::SendMsg<'_>, _: OpFlags) -> Result { Err(BELOW_ERROR) }
    [unsafe] fn recvmsg(_: &msg::RecvMsg<'_>, _: OpFlags) -> Result { Err(BELOW_ERROR) }
    fn inject(_: &[u8], _: FiAddr, _: Option<u64>) -> Result { Err(BELOW_ERROR) }
} }

below! { Tagged {
    [unsafe] fn tsendmsg(_: &tagged::SendMsg<'_>, _: OpFlags) -> Result { Err(BELOW_ERROR) }
    [unsafe] fn trecvmsg(_: &tagged::RecvMsg<'_>, _: OpFlags) -> Result { Err(BELOW_ERROR) }
    fn tinject(_: &[u8], _: FiAddr, _: u64, _: Option<u64>) -> Result { Err(BELOW_ERROR) }
} }

below! { Rma {
    [unsafe] fn readmsg(_: &ReadMsg<'_>, _: OpFlags) -> Result { Err(BELOW_ERROR) }
    [unsafe] fn writemsg(_: &WriteMsg<'_>, _: OpFlags) -> Result { Err(BELOW_ERROR) }
    fn inject_write(_: &[u8], _: FiAddr, _: u64, _: u64, _: Option<u64>) -> Result { Err(BELOW_ERROR) }
} }

below! { Atomic {
    [unsafe] fn atomicmsg(_: &AtomicMsg<'_>, _: OpFlags) -> Result { Err(BELOW_ERROR) }
    [unsafe] fn fetch_atomicmsg(_: &AtomicMsg<'_>, _: &[IocMut], _: &[Desc], _: OpFlags) -> Result {
        Err(BELOW_ERROR)
    }
    [unsafe] fn compare_atomicmsg(
        _: &AtomicMsg<'_>, _: &[Ioc], _: &[Desc], _: &[IocMut], _: &[Desc], _: OpFlags,
    ) -> Result { Err(BELOW_ERROR) }
    fn inject_atomic(_: &[u8], _: &Target) -> Result { Err(BELOW_ERROR) }
    fn valid(_: Family, _: Datatype, _: atomic::Op) -> Result<atomic::Attr> { Err(BELOW_ERROR) }
} }

below! { Collective {
    fn join(_: &av::Set, _: Context) -> Result<Arc<dyn Membership>> { Err(BELOW_ERROR) }
    [unsafe] fn collective(_: &CollectiveMsg, _: OpFlags) -> Result { Err(BELOW_ERROR) }
} }

below! { ConnectionManagement {
    fn connect(_: &Address, _: &[u8]) -> Result { Err(BELOW_ERROR) }
    fn accept(_: &[u8]) -> Result { Err(BELOW_ERROR) }
    fn shutdown() -> Result { Err(BELOW_ERROR) }
    fn peer() -> Result<Address> { Err(BELOW_ERROR) }
} }

below! { ScalableEndpoint {
    fn address() -> Result<Address> { Err(BELOW_ERROR) }
    fn context(_: usize, _: &Info, bind: Bindings) -> Result<Arc<dyn Endpoint>, Error> {
        are_below(&bind).then(fail).unwrap()
    }
} }

below! { PassiveEndpoint {
    fn listen() -> Result { Err(BELOW_ERROR) }
    fn address() -> Result<Address> { Err(BELOW_ERROR) }
    fn set_address(_: &Address) -> Result<(), Error> { fail() }
    fn handle() -> Result<u64> { Err(BELOW_ERROR) }
    fn reject(_: u64, _: &[u8]) -> Result { Err(BELOW_ERROR) }
} }

below! { SharedReceives {
    fn cancel(_: Context) -> Result { Err(BELOW_ERROR) }
} }

below! { CompletionQueue {
    fn read(_: &mut [Entry]) -> Result<usize> { Err(BELOW_ERROR) }
    fn read_from(_: &mut [Entry], _: &mut [FiAddr]) -> Result<usize> { Err(BELOW_ERROR) }
    fn read_ready(_: &mut [Entry], _: &mut [FiAddr]) -> Result<usize> { Err(BELOW_ERROR) }
    fn is_ready() -> bool { false }
    fn read_err() -> Result<cq::ErrEntry> { Err(BELOW_ERROR) }
    fn wait(_: &mut [Entry], _: Option<Duration>) -> Result<usize> { Err(BELOW_ERROR) }
    fn signal() -> Result { Err(BELOW_ERROR) }
    fn try_wait() -> Result { Err(BELOW_ERROR) }
    fn wait_fd() -> Option<BorrowedFd<'_>> { Some(stdin()) }
} }

below! { Counter {
    fn read() -> u64 { 7 }
    fn read_err() -> u64 { 8 }
    fn add(_: u64) { () }
    fn add_err(_: u64) { () }
    fn set(_: u64) { () }
    fn set_err(_: u64) { () }
    fn is_ready() -> bool { false }
    fn wait(_: u64, _: Option<Duration>) -> Result { Err(BELOW_ERROR) }
    fn try_wait() -> Result { Err(BELOW_ERROR) }
    fn wait_fd() -> Option<BorrowedFd<'_>> { Some(stdin()) }
} }

below! { EventQueue {
    fn read() -> Result<Event> { Err(BELOW_ERROR) }
    fn peek() -> Result<Event> { Err(BELOW_ERROR) }
    fn read_err() -> Result<eq::ErrEntry> { Err(BELOW_ERROR) }
    fn write(_: Event) -> Result { Err(BELOW_ERROR) }
    fn wait(_: Option<Duration>) -> Result<Event> { Err(BELOW_ERROR) }
    fn try_wait() -> Result { Err(BELOW_ERROR) }
    fn wait_fd() -> Option<BorrowedFd<'_>> { Some(stdin()) }
} }

below! { AddressVector {
    fn insert(_: &[Address], _: &mut [FiAddr]) -> Result<usize> { Err(BELOW_ERROR) }
    fn rejection(_: &Address) -> Error { Error::new(BELOW_ERROR, "from below") }
    fn insert_service(_: &str, _: &str) -> Result<FiAddr, Error> { fail() }
    fn insert_symmetric(_: &str, _: usize, _: &str, _: usize, _: &mut [FiAddr])
        -> Result<usize, Error> { fail() }
    fn set_user_id(_: FiAddr, _: FiAddr) -> Result { Err(BELOW_ERROR) }
    fn remove(_: &[FiAddr]) -> Result { Err(BELOW_ERROR) }
    fn lookup(_: FiAddr) -> Result<Address> { Err(BELOW_ERROR) }
    fn members() -> Result<Vec<FiAddr>> { Err(BELOW_ERROR) }
    fn identity() -> Option<&av::Identity> { Some(identity()) }
} }

below! { MemoryRegion {
    fn key() -> u64 { 5 }
    fn desc() -> Desc { Desc::NONE }
    fn bind_counter(cntr: &Arc<dyn Counter>, _: MrAccess) -> Result<(), Error> {
        is_below(cntr).then(fail).unwrap()
    }
} }

below! { [unsafe] Allocation {
    fn base() -> *mut u8 { std::ptr::null_mut() }
    fn len() -> usize { 1 }
    fn remote_addr() -> u64 { 2 }
    fn is_special() -> bool { true }
} }

fn stdin() -> BorrowedFd<'static> {
    // SAFETY: standard input is open as long as the process.
    unsafe { BorrowedFd::borrow_raw(0) }
}

/// Whether an object has no layer.
fn is_below<T: ?Sized + super::Object>(object: &Arc<T>) -> bool {
    Layered::<T, ()>::downcast(object).is_none()
}

fn are_below(bind: &Bindings) -> bool {
    let cntrs = &bind.cntrs;
    let cntrs = [
        &cntrs.send,
        &cntrs.recv,
        &cntrs.read,
        &cntrs.write,
        &cntrs.remote_read,
        &cntrs.remote_write,
    ];
    is_below(&bind.tx_cq)
        && is_below(&bind.rx_cq)
        && bind.av.as_ref().is_some_and(is_below)
        && bind.eq.as_ref().is_some_and(is_below)
        && bind.srx.as_ref().is_some_and(is_below)
        && cntrs
            .into_iter()
            .all(|it| it.as_ref().is_some_and(is_below))
}

fn is_work_below(work: &Work<'_>) -> bool {
    let is_action_below = match work.action {
        Action::Post { ep, done, .. } => {
            let is_target_below = match done {
                CompletionTarget::Counter(cntr) => cntr.is_none_or(is_below),
                CompletionTarget::Endpoint => true,
            };
            is_below(ep) && is_target_below
        }
        Action::Set(cntr, _) | Action::Add(cntr, _) => is_below(cntr),
    };
    is_below(work.cntr) && is_action_below
}

/// Objects with a layer that changes nothing.
struct LayeredObjects {
    cq: Arc<dyn CompletionQueue>,
    cntr: Arc<dyn Counter>,
    av: Arc<dyn AddressVector>,
    eq: Arc<dyn EventQueue>,
    srx: Arc<dyn SharedReceives>,
    ep: Arc<dyn Endpoint>,
}

impl LayeredObjects {
    fn new() -> Self {
        Self {
            cq: Layered::new(Arc::new(Below) as Arc<dyn CompletionQueue>, ()),
            cntr: Layered::new(Arc::new(Below) as Arc<dyn Counter>, ()),
            av: Layered::new(Arc::new(Below) as Arc<dyn AddressVector>, ()),
            eq: Layered::new(Arc::new(Below) as Arc<dyn EventQueue>, ()),
            srx: Layered::new(Arc::new(Below) as Arc<dyn SharedReceives>, ()),
            ep: Layered::new(Arc::new(Below) as Arc<dyn Endpoint>, ()),
        }
    }

    fn bindings(&self) -> Bindings {
        let mut bind = Bindings::new(Arc::clone(&self.cq), Arc::clone(&self.av));
        (bind.eq, bind.srx) = (Some(Arc::clone(&self.eq)), Some(Arc::clone(&self.srx)));
        let cntrs = &mut bind.cntrs;
        for cntr in [
            &mut cntrs.send,
            &mut cntrs.recv,
            &mut cntrs.read,
            &mut cntrs.write,
            &mut cntrs.remote_read,
            &mut cntrs.remote_write,
        ] {
            *cntr = Some(Arc::clone(&self.cntr));
        }
        bind
    }

    fn call_provider_and_fabric(&self) {
        let (info, hints, params) = (Info::default(), Hints::new(), Params::default());
        let provider = LayeredProvider::new(&BELOW as &dyn Provider, ());
        assert_eq!(provider.name(), "below");
        assert_eq!(provider.version(), Version::API);
        assert_eq!(provider.aliases().len(), 1);
        assert!(provider.params().is_empty());
        assert!(!provider.is_enabled(&params));
        assert_fails(provider.getinfo(&Query::new(&hints, &params)));
        provider.fabric(&info).unwrap();
        let fabric = Layered::new(Arc::new(Below) as Arc<dyn Fabric>, ());
        assert_fails(fabric.domain(&info));
        assert_fails(fabric.eq(&eq::Attr::default()));
        assert_fails(fabric.passive_endpoint(&info, Arc::clone(&self.eq)));
        let passive = Layered::new(Arc::new(Below) as Arc<dyn PassiveEndpoint>, ());
        let group = address();
        assert_fails(passive.listen());
        assert_fails(passive.address());
        assert_fails(passive.set_address(&group));
        assert_fails(passive.handle());
        assert_fails(passive.reject(1, b""));
    }

    fn call_domain(&self) {
        let info = Info::default();
        let domain = Layered::new(Arc::new(Below) as Arc<dyn Domain>, ());
        assert_fails(domain.cq(&cq::Attr::default()));
        assert_fails(domain.cntr(&cntr::Attr::default()));
        assert_fails(domain.av(&av::Attr::default()));
        assert_fails(domain.endpoint(&info, self.bindings()));
        assert_fails(domain.option(&info, EpOptionName::MaxMsgSize));
        assert_fails(domain.scalable_endpoint(&info));
        assert_fails(domain.srx(&RxAttr::default()));
        assert_eq!(domain.mr_mode(), MrMode::RAW);
        // SAFETY: no memory is named.
        assert_fails(unsafe { domain.reg(&[], &mr::Attr::default()) });
        assert_fails(domain.alloc(1, &alloc::Attr::default()));
        let cntr = &self.cntr;
        let post = |done| Action::Post {
            ep: &self.ep,
            op: inject(),
            flags: OpFlags::empty(),
            done,
        };
        for action in [
            Action::Set(cntr, 1),
            Action::Add(cntr, 1),
            post(CompletionTarget::Endpoint),
            post(CompletionTarget::Counter(Some(cntr))),
        ] {
            let work = Work {
                cntr,
                threshold: 1,
                action,
            };
            // SAFETY: no memory is named.
            assert_fails(unsafe { domain.queue_work(&work) });
        }
        assert_fails(domain.cancel_work(WorkId(1)));
        assert_fails(domain.flush_work(Some(cntr)));
        assert_fails(domain.query_atomic(Family::Base, Datatype::Int8, atomic::Op::Sum));
        let query = collective::Query {
            coll: collective::Op::Barrier,
            datatype: None,
            op: None,
        };
        assert_fails(domain.query_collective(&query));
        let sep = Layered::new(Arc::new(Below) as Arc<dyn ScalableEndpoint>, ());
        assert_fails(sep.address());
        assert_fails(sep.context(1, &info, self.bindings()));
    }

    fn call_regions(&self) {
        let region = Layered::new(Arc::new(Below) as Arc<dyn MemoryRegion>, ());
        let memory = Layered::new(Arc::new(Below) as Arc<dyn Allocation>, ());
        for region in [&*region as &dyn MemoryRegion, &*memory] {
            assert_eq!(region.key(), 5);
            let _ = region.desc();
            assert_fails(region.bind_counter(&self.cntr, MrAccess::REMOTE_READ));
        }
        assert!(memory.base().is_null() && memory.is_special());
        assert_eq!((memory.len(), memory.remote_addr()), (1, 2));
    }

    fn call_queues(&self) {
        let (mut out, mut src) = ([Entry::default()], [FiAddr(0)]);
        let Self {
            cq, cntr, eq, av, ..
        } = self;
        assert_fails(cq.read(&mut out));
        assert_fails(cq.read_from(&mut out, &mut src));
        assert_fails(cq.read_ready(&mut out, &mut src));
        assert!(!cq.is_ready() && cq.wait_fd().is_some());
        assert_fails(cq.read_err());
        assert_fails(cq.wait(&mut out, None));
        assert_fails(cq.signal());
        assert_fails(cq.try_wait());
        assert_eq!((cntr.read(), cntr.read_err()), (7, 8));
        cntr.add(1);
        cntr.add_err(1);
        cntr.set(1);
        cntr.set_err(1);
        assert!(!cntr.is_ready() && cntr.wait_fd().is_some());
        assert_fails(cntr.wait(1, None));
        assert_fails(cntr.try_wait());
        let context = Context(1);
        assert_fails(eq.read());
        assert_fails(eq.peek());
        assert_fails(eq.read_err());
        assert_fails(eq.write(Event::JoinComplete { context }));
        assert_fails(eq.wait(None));
        assert_fails(eq.try_wait());
        assert!(eq.wait_fd().is_some());
        assert_fails(av.insert(&[], &mut src));
        assert_eq!(av.rejection(&address()).errno(), BELOW_ERROR);
        assert_fails(av.insert_service("", ""));
        assert_fails(av.insert_symmetric("", 1, "", 1, &mut src));
        assert_fails(av.set_user_id(FiAddr(0), FiAddr(1)));
        assert_fails(av.remove(&[]));
        assert_fails(av.lookup(FiAddr(0)));
        assert_fails(av.members());
        assert_eq!(av.identity(), Some(identity()));
    }

    fn call_endpoint(&self) {
        let (ep, context) = (&self.ep, Context(1));
        assert_fails(ep.address());
        assert_fails(ep.peer_credentials(FiAddr(0)));
        assert_fails(ep.cancel(context));
        assert_fails(ep.set(EpOption::MinMultiRecv(1)));
        assert_fails(ep.option(EpOptionName::MinMultiRecv));
        assert_fails(ep.bind_late(&LateBindings {
            tx_cq: Some((Arc::clone(&self.cq), false)),
            ..LateBindings::default()
        }));
        assert_fails(ep.join(&address(), context));
        assert_fails(ep.valid(Family::Base, Datatype::Int8, atomic::Op::Sum));
        let set = av::Set::open(&EmptyVector, &av::SetAttr::default()).unwrap();
        assert_fails(ep.collective().unwrap().join(&set, context));
        assert_fails(ep.lending().unwrap().take_lent(1));
        let cm = ep.cm().unwrap();
        assert_fails(cm.connect(&address(), b""));
        assert_fails(cm.accept(b""));
        assert_fails(cm.shutdown());
        assert_fails(cm.peer());
        for op in operations() {
            // SAFETY: no memory is named.
            assert_fails(unsafe { op.post(&**ep, OpFlags::empty()) });
        }
        assert_fails(self.srx.cancel(context));
        let [recv, trecv] = receives();
        // SAFETY: no memory is named.
        assert_fails(unsafe { recv.post_shared(&*self.srx, OpFlags::empty()) });
        // SAFETY: as above.
        assert_fails(unsafe { trecv.post_shared(&*self.srx, OpFlags::empty()) });
    }
}

/// An empty address vector, for the membership of a set.
#[derive(Debug)]
struct EmptyVector;

impl AddressVector for EmptyVector {
    fn insert(&self, _: &[Address], _: &mut [FiAddr]) -> Result<usize> {
        Err(BELOW_ERROR)
    }

    fn remove(&self, _: &[FiAddr]) -> Result {
        Err(BELOW_ERROR)
    }

    fn lookup(&self, _: FiAddr) -> Result<Address> {
        Err(BELOW_ERROR)
    }
}

/// The identity of the address vector below.
fn identity() -> &'static av::Identity {
    static IDENTITY: LazyLock<av::Identity> = LazyLock::new(|| av::Identity::new(&"below"));
    &IDENTITY
}

fn address() -> Address {
    "127.0.0.1:1".parse().unwrap()
}

fn inject() -> Op<'static> {
    Op::Inject {
        buf: b"",
        dest: FiAddr(0),
        data: None,
    }
}

fn receives() -> [Op<'static>; 2] {
    let (iov, desc, src, context) = (&[], &[], FiAddr(0), Context(1));
    let recv = msg::RecvMsg {
        iov,
        desc,
        src,
        context,
    };
    let trecv = tagged::RecvMsg {
        iov,
        desc,
        src,
        tag: TagMatch::ANY,
        context,
    };
    [Op::Recv(recv), Op::TaggedRecv(trecv)]
}

/// One operation of each kind.
fn operations() -> Vec<Op<'static>> {
    let (dest, context, data, tag) = (FiAddr(0), Context(1), 0, 1);
    let (datatype, op) = (Datatype::Int8, atomic::Op::Sum);
    let [recv, trecv] = receives();
    let send = msg::SendMsg {
        iov: &[],
        desc: &[],
        dest,
        context,
        data,
    };
    let tsend = tagged::SendMsg {
        iov: &[],
        desc: &[],
        dest,
        tag,
        context,
        data,
    };
    let read = ReadMsg {
        iov: &[],
        desc: &[],
        src: dest,
        rma_iov: &[],
        context,
    };
    let write = WriteMsg {
        iov: &[],
        desc: &[],
        dest,
        rma_iov: &[],
        context,
        data,
    };
    let atomic = AtomicMsg {
        iov: &[],
        desc: &[],
        dest,
        rma_iov: &[],
        datatype,
        op,
        context,
        data,
    };
    let target = Target {
        dest,
        addr: 0,
        key: 0,
        datatype,
        op,
    };
    let fetched = selvedge::op::Fetched {
        iov: &[],
        desc: &[],
    };
    let compared = selvedge::op::Compared {
        iov: &[],
        desc: &[],
    };
    let barrier = CollectiveMsg::new(collective::Op::Barrier, dest, datatype, context);
    vec![
        recv,
        trecv,
        inject(),
        Op::Send(send),
        Op::TaggedSend(tsend),
        Op::TaggedInject {
            buf: b"",
            dest,
            tag,
            data: None,
        },
        Op::Read(read),
        Op::Write(write),
        Op::InjectWrite {
            buf: b"",
            dest,
            addr: 0,
            key: 0,
            data: None,
        },
        Op::Atomic(atomic),
        Op::FetchAtomic(atomic, fetched),
        Op::CompareAtomic(atomic, compared, fetched),
        Op::InjectAtomic { buf: b"", target },
        Op::Collective(barrier),
    ]
}

/// Checks that a call returns the error of the object below.
fn assert_fails<T, E: Into<Errno>>(fail: Result<T, E>) {
    let errno = fail.map(drop).map_err(Into::into);
    assert_eq!(errno, Err(BELOW_ERROR));
}

/// Default methods that call other methods of the contract: a layer sees those calls.
const DERIVED: [&str; 5] = [
    "AddressVector::insert_one",
    "Rma::read_one",
    "Rma::write_one",
    "Atomic::atomic_one",
    "Atomic::fetch_atomic_one",
];
/// Memberships and lent bytes are passed on without a layer: there is nothing to change in them.
const UNLAYERED: [&str; 2] = ["Membership", "LentMemory"];

/// The methods of the objects of the contract, read from its sources.
fn contract_methods() -> BTreeSet<String> {
    let mut unread = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src")];
    let mut found = BTreeSet::new();
    while let Some(path) = unread.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(path).unwrap();
            unread.extend(entries.map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|it| it == "rs") {
            found.extend(declared_methods(&fs::read_to_string(path).unwrap()));
        }
    }
    found
}

fn declared_methods(text: &str) -> Vec<String> {
    let (mut object, mut found) = (None, Vec::new());
    for line in text.lines() {
        let declared = line.strip_prefix("pub trait ");
        if let Some(rest) = declared.or_else(|| line.strip_prefix("pub unsafe trait ")) {
            let name = rest.split([':', ' ', '{']).next().unwrap();
            object = Some(name).filter(|name| !name.ends_with("Ext") && !UNLAYERED.contains(name));
        } else if line == "}" {
            object = None;
        }
        let method = line.strip_prefix("    fn ");
        let method = method.or_else(|| line.strip_prefix("    unsafe fn "));
        if let (Some(object), Some(method)) = (object, method) {
            let name = method.split(['(', '<']).next().unwrap();
            found.push(format!("{object}::{name}"));
        }
    }
    found
}

#[test]
fn every_call_of_the_contract_reaches_the_object_below_a_layer_that_changes_nothing() {
    let layered = LayeredObjects::new();
    layered.call_provider_and_fabric();
    layered.call_domain();
    layered.call_regions();
    layered.call_queues();
    layered.call_endpoint();
    let mut contract = contract_methods();
    for derived in DERIVED {
        assert!(contract.remove(derived), "{derived} is not a method");
    }
    let calls = CALLS.lock().unwrap();
    let calls: BTreeSet<_> = calls.iter().map(|&call| call.to_owned()).collect();
    assert_eq!(calls, contract);
}
