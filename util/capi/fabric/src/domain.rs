//! Domains: `struct fid_domain`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use selvedge::atomic::{Datatype, Family, Op};
use selvedge::info::Version;
use selvedge::{AddrFormat, Errno, Hints, Result};
use selvedge_abi as abi;
use selvedge_abi::{Abi, Fid, FidDomain, Ops, OpsDomain, OpsMr, fclass, number};

use crate::answer::{done, told};
use crate::ep;
use crate::ep::later::{self, Queued};
use crate::ep::shared;
use crate::fabric::{Fabric, adopted};
use crate::given::put;
use crate::object::{self, Class, User, Users, argument, close, this};
use crate::{av, cntr, cq, eq, info, mr, sets};

/// What stands behind a domain.
pub(crate) struct Domain {
    pub(crate) own: Arc<dyn selvedge::Domain>,
    pub(crate) version: Version,
    pub(crate) abi: Abi,
    /// The format of its addresses.
    pub(crate) format: AddrFormat,
    /// What the program says of its threads.
    hints: Hints,
    /// Its work that waits.
    pub(crate) queued: Queued,
    users: Users,
    _fabric: User,
}

impl Domain {
    pub(crate) fn one_more_user(&self) -> User {
        self.users.one_more()
    }

    /// An endpoint's description, so that it opens under the promise of the domain.
    ///
    /// # Errors
    /// [`Errno::NoDev`] for a provider that is not there.
    pub(crate) fn adopted(&self, info: selvedge::Info) -> Result<selvedge::Info> {
        adopted(info, &self.hints)
    }
}

// SAFETY: `fid_domain` begins with its fid, and has two tables of functions behind it.
unsafe impl Class for Domain {
    type Handle = FidDomain;
    const FCLASS: usize = fclass::DOMAIN;

    fn ops() -> &'static Ops {
        &FID
    }

    fn handle(&self, fid: Fid) -> FidDomain {
        FidDomain {
            fid,
            ops: &DOMAIN,
            mr: &MR,
        }
    }

    fn closed(fid: Fid) -> FidDomain {
        FidDomain {
            fid,
            ops: &CLOSED,
            mr: &MR_CLOSED,
        }
    }

    fn users(&self) -> Option<&Users> {
        Some(&self.users)
    }
}

static FID: Ops = Ops {
    close: Some(close::<Domain>),
    bind: Some(bind),
    control: Some(later::control),
    ..Ops::refusing::<{ libc::ENOSYS }>()
};
static DOMAIN: OpsDomain = OpsDomain {
    av_open: Some(av_open),
    cq_open: Some(cq_open),
    cntr_open: Some(cntr_open),
    endpoint: Some(endpoint),
    endpoint2: Some(endpoint2),
    scalable_ep: Some(ep::scalable::scalable_ep),
    poll_open: Some(sets::poll_open),
    stx_ctx: Some(shared::stx_context),
    srx_ctx: Some(shared::srx_context),
    query_atomic: Some(query_atomic),
    query_collective: Some(ep::collective::query),
    ..OpsDomain::refusing::<{ libc::ENOSYS }>()
};
static CLOSED: OpsDomain = OpsDomain::refusing::<{ libc::EBADF }>();
static MR: OpsMr = OpsMr {
    reg: Some(mr::reg),
    regv: Some(mr::regv),
    regattr: Some(mr::regattr),
    ..OpsMr::refusing::<{ libc::ENOSYS }>()
};
static MR_CLOSED: OpsMr = OpsMr::refusing::<{ libc::EBADF }>();

/// Opens a domain.
///
/// # Errors
/// [`Errno::Inval`] for NULL; the provider's.
///
/// # Safety
/// `info` is NULL or an info of the fabric's layout, `domain` is NULL or may be written.
pub(crate) unsafe fn open(
    fabric: &Fabric,
    info: *const abi::Info,
    domain: *mut *mut FidDomain,
    context: *mut c_void,
) -> Result {
    if domain.is_null() {
        return Err(Errno::Inval);
    }
    // SAFETY: passed on from the caller.
    let given = unsafe { info::read(info, fabric.abi()) }?;
    // SAFETY: fi_domain(3): what `domain_attr.threading` says is the program's promise for all
    // objects of the domain.
    let hints = unsafe { Hints::new().promise_threading(given.threading) };
    let info = adopted(given.info, &hints)?;
    let opened = fabric.own.domain(&info).map_err(|error| told(&error))?;
    let handle = object::open(
        Domain {
            own: opened,
            version: fabric.version,
            abi: fabric.abi(),
            format: info.addr_format,
            hints,
            queued: Queued::default(),
            users: Users::default(),
            _fabric: fabric.one_more_user(),
        },
        context,
    );
    // SAFETY: passed on from the caller.
    unsafe { put(domain, handle) }
}

/// Event queues are taken, but nothing is reported to them: what they are for happens at once here.
///
/// # Safety
/// Both are handles.
unsafe extern "C" fn bind(_domain: *mut Fid, fid: *mut Fid, flags: u64) -> c_int {
    done(|| {
        // SAFETY: passed on from the caller.
        unsafe { argument::<eq::Eq>(fid) }?;
        match flags {
            0 => Ok(()),
            _ => Err(Errno::BadFlags),
        }
    })
}

/// # Safety
/// As fi_av_open(3) has it.
unsafe extern "C" fn av_open(
    domain: *mut FidDomain,
    attr: *mut abi::AvAttr,
    av: *mut *mut abi::FidAv,
    context: *mut c_void,
) -> c_int {
    // SAFETY: passed on from the caller.
    let domain = unsafe { this(domain) };
    // SAFETY: passed on from the caller.
    done(|| unsafe { av::open(domain, attr, av, context) })
}

/// # Safety
/// As fi_cq_open(3) has it.
unsafe extern "C" fn cq_open(
    domain: *mut FidDomain,
    attr: *mut abi::CqAttr,
    cq: *mut *mut abi::FidCq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: passed on from the caller.
    let domain = unsafe { this(domain) };
    // SAFETY: passed on from the caller.
    done(|| unsafe { cq::open(domain, attr, cq, context) })
}

/// # Safety
/// As fi_cntr_open(3) has it.
unsafe extern "C" fn cntr_open(
    domain: *mut FidDomain,
    attr: *mut abi::CntrAttr,
    cntr: *mut *mut abi::FidCntr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: passed on from the caller.
    let domain = unsafe { this(domain) };
    // SAFETY: passed on from the caller.
    done(|| unsafe { cntr::open(domain, attr, cntr, context) })
}

/// # Safety
/// As fi_endpoint(3) has it.
unsafe extern "C" fn endpoint(
    domain: *mut FidDomain,
    info: *mut abi::Info,
    ep: *mut *mut abi::FidEp,
    context: *mut c_void,
) -> c_int {
    // SAFETY: passed on from the caller.
    let domain = unsafe { this(domain) };
    // SAFETY: passed on from the caller.
    done(|| unsafe { ep::open(domain, info, ep, context) })
}

/// # Safety
/// As fi_endpoint(3) has it.
unsafe extern "C" fn endpoint2(
    domain: *mut FidDomain,
    info: *mut abi::Info,
    ep: *mut *mut abi::FidEp,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if flags != 0 {
        return done(|| Err(Errno::BadFlags));
    }
    // SAFETY: passed on from the caller.
    unsafe { endpoint(domain, info, ep, context) }
}

/// # Safety
/// As fi_query_atomic(3) has it.
unsafe extern "C" fn query_atomic(
    domain: *mut FidDomain,
    datatype: u32,
    op: u32,
    attr: *mut abi::AtomicAttr,
    flags: u64,
) -> c_int {
    // SAFETY: passed on from the caller.
    let domain: &Domain = unsafe { this(domain) };
    done(|| {
        let family = match flags {
            0 => Family::Base,
            number::atomic::FETCH => Family::Fetch,
            number::atomic::COMPARE => Family::Compare,
            _ => return Err(Errno::BadFlags),
        };
        let (datatype, op) = (Datatype::from_raw(datatype), Op::from_raw(op));
        let (Some(datatype), Some(op)) = (datatype, op) else {
            return Err(Errno::OpNotSupp);
        };
        let can = domain.own.query_atomic(family, datatype, op)?;
        let (count, size) = (can.count, can.size);
        // SAFETY: passed on from the caller.
        unsafe { put(attr, abi::AtomicAttr { count, size }) }
    })
}
