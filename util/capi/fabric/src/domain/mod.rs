//! Domains: `struct fid_domain`.

#![expect(unsafe_code, reason = "functions of C")]

pub(crate) mod mr;

use std::ffi::c_void;
use std::sync::Arc;

use selvedge::atomic::Family;
use selvedge::info::Version;
use selvedge::{AddrFormat, Errno, Hints, Result};
use selvedge_abi as abi;
use selvedge_abi::{Abi, Fid, FidDomain, Ops, OpsDomain, fclass, number};

use crate::ep::post::deferred::{self, QueuedWork};
use crate::ep::post::{atomic, collective};
use crate::ep::{self, scalable, shared};
use crate::fabric::{Fabric, adopt_info};
use crate::object::{self, Class, Object, Table, argument};
use crate::pointer::put;
use crate::queue::cntr;
use crate::queue::cq;
use crate::queue::eq;
use crate::queue::poll as sets;
use crate::status::{guarded_unit, log_error};
use crate::{av, info};

/// The object behind the handle of a domain.
pub(crate) struct Domain {
    pub(crate) inner: Arc<dyn selvedge::Domain>,
    pub(crate) version: Version,
    pub(crate) abi: Abi,
    /// The format of the domain's addresses.
    pub(crate) format: AddrFormat,
    /// The program's promise about its threads.
    hints: Hints,
    /// The domain's deferred work that is queued.
    pub(crate) queued_work: QueuedWork,
}

impl Domain {
    /// Completes the info of an endpoint with the domain's threading promise.
    ///
    /// # Errors
    /// [`Errno::NoDev`] for an unknown provider.
    pub(crate) fn adopt_info(&self, info: selvedge::Info) -> Result<selvedge::Info> {
        adopt_info(info, &self.hints)
    }
}

// SAFETY: `fid_domain` begins with its fid, and has two tables of functions behind it.
unsafe impl Class for Domain {
    type Handle = FidDomain;
    const FCLASS: usize = fclass::DOMAIN;
    const OPS: &'static Table<Ops, Self> = &FID;

    fn handle(&self, fid: Fid) -> FidDomain {
        let (ops, mr) = (&DOMAIN.ops, &mr::MR.ops);
        FidDomain { fid, ops, mr }
    }
}

static FID: Table<Ops, Domain> = object::ops::<Domain>()
    // Event queues are accepted, but receive no events: the operations that would report to them
    // complete at once.
    .bind(|_, fid, flags| {
        guarded_unit(|| {
            // SAFETY: the C caller passes a handle, as fi_domain_bind(3) requires.
            unsafe { argument::<eq::Eq>(fid) }?;
            match flags {
                0 => Ok(()),
                _ => Err(Errno::BadFlags),
            }
        })
    })
    .control(|domain, command, arg| {
        // SAFETY: the C caller follows fi_trigger(3).
        guarded_unit(|| unsafe { deferred::control(domain, command, arg) })
    });
static DOMAIN: Table<OpsDomain, Domain> = Table::<OpsDomain, Domain>::empty()
    .av_open(|domain, attr, av, context| {
        // SAFETY: the C caller follows fi_av_open(3).
        guarded_unit(|| unsafe { av::open(domain, attr, av, context) })
    })
    .cq_open(|domain, attr, cq, context| {
        // SAFETY: the C caller follows fi_cq_open(3).
        guarded_unit(|| unsafe { cq::open(domain, attr, cq, context) })
    })
    .cntr_open(|domain, attr, cntr, context| {
        // SAFETY: the C caller follows fi_cntr_open(3).
        guarded_unit(|| unsafe { cntr::open(domain, attr, cntr, context) })
    })
    .endpoint(|domain, info, ep, context| {
        // SAFETY: the C caller follows fi_endpoint(3).
        guarded_unit(|| unsafe { ep::open(domain, info, ep, context) })
    })
    .endpoint2(|domain, info, ep, flags, context| {
        guarded_unit(|| match flags {
            // SAFETY: the C caller follows fi_endpoint2(3).
            0 => unsafe { ep::open(domain, info, ep, context) },
            _ => Err(Errno::BadFlags),
        })
    })
    .scalable_ep(|domain, info, sep, context| {
        // SAFETY: the C caller follows fi_scalable_ep(3).
        guarded_unit(|| unsafe { scalable::open(domain, info, sep, context) })
    })
    .poll_open(|domain, attr, set| {
        // SAFETY: the C caller follows fi_poll_open(3).
        guarded_unit(|| unsafe { sets::open_poll(domain, attr, set) })
    })
    .stx_ctx(|domain, _attr, stx, context| {
        // SAFETY: the C caller follows fi_stx_context(3).
        guarded_unit(|| unsafe { domain.child(stx, context, || Ok(shared::Stx)) })
    })
    .srx_ctx(|domain, attr, srx, context| {
        // SAFETY: the C caller follows fi_srx_context(3).
        guarded_unit(|| unsafe { shared::open_srx(domain, attr, srx, context) })
    })
    .query_atomic(|domain, datatype, op, attr, flags| {
        guarded_unit(|| {
            let family = match flags {
                0 => Family::Base,
                number::atomic::FETCH => Family::Fetch,
                number::atomic::COMPARE => Family::Compare,
                _ => return Err(Errno::BadFlags),
            };
            let (datatype, op) = atomic::datatype_and_op(datatype, op)?;
            let limits = domain.inner.query_atomic(family, datatype, op)?;
            let (count, size) = (limits.count, limits.size);
            // SAFETY: the C caller follows fi_query_atomic(3).
            unsafe { put(attr, abi::AtomicAttr { count, size }) }
        })
    })
    .query_collective(|domain, coll, attr, flags| {
        // SAFETY: the C caller follows fi_query_collective(3).
        guarded_unit(|| unsafe { collective::query(domain, coll, attr.cast(), flags) })
    });
/// Opens a domain.
///
/// # Errors
/// [`Errno::Inval`] for NULL; the provider's.
///
/// # Safety
/// `info` is NULL or an info of the fabric's layout, `out` is NULL or may be written.
pub(crate) unsafe fn open(
    fabric: &Object<Fabric>,
    info: *const abi::Info,
    out: *mut *mut FidDomain,
    context: *mut c_void,
) -> Result {
    let make = || {
        // SAFETY: passed on from the caller.
        let parsed = unsafe { info::read(info, fabric.abi()) }?;
        // SAFETY: by fi_domain(3), `domain_attr.threading` is the program's promise for all objects
        // of the domain.
        let hints = unsafe { Hints::new().promise_threading(parsed.threading) };
        let info = adopt_info(parsed.info, &hints)?;
        Ok(Domain {
            inner: fabric
                .inner
                .domain(&info)
                .map_err(|error| log_error(&error))?,
            version: fabric.version,
            abi: fabric.abi(),
            format: info.addr_format,
            hints,
            queued_work: QueuedWork::default(),
        })
    };
    // SAFETY: passed on from the caller.
    unsafe { fabric.child(out, context, make) }
}
