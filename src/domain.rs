//! Domains: fi_domain(3).

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::info::RxAttr;
use crate::{
    AddressVector, Allocation, Bindings, CompletionQueue, Counter, Endpoint, EpOption,
    EpOptionName, Errno, Error, Info, IovMut, Limits, MemoryRegion, MrMode, Result,
    ScalableEndpoint, SharedReceives, alloc, atomic, av, cntr, collective, cq, mr, trigger,
};

/// One interface of a fabric: what queues, address vectors, memory and endpoints belong to.
///
/// Objects opened from a domain keep it alive; handles may be dropped in any order. Messages name a
/// domain by its `Debug`, which is a few words for that reason.
///
/// # Safety
/// For implementors: [`crate::owned`] lends memory to what a domain opens, and takes it back at the
/// word of the domain's queues. So:
/// - an entry of a queue that carries the context of an outstanding operation, and neither
///   [`crate::CompletionFlags::REMOTE_READ`] nor [`crate::CompletionFlags::REMOTE_WRITE`], is that
///   operation's, and is pushed when the endpoint is done with its memory, as
///   [`crate::Endpoint`] promises. Outstanding is what was posted to an endpoint bound to the queue
///   and has no entry yet;
/// - after the last handle of a region was dropped, nobody reads or writes its bytes by its rights;
/// - what peers do to a region is carried out in this process through [`crate::shared::SharedBytes`]
///   of the whole region or its parts, or by the system;
/// - [`Self::mr_mode`] has [`MrMode::LOCAL`] if operations on memory without registration could
///   touch other memory than they name.
#[expect(unsafe_code, reason = "the safe layer relies on this promise")]
pub unsafe trait Domain: Any + fmt::Debug + Send + Sync {
    /// Opens a completion queue (fi_cq_open(3)).
    ///
    /// # Errors
    /// The attribute that the provider cannot honour, and its value.
    fn cq(&self, attr: &cq::Attr) -> Result<Arc<dyn CompletionQueue>, Error>;

    /// Opens a counter (fi_cntr_open(3)).
    ///
    /// # Errors
    /// [`Errno::NoSys`] where the provider has none.
    fn cntr(&self, attr: &cntr::Attr) -> Result<Arc<dyn Counter>, Error> {
        let _ = attr;
        Err(Error::new(
            Errno::NoSys,
            format!("{self:?} has no counters"),
        ))
    }

    /// Opens an address vector (fi_av_open(3)).
    ///
    /// # Errors
    /// The attribute that the provider cannot honour, and its value.
    fn av(&self, attr: &av::Attr) -> Result<Arc<dyn AddressVector>, Error>;

    /// Opens an endpoint, bound and enabled (fi_endpoint(3), fi_ep_bind(3), fi_enable(3)).
    ///
    /// # Errors
    /// What of `info` or `bind` does not fit, or which system resource was missing.
    fn endpoint(&self, info: &Info, bind: Bindings) -> Result<Arc<dyn Endpoint>, Error>;

    /// What an endpoint of this description answers to [`Endpoint::option`] until the option is set:
    /// fi_getopt(3) may be called before fi_enable(3).
    ///
    /// # Errors
    /// [`Errno::NoProtoOpt`] where the option is unknown.
    fn option(&self, info: &Info, name: EpOptionName) -> Result<EpOption> {
        Limits::of(info).option(name)
    }

    /// Opens a scalable endpoint (fi_scalable_ep, fi_endpoint(3)) with as many contexts as the larger
    /// of `ep_attr.tx_ctx_cnt` and `ep_attr.rx_ctx_cnt` says.
    ///
    /// # Errors
    /// [`Errno::NoSys`] where the provider has none; [`Errno::Inval`] for more contexts than
    /// `domain_attr.max_ep_tx_ctx` and `max_ep_rx_ctx`; those of [`Self::endpoint`].
    fn scalable_endpoint(&self, info: &Info) -> Result<Arc<dyn ScalableEndpoint>, Error> {
        let _ = info;
        Err(Error::new(
            Errno::NoSys,
            format!("{self:?} has no scalable endpoints"),
        ))
    }

    /// Opens a shared receive context (fi_srx_context, fi_endpoint(3)).
    ///
    /// # Errors
    /// [`Errno::NoSys`] where the provider has none.
    fn srx(&self, attr: &RxAttr) -> Result<Arc<dyn SharedReceives>, Error> {
        let _ = attr;
        Err(Error::new(
            Errno::NoSys,
            format!("{self:?} has no shared receive contexts"),
        ))
    }

    /// What registration asks of the application (`domain_attr.mr_mode` as it was opened).
    fn mr_mode(&self) -> MrMode {
        MrMode::empty()
    }

    /// Registers memory (fi_mr_regattr(3)).
    ///
    /// # Safety
    /// The bytes of `region` stay valid until the region is dropped. With remote rights, peers
    /// read and write them at any time: the owner accesses bytes that they may be using through
    /// [`crate::shared::SharedBytes`] of the region, or by atomics of its granules, never through
    /// references that assume that they do not change.
    ///
    /// # Errors
    /// [`Errno::NoKey`] when the wanted key is taken; [`Errno::NoSys`] where memory cannot be
    /// registered.
    #[expect(unsafe_code, reason = "the caller's promise about the memory")]
    unsafe fn reg(
        &self,
        region: &[IovMut],
        attr: &mr::Attr,
    ) -> Result<Arc<dyn MemoryRegion>, Error> {
        let _ = (region, attr);
        Err(Error::new(
            Errno::NoSys,
            format!("{self:?} does not register memory"),
        ))
    }

    /// Makes memory, registered from its birth on: special memory where the provider has it, which
    /// peers of the machine reach by loads and stores. Domains without it make ordinary memory, and
    /// register that if peers or [`MrMode::LOCAL`] ask for it.
    ///
    /// # Errors
    /// [`Errno::Inval`] for a length of zero; [`Errno::NoMem`] when there is no such memory; those of
    /// [`Self::reg`].
    fn alloc(&self, len: usize, attr: &alloc::Attr) -> Result<Arc<dyn Allocation>, Error> {
        alloc::ordinary(self, len, attr)
    }

    /// Queues work until its counter has reached a number (fi_trigger(3); `FI_QUEUE_WORK`). If it
    /// has, the work is carried out at once; otherwise by whoever reads a queue or counter of the
    /// domain when it has.
    ///
    /// # Safety
    /// As the post that the work names, as if it was posted here; the bytes stay as promised until
    /// the completion, or until the work was taken back.
    ///
    /// # Errors
    /// [`Errno::NoSys`] where there is no such work, or not with such flags; [`Errno::Inval`] for an
    /// endpoint or a counter of another provider.
    #[expect(unsafe_code, reason = "the caller's promise about the memory")]
    unsafe fn queue_work(&self, work: &trigger::Work<'_>) -> Result<trigger::WorkId, Error> {
        let _ = work;
        Err(Error::new(
            Errno::NoSys,
            format!("{self:?} has no work that waits"),
        ))
    }

    /// Takes work back that waits (`FI_CANCEL_WORK`): it will not be carried out.
    ///
    /// # Errors
    /// [`Errno::NoEnt`] when it does not wait any more.
    fn cancel_work(&self, ticket: trigger::WorkId) -> Result {
        let _ = ticket;
        Err(Errno::NoSys)
    }

    /// Takes back all work that waits, or all that waits at a counter (`FI_FLUSH_WORK`).
    ///
    /// # Errors
    /// [`Errno::Inval`] for a counter of another provider.
    fn flush_work(&self, cntr: Option<&Arc<dyn Counter>>) -> Result {
        let _ = cntr;
        Err(Errno::NoSys)
    }

    /// Which atomics the domain carries (fi_query_atomic(3)).
    ///
    /// # Errors
    /// [`Errno::OpNotSupp`] where it does not.
    fn query_atomic(
        &self,
        family: atomic::Family,
        datatype: atomic::Datatype,
        op: atomic::Op,
    ) -> Result<atomic::Attr> {
        let _ = (family, datatype, op);
        Err(Errno::OpNotSupp)
    }

    /// Which collectives the domain's endpoints carry (fi_query_collective(3)).
    ///
    /// # Errors
    /// [`Errno::OpNotSupp`] for what they do not; [`Errno::Inval`] for a type where there is no
    /// data, or none where there is.
    fn query_collective(&self, query: &collective::Query) -> Result<collective::Attr> {
        let _ = query;
        Err(Errno::OpNotSupp)
    }
}
