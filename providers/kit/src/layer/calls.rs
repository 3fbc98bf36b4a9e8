//! The calls of the contract, object by object: one line for each. Endpoints are in `endpoint.rs`.

#![expect(
    unsafe_code,
    reason = "objects around objects, whose promises are passed on"
)]

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use selvedge::cq::Entry;
use selvedge::eq::Event;
use selvedge::info::{Candidate, RxAttr, Version};
use selvedge::trigger::{Work, WorkId};
use selvedge::{
    Address, AddressVector, Alias, Allocation, Bindings, CompletionQueue, Context, Counter, Desc,
    Domain, Endpoint, EpOption, EpOptionName, Error, EventQueue, Fabric, FiAddr, Info, IovMut,
    MemoryRegion, MrAccess, MrMode, Msg, Op, OpFlags, PassiveEndpoint, Provider, Query, Result,
    ScalableEndpoint, SharedReceives, Tagged, alloc, atomic, av, cntr, collective, cq, eq, mr, msg,
    param, tagged,
};

use super::named::{replace_in_error, replace_in_event};
use super::{Layered, Layers, Object, ObjectLayer};

/// Generates two items from a list of calls: the trait of a layer, which forwards each call by
/// default, and the implementation of the object with the layer, which passes each call to the
/// layer.
///
/// `= EXPR` after a call replaces the default; `=> FUNCTION` is applied to the layer's result.
/// Methods that this form cannot express follow in `layer` and `object`.
macro_rules! layered {
    (
        $(#[$doc:meta])*
        $([$unsafe:tt])? trait $Layer:ident |$below:ident| $Object:ident in $Layered:ty
            $(where ($Below:ident: $($bound:tt)+))?
        {
            $(
                fn $name:ident $(<$lt:lifetime>)? ($($arg:ident: $type:ty),* $(,)?)
                    $(-> $result:ty)? $(= $default:expr)? $(=> $function:path)?;
            )*
        }
        $(layer { $($layer:tt)* })?
        $(object { $($object:tt)* })?
    ) => {
        $(#[$doc])*
        pub $($unsafe)? trait $Layer: ObjectLayer {
            $(
                #[doc = concat!("[`", stringify!($Object), "::", stringify!($name), "`]")]
                fn $name $(<$lt>)? (
                    &$($lt)? self, $below: &$($lt)? dyn $Object $(, $arg: $type)*
                ) $(-> $result)? {
                    layered!(@default $below.$name($($arg),*) $(, $default)?)
                }
            )*
            $($($layer)*)?
        }

        // SAFETY: if the object below keeps its promise, so does the layer, as the trait requires.
        $($unsafe)? impl<L: $Layer $(, $Below: $($bound)+)?> $Object for $Layered {
            $(
                fn $name $(<$lt>)? (&$($lt)? self $(, $arg: $type)*) $(-> $result)? {
                    layered!(@result self.layer.$name(&*self.below $(, $arg)*) $(, $function)?)
                }
            )*
            $($($object)*)?
        }

        // SAFETY: the layer changes no call.
        $($unsafe)? impl $Layer for () {}
    };
    (@default $pass:expr) => { $pass };
    (@default $pass:expr, $default:expr) => { $default };
    (@result $result:expr) => { $result };
    (@result $result:expr, $function:path) => { $result.map($function) };
}
pub(super) use layered;

macro_rules! objects {
    ($($Object:ident),+) => {
        $(
            impl Object for dyn $Object {
                fn as_any(&self) -> &dyn Any {
                    self
                }
            }
        )+
    };
}

objects!(
    AddressVector,
    CompletionQueue,
    Counter,
    Endpoint,
    EventQueue,
    SharedReceives
);

/// A provider with a layer around it; `P` is a handle of the provider below.
pub struct LayeredProvider<P, L> {
    below: P,
    layer: L,
}

impl<P, L> LayeredProvider<P, L> {
    /// Puts a layer around a provider.
    pub const fn new(below: P, layer: L) -> Self {
        Self { below, layer }
    }
}

impl<P: Deref<Target = dyn Provider>, L> fmt::Debug for LayeredProvider<P, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.below.fmt(f)
    }
}

layered! {
    /// A layer around a provider.
    trait ProviderLayer |below| Provider in LayeredProvider<P, L>
        where (P: Deref<Target = dyn Provider> + Send + Sync)
    {
        fn name() -> &'static str;
        fn version() -> Version;
        fn aliases() -> &'static [Alias];
        fn params() -> &'static [param::Spec];
        fn is_enabled(params: &param::Params) -> bool;
        fn getinfo(query: &Query<'_>) -> Result<Vec<Candidate>, Error>;
        fn fabric(info: &Info) -> Result<Arc<dyn Fabric>, Error>;
    }
}

layered! {
    /// A layer around a fabric.
    trait FabricLayer |below| Fabric in Layered<dyn Fabric, L> {
        fn domain(info: &Info) -> Result<Arc<dyn Domain>, Error>;
        fn eq(attr: &eq::Attr) -> Result<Arc<dyn EventQueue>, Error>;
        fn passive_endpoint(info: &Info, eq: Arc<dyn EventQueue>)
            -> Result<Arc<dyn PassiveEndpoint>, Error>
            = below.passive_endpoint(info, Self::Layers::event_queue(&eq));
    }
}

layered! {
    /// A layer around a domain.
    ///
    /// # Safety
    /// For implementors: with a domain below that keeps the promise of [`Domain`], the layer keeps
    /// it for the objects that are opened through it.
    [unsafe] trait DomainLayer |below| Domain in Layered<dyn Domain, L> {
        fn cq(attr: &cq::Attr) -> Result<Arc<dyn CompletionQueue>, Error>;
        fn cntr(attr: &cntr::Attr) -> Result<Arc<dyn Counter>, Error>;
        fn av(attr: &av::Attr) -> Result<Arc<dyn AddressVector>, Error>;
        fn endpoint(info: &Info, bind: Bindings) -> Result<Arc<dyn Endpoint>, Error>
            = below.endpoint(info, Self::Layers::bindings(bind));
        fn option(info: &Info, name: EpOptionName) -> Result<EpOption>;
        fn scalable_endpoint(info: &Info) -> Result<Arc<dyn ScalableEndpoint>, Error>;
        fn srx(attr: &RxAttr) -> Result<Arc<dyn SharedReceives>, Error>;
        fn mr_mode() -> MrMode;
        fn alloc(len: usize, attr: &alloc::Attr) -> Result<Arc<dyn Allocation>, Error>;
        fn cancel_work(ticket: WorkId) -> Result;
        fn flush_work(cntr: Option<&Arc<dyn Counter>>) -> Result
            = below.flush_work(cntr.map(Self::Layers::counter).as_ref());
        fn query_atomic(family: atomic::Family, datatype: atomic::Datatype, op: atomic::Op)
            -> Result<atomic::Attr>;
        fn query_collective(query: &collective::Query) -> Result<collective::Attr>;
    }
    layer {
        /// [`Domain::reg`]
        ///
        /// # Safety
        /// As for that call.
        unsafe fn reg(
            &self,
            below: &dyn Domain,
            region: &[IovMut],
            attr: &mr::Attr,
        ) -> Result<Arc<dyn MemoryRegion>, Error> {
            // SAFETY: passed on from the caller.
            unsafe { below.reg(region, attr) }
        }

        /// [`Domain::queue_work`]
        ///
        /// # Safety
        /// As for that call.
        unsafe fn queue_work(&self, below: &dyn Domain, work: &Work<'_>) -> Result<WorkId, Error> {
            Self::Layers::work(work, |work| {
                // SAFETY: passed on from the caller.
                unsafe { below.queue_work(work) }
            })
        }
    }
    object {
        unsafe fn reg(
            &self,
            region: &[IovMut],
            attr: &mr::Attr,
        ) -> Result<Arc<dyn MemoryRegion>, Error> {
            // SAFETY: passed on from the caller.
            unsafe { self.layer.reg(&*self.below, region, attr) }
        }

        unsafe fn queue_work(&self, work: &Work<'_>) -> Result<WorkId, Error> {
            // SAFETY: passed on from the caller.
            unsafe { self.layer.queue_work(&*self.below, work) }
        }
    }
}

layered! {
    /// A layer around a scalable endpoint.
    trait ScalableLayer |below| ScalableEndpoint in Layered<dyn ScalableEndpoint, L> {
        fn address() -> Result<Address>;
        fn context(index: usize, info: &Info, bind: Bindings) -> Result<Arc<dyn Endpoint>, Error>
            = below.context(index, info, Self::Layers::bindings(bind));
    }
}

layered! {
    /// A layer around a passive endpoint.
    trait PassiveLayer |below| PassiveEndpoint in Layered<dyn PassiveEndpoint, L> {
        fn listen() -> Result;
        fn address() -> Result<Address>;
        fn set_address(addr: &Address) -> Result<(), Error>;
        fn handle() -> Result<u64>;
        fn reject(handle: u64, data: &[u8]) -> Result;
    }
}

layered! {
    /// A layer around a completion queue.
    trait CqLayer |below| CompletionQueue in Layered<dyn CompletionQueue, L> {
        fn read(out: &mut [Entry]) -> Result<usize>;
        fn read_from(out: &mut [Entry], src: &mut [FiAddr]) -> Result<usize>;
        fn read_ready(out: &mut [Entry], src: &mut [FiAddr]) -> Result<usize>;
        fn is_ready() -> bool;
        fn read_err() -> Result<cq::ErrEntry>;
        fn wait(out: &mut [Entry], timeout: Option<Duration>) -> Result<usize>;
        fn signal() -> Result;
        fn try_wait() -> Result;
        fn wait_fd<'a>() -> Option<BorrowedFd<'a>>;
    }
}

layered! {
    /// A layer around a counter.
    trait CntrLayer |below| Counter in Layered<dyn Counter, L> {
        fn read() -> u64;
        fn read_err() -> u64;
        fn add(value: u64);
        fn add_err(value: u64);
        fn set(value: u64);
        fn set_err(value: u64);
        fn is_ready() -> bool;
        fn wait(threshold: u64, timeout: Option<Duration>) -> Result;
        fn try_wait() -> Result;
        fn wait_fd<'a>() -> Option<BorrowedFd<'a>>;
    }
}

layered! {
    /// A layer around an event queue.
    trait EqLayer |below| EventQueue in Layered<dyn EventQueue, L> {
        fn read() -> Result<Event> => replace_in_event::<L::Layers>;
        fn peek() -> Result<Event> => replace_in_event::<L::Layers>;
        fn read_err() -> Result<eq::ErrEntry> => replace_in_error::<L::Layers>;
        fn write(event: Event) -> Result;
        fn wait(timeout: Option<Duration>) -> Result<Event> => replace_in_event::<L::Layers>;
        fn try_wait() -> Result;
        fn wait_fd<'a>() -> Option<BorrowedFd<'a>>;
    }
}

layered! {
    /// A layer around an address vector.
    trait AvLayer |below| AddressVector in Layered<dyn AddressVector, L> {
        fn insert(addrs: &[Address], out: &mut [FiAddr]) -> Result<usize>;
        fn rejection(addr: &Address) -> Error;
        fn insert_service(node: &str, service: &str) -> Result<FiAddr, Error>;
        fn insert_symmetric(
            node: &str, nodes: usize, service: &str, services: usize, out: &mut [FiAddr],
        ) -> Result<usize, Error>;
        fn set_user_id(addr: FiAddr, id: FiAddr) -> Result;
        fn remove(addrs: &[FiAddr]) -> Result;
        fn lookup(addr: FiAddr) -> Result<Address>;
        fn members() -> Result<Vec<FiAddr>>;
        fn identity<'a>() -> Option<&'a av::Identity>;
    }
}

layered! {
    /// A layer around a shared receive context.
    trait SrxLayer |below| SharedReceives in Layered<dyn SharedReceives, L> {
        fn cancel(context: Context) -> Result;
    }
    layer {
        /// Posts a receive.
        ///
        /// # Safety
        /// As [`Op::post_shared`].
        unsafe fn post(
            &self,
            below: &dyn SharedReceives,
            op: &Op<'_>,
            flags: OpFlags,
        ) -> Result {
            // SAFETY: passed on from the caller.
            unsafe { op.post_shared(below, flags) }
        }
    }
}

impl<L: SrxLayer> Msg for Layered<dyn SharedReceives, L> {
    unsafe fn recvmsg(&self, msg: &msg::RecvMsg<'_>, flags: OpFlags) -> Result {
        // SAFETY: passed on from the caller.
        unsafe { self.layer.post(&*self.below, &Op::Recv(*msg), flags) }
    }
}

impl<L: SrxLayer> Tagged for Layered<dyn SharedReceives, L> {
    unsafe fn trecvmsg(&self, msg: &tagged::RecvMsg<'_>, flags: OpFlags) -> Result {
        // SAFETY: passed on from the caller.
        unsafe { self.layer.post(&*self.below, &Op::TaggedRecv(*msg), flags) }
    }
}

layered! {
    /// A layer around a region: registered memory, or memory that the domain has allocated.
    trait RegionLayer |below| MemoryRegion in Layered<dyn MemoryRegion, L> {
        fn key() -> u64;
        fn desc() -> Desc;
        fn bind_counter(cntr: &Arc<dyn Counter>, events: MrAccess) -> Result<(), Error>
            = below.bind_counter(&Self::Layers::counter(cntr), events);
    }
}

impl<L: RegionLayer> MemoryRegion for Layered<dyn Allocation, L> {
    fn key(&self) -> u64 {
        self.layer.key(&*self.below)
    }

    fn desc(&self) -> Desc {
        self.layer.desc(&*self.below)
    }

    fn bind_counter(&self, cntr: &Arc<dyn Counter>, events: MrAccess) -> Result<(), Error> {
        self.layer.bind_counter(&*self.below, cntr, events)
    }
}

// SAFETY: the memory is that of the allocation below, which lives as long as this object.
unsafe impl<L: RegionLayer> Allocation for Layered<dyn Allocation, L> {
    fn base(&self) -> *mut u8 {
        self.below.base()
    }

    fn len(&self) -> usize {
        self.below.len()
    }

    fn remote_addr(&self) -> u64 {
        self.below.remote_addr()
    }

    fn is_special(&self) -> bool {
        self.below.is_special()
    }
}
