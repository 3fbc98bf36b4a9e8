//! Domains: `struct fid_domain`.

#![expect(unsafe_code, reason = "functions of C")]

mod mr;

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use selvedge::atomic::Family;
use selvedge::info::Version;
use selvedge::{AddrFormat, Caps, Errno, Hints, Info, Result};
use selvedge_abi as abi;
use selvedge_abi::{Abi, Fid, FidDomain, FidEp, Ops, OpsDomain, OpsMr, fclass, number};

use crate::av::Av;
use crate::ep::Ep;
use crate::ep::post::deferred::QueuedWork;
use crate::ep::post::{atomic, collective};
use crate::ep::scalable::Sep;
use crate::ep::shared::{Srx, Stx};
use crate::info;
use crate::object::{self, Object, Table, argument, class, open_child};
use crate::pointer::{prefix, put};
use crate::process::adopt_info;
use crate::queue::cntr::Cntr;
use crate::queue::cq::Cq;
use crate::queue::eq::Eq;
use crate::queue::poll::PollSet;
use crate::status::{error_status, guarded_unit};
use mr::{Mr, Registration};

/// The object behind the handle of a domain.
pub(crate) struct Domain {
    inner: Arc<dyn selvedge::Domain>,
    version: Version,
    abi: Abi,
    /// The format of the domain's addresses.
    format: AddrFormat,
    /// Whether the domain was opened with `FI_HMEM`.
    has_hmem: bool,
    /// The program's promise about its threads.
    hints: Hints,
    /// The domain's deferred work that is queued.
    queued_work: QueuedWork,
}

class! {
    Domain, FidDomain, FID, |_| fclass::DOMAIN;
    tables |_| ops: &DOMAIN, mr: &MR
}

static FID: Table<Ops, Domain> = object::ops::<Domain>()
    // Event queues are accepted, but receive no events: the operations that would report to them
    // complete at once.
    .bind(|_, fid, flags| {
        guarded_unit(|| {
            // SAFETY: the C caller passes a handle, as fi_domain_bind(3) requires.
            unsafe { argument::<Eq>(fid) }?;
            match flags {
                0 => Ok(()),
                _ => Err(Errno::BadFlags),
            }
        })
    })
    .control(|domain, command, arg| {
        // SAFETY: the C caller follows fi_trigger(3).
        guarded_unit(|| unsafe { domain.queued_work.control(&*domain.inner, command, arg) })
    });
static DOMAIN: Table<OpsDomain, Domain> = Table::<OpsDomain, Domain>::empty()
    // fi_av_open(3)
    .av_open(|domain, attr, out, context| {
        let Domain { inner, format, .. } = &**domain;
        open_child!(domain, out, context, Av::open(&**inner, *format, attr))
    })
    // fi_cq_open(3)
    .cq_open(|domain, attr, out, context| {
        let Domain { inner, version, .. } = &**domain;
        open_child!(domain, out, context, Cq::open(&**inner, *version, attr))
    })
    // fi_cntr_open(3)
    .cntr_open(|domain, attr, out, context| {
        open_child!(domain, out, context, Cntr::open(&*domain.inner, attr))
    })
    // fi_endpoint(3)
    .endpoint(|domain, info, out, context| {
        // SAFETY: the C caller follows fi_endpoint(3).
        guarded_unit(|| unsafe { domain.open_endpoint(info, out, context) })
    })
    .endpoint2(|domain, info, out, flags, context| {
        guarded_unit(|| match flags {
            // SAFETY: the C caller follows fi_endpoint2(3).
            0 => unsafe { domain.open_endpoint(info, out, context) },
            _ => Err(Errno::BadFlags),
        })
    })
    // fi_scalable_ep(3)
    .scalable_ep(|domain, info, out, context| {
        open_child!(domain, out, context, domain.scalable_ep(info))
    })
    // fi_poll_open(3)
    .poll_open(|domain, attr, out| open_child!(domain, out, ptr::null_mut(), PollSet::open(attr)))
    // fi_stx_context(3)
    .stx_ctx(|domain, _attr, out, context| {
        // SAFETY: the C caller follows fi_stx_context(3).
        guarded_unit(|| unsafe { domain.child(out, context, || Ok(Stx)) })
    })
    // fi_srx_context(3)
    .srx_ctx(|domain, attr, out, context| {
        open_child!(domain, out, context, Srx::open(&*domain.inner, attr))
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
        guarded_unit(|| unsafe { collective::query(&*domain.inner, coll, attr.cast(), flags) })
    });

/// The functions that register memory of the domain.
static MR: Table<OpsMr, Domain> = Table::<OpsMr, Domain>::empty()
    // fi_mr_reg(3)
    .reg(
        |domain, buf, len, access, offset, key, flags, out, context| {
            let request = Registration {
                iov: &abi::Iovec {
                    iov_base: buf.cast_mut(),
                    iov_len: len,
                },
                count: 1,
                access,
                offset,
                key,
                flags,
                device: SYSTEM,
            };
            open_child!(domain, out, context, Mr::register(&*domain.inner, &request))
        },
    )
    // fi_mr_regv(3)
    .regv(
        |domain, iov, count, access, offset, key, flags, out, context| {
            let request = Registration {
                iov,
                count,
                access,
                offset,
                key,
                flags,
                device: SYSTEM,
            };
            open_child!(domain, out, context, Mr::register(&*domain.inner, &request))
        },
    )
    // fi_mr_regattr(3)
    .regattr(|domain, attr, flags, out| {
        // A program that did not request FI_HMEM need not fill in the members for devices.
        let size = if domain.has_hmem {
            MR_ATTR_HMEM
        } else {
            MR_ATTR_1_0
        };
        // SAFETY: the C caller follows fi_mr_regattr(3).
        let attr = match unsafe { prefix(attr, size) } {
            Ok(attr) => attr,
            Err(errno) => return error_status(errno),
        };
        let request = Registration {
            iov: attr.mr_iov,
            count: attr.iov_count,
            access: attr.access,
            offset: attr.offset,
            key: attr.requested_key,
            flags,
            device: if domain.has_hmem {
                (attr.iface, attr.device)
            } else {
                SYSTEM
            },
        };
        open_child!(
            domain,
            out,
            attr.context,
            Mr::register(&*domain.inner, &request)
        )
    });

/// Bytes of `struct fi_mr_attr` that every version has. Later members describe devices.
const MR_ATTR_1_0: usize = 64;
/// Bytes of the structure up to the number of the device.
const MR_ATTR_HMEM: usize = std::mem::offset_of!(abi::MrAttr, hmem_data);
/// The interface and the device of the system's memory.
const SYSTEM: (u32, u64) = (0, 0);

impl Domain {
    /// The object of an opened domain, for a program of this API version and layout. `hints` has
    /// the program's promise about its threads.
    pub(crate) fn new(
        inner: Arc<dyn selvedge::Domain>,
        info: &Info,
        hints: Hints,
        version: Version,
        abi: Abi,
    ) -> Self {
        Self {
            inner,
            version,
            abi,
            format: info.addr_format,
            has_hmem: info.caps.contains(Caps::HMEM),
            hints,
            queued_work: QueuedWork::default(),
        }
    }

    /// Reads the info of an endpoint, and completes it with the domain's threading promise. Returns
    /// the handle beside it.
    ///
    /// # Errors
    /// [`Errno::NoDev`] for an unknown provider.
    ///
    /// # Safety
    /// `info` is NULL or an info of the domain's layout.
    unsafe fn read_info(&self, info: *const abi::Info) -> Result<(Info, *mut Fid)> {
        // SAFETY: passed on from the caller.
        let parsed = unsafe { info::read(info, self.abi) }?;
        Ok((adopt_info(parsed.info, &self.hints)?, parsed.handle))
    }
}

impl Object<Domain> {
    /// # Safety
    /// The caller follows fi_endpoint(3).
    unsafe fn open_endpoint(
        &self,
        info: *const abi::Info,
        out: *mut *mut FidEp,
        context: *mut c_void,
    ) -> Result {
        let make = || {
            // SAFETY: passed on from the caller.
            let (info, handle) = unsafe { self.read_info(info) }?;
            // SAFETY: passed on from the caller.
            unsafe { Ep::open(&self.inner, self.new_user(), info, handle) }
        };
        // Aliases keep the domain open, too, so the endpoint's shared state is its user.
        // SAFETY: passed on from the caller.
        unsafe { object::open(out, context, None, make) }
    }

    /// # Safety
    /// The caller follows fi_scalable_ep(3).
    unsafe fn scalable_ep(&self, info: *const abi::Info) -> Result<Sep> {
        // SAFETY: passed on from the caller.
        let (info, _) = unsafe { self.read_info(info) }?;
        Sep::open(&self.inner, self.new_user(), info)
    }
}
