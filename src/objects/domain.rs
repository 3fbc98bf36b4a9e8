//! Domains: fi_domain(3).

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::handle::sole;
use crate::info::RxAttr;
use crate::memory::alloc::Ordinary;
use crate::{
    AddressVector, Allocation, Bindings, CompletionQueue, Counter, Endpoint, EpOption,
    EpOptionName, Errno, Error, Info, IovMut, Limits, MemoryRegion, MrAccess, MrMode, Result,
    ScalableEndpoint, SharedReceives, alloc, atomic, av, cntr, collective, cq, mr, trigger,
};

/// An interface of a fabric, which opens queues, counters, address vectors, memory regions and
/// endpoints.
///
/// Objects opened from a domain keep the domain alive; handles may be dropped in any order. Error
/// texts name a domain by its `Debug` text, which is a few words.
///
/// # Safety
/// For implementors: [`crate::owned`] moves buffers into operations, and reuses them after the
/// completion. Therefore:
/// - a queue entry with the context of an outstanding operation, and with neither
///   [`crate::CompletionFlags::REMOTE_READ`] nor [`crate::CompletionFlags::REMOTE_WRITE`], belongs to
///   that operation, and is pushed after the endpoint's last access to the operation's memory, as
///   [`crate::Endpoint`] promises. An operation is outstanding if it was posted to an endpoint that is
///   bound to the queue and has no entry yet;
/// - after the last handle of a region was dropped, no access uses its rights;
/// - accesses of peers to a region are executed in this process through
///   [`crate::shared::SharedBytes`] of the whole region or its parts, or by the system;
/// - [`Self::mr_mode`] has [`MrMode::LOCAL`] if an operation on unregistered memory could access
///   memory that the operation does not name.
#[expect(unsafe_code, reason = "the safe layer relies on this promise")]
pub unsafe trait Domain: Any + fmt::Debug + Send + Sync {
    /// Opens a completion queue (fi_cq_open(3)).
    ///
    /// # Errors
    /// An error that names the unsupported attribute and its value.
    fn cq(&self, attr: &cq::Attr) -> Result<Arc<dyn CompletionQueue>, Error>;

    /// Opens a counter (fi_cntr_open(3)).
    ///
    /// # Errors
    /// [`Errno::NoSys`] where the provider has no counters.
    fn cntr(&self, attr: &cntr::Attr) -> Result<Arc<dyn Counter>, Error> {
        let _ = attr;
        Err(unsupported(self, "has no counters"))
    }

    /// Opens an address vector (fi_av_open(3)).
    ///
    /// # Errors
    /// An error that names the unsupported attribute and its value.
    fn av(&self, attr: &av::Attr) -> Result<Arc<dyn AddressVector>, Error>;

    /// Opens an endpoint, bound and enabled (fi_endpoint(3), fi_ep_bind(3), fi_enable(3)).
    ///
    /// # Errors
    /// An error that names the attribute of `info` or the binding that does not match, or the
    /// missing system resource.
    fn endpoint(&self, info: &Info, bind: Bindings) -> Result<Arc<dyn Endpoint>, Error>;

    /// Returns the default value of an option of an endpoint opened with `info`. In C, fi_getopt(3)
    /// may be called before fi_enable(3).
    ///
    /// # Errors
    /// [`Errno::NoProtoOpt`] for an option that the provider does not have.
    fn option(&self, info: &Info, name: EpOptionName) -> Result<EpOption> {
        Limits::of(info).option(name)
    }

    /// Opens a scalable endpoint (fi_scalable_ep, fi_endpoint(3)) with as many contexts as the
    /// larger of `ep_attr.tx_ctx_cnt` and `ep_attr.rx_ctx_cnt`.
    ///
    /// # Errors
    /// [`Errno::NoSys`] where the provider has no scalable endpoints; [`Errno::Inval`] for more
    /// contexts than `domain_attr.max_ep_tx_ctx` and `max_ep_rx_ctx`; the errors of
    /// [`Self::endpoint`].
    fn scalable_endpoint(&self, info: &Info) -> Result<Arc<dyn ScalableEndpoint>, Error> {
        let _ = info;
        Err(unsupported(self, "has no scalable endpoints"))
    }

    /// Opens a shared receive context (fi_srx_context, fi_endpoint(3)).
    ///
    /// # Errors
    /// [`Errno::NoSys`] where the provider has no shared receive contexts.
    fn srx(&self, attr: &RxAttr) -> Result<Arc<dyn SharedReceives>, Error> {
        let _ = attr;
        Err(unsupported(self, "has no shared receive contexts"))
    }

    /// Returns the registration modes with which the domain was opened (`domain_attr.mr_mode`).
    fn mr_mode(&self) -> MrMode {
        MrMode::empty()
    }

    /// Registers memory (fi_mr_regattr(3)).
    ///
    /// # Safety
    /// The bytes of `region` stay valid until the region is dropped. With remote rights, peers read
    /// and write the bytes at any time. The owner accesses such bytes through
    /// [`crate::shared::SharedBytes`] of the region, or by atomics of its granules, never through
    /// references, which assume that the bytes do not change.
    ///
    /// # Errors
    /// [`Errno::NoKey`] when the requested key is in use; [`Errno::NoSys`] where memory cannot be
    /// registered.
    #[expect(unsafe_code, reason = "the caller's promise about the memory")]
    unsafe fn reg(
        &self,
        region: &[IovMut],
        attr: &mr::Attr,
    ) -> Result<Arc<dyn MemoryRegion>, Error> {
        let _ = (region, attr);
        Err(unsupported(self, "does not register memory"))
    }

    /// Allocates and registers memory. Providers with special memory allocate special memory, which
    /// peers on the same machine access by loads and stores. Other providers allocate ordinary
    /// memory, and register it if `attr` has remote rights or the domain requires
    /// [`MrMode::LOCAL`].
    ///
    /// # Errors
    /// [`Errno::Inval`] for a length of zero; [`Errno::NoMem`] when the memory cannot be allocated;
    /// the errors of [`Self::reg`].
    fn alloc(&self, len: usize, attr: &alloc::Attr) -> Result<Arc<dyn Allocation>, Error> {
        allocate_ordinary(self, len, attr)
    }

    /// Queues deferred work until its counter reaches a threshold (fi_trigger(3); `FI_QUEUE_WORK`).
    /// If the counter has already reached the threshold, this call executes the work; otherwise the
    /// progress of the domain's queues and counters executes it.
    ///
    /// # Safety
    /// The caller makes the promise of the post in `work`, as if this call posted it. The promise
    /// holds until the completion, or until the work is cancelled.
    ///
    /// # Errors
    /// [`Errno::NoSys`] where the provider does not support the work or its flags;
    /// [`Errno::Inval`] for an endpoint or a counter of another provider.
    #[expect(unsafe_code, reason = "the caller's promise about the memory")]
    unsafe fn queue_work(&self, work: &trigger::Work<'_>) -> Result<trigger::WorkId, Error> {
        let _ = work;
        Err(unsupported(self, "has no deferred work"))
    }

    /// Cancels queued work (`FI_CANCEL_WORK`).
    ///
    /// # Errors
    /// [`Errno::NoEnt`] when the work is no longer queued.
    fn cancel_work(&self, id: trigger::WorkId) -> Result {
        let _ = id;
        Err(Errno::NoSys)
    }

    /// Cancels all queued work, or all work that waits for `cntr` (`FI_FLUSH_WORK`).
    ///
    /// # Errors
    /// [`Errno::Inval`] for a counter of another provider.
    fn flush_work(&self, cntr: Option<&Arc<dyn Counter>>) -> Result {
        let _ = cntr;
        Err(Errno::NoSys)
    }

    /// Queries the limits of an atomic (fi_query_atomic(3)).
    ///
    /// # Errors
    /// [`Errno::OpNotSupp`] for an unsupported atomic.
    fn query_atomic(
        &self,
        family: atomic::Family,
        datatype: atomic::Datatype,
        op: atomic::Op,
    ) -> Result<atomic::Attr> {
        let _ = (family, datatype, op);
        Err(Errno::OpNotSupp)
    }

    /// Queries the limits of a collective (fi_query_collective(3)).
    ///
    /// # Errors
    /// [`Errno::OpNotSupp`] for an unsupported collective; [`Errno::Inval`] for a collective without
    /// data that has a data type, or a collective with data that has none.
    fn query_collective(&self, query: &collective::Query) -> Result<collective::Attr> {
        let _ = query;
        Err(Errno::OpNotSupp)
    }
}

/// The error of a domain that lacks objects or calls.
#[cold]
fn unsupported(domain: &(impl fmt::Debug + ?Sized), text: &str) -> Error {
    Error::new(Errno::NoSys, format!("{domain:?} {text}"))
}

/// Allocates private memory of this process, for domains without special memory. The memory is
/// registered if `attr` has remote rights, or if the domain requires `FI_MR_LOCAL`.
///
/// # Errors
/// [`Errno::Inval`] for a length of zero; [`Errno::NoMem`] when the memory cannot be allocated; the
/// errors of [`Domain::reg`].
pub(crate) fn allocate_ordinary(
    domain: &(impl Domain + ?Sized),
    len: usize,
    attr: &alloc::Attr,
) -> Result<Arc<dyn Allocation>, Error> {
    let mr_mode = domain.mr_mode();
    let mut memory = Ordinary::new(len, mr_mode)?;
    let remote = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
    if attr.access.intersects(remote) || mr_mode.contains(MrMode::LOCAL) {
        memory.set_region(register(domain, memory.segment(), attr)?);
    }
    Ok(Arc::new(memory))
}

/// Registers memory of an [`Ordinary`], which becomes the owner of the region.
#[expect(unsafe_code, reason = "registration is a promise about the memory")]
fn register(
    domain: &(impl Domain + ?Sized),
    segment: IovMut,
    attr: &alloc::Attr,
) -> Result<Arc<dyn MemoryRegion>, Error> {
    let local = MrAccess::SEND | MrAccess::RECV | MrAccess::READ | MrAccess::WRITE;
    let attr = mr::Attr {
        access: attr.access | local,
        requested_key: attr.requested_key,
        ..mr::Attr::default()
    };
    // SAFETY: `Ordinary` drops the only handle of the region before the memory. With remote rights,
    // `Allocation` tells its holder that peers may change the bytes.
    sole(unsafe { domain.reg(&[segment], &attr) }?, "memory region")
}
