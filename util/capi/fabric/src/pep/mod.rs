//! Passive endpoints and their connection requests: `struct fid_pep`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use selvedge::{AddrFormat, Address, Errno, Info, PassiveEndpoint, Result, eq};
use selvedge_abi as abi;
use selvedge_abi::{Fid, FidPep, Ops, OpsCm, OpsEp, fclass};

use crate::ep::{self, CM_DATA_SIZE};
use crate::fabric::{Fabric, adopt_info};
use crate::object::handles;
use crate::object::{self, Class, Object, Table, User, argument, close};
use crate::pointer::{array, copy_out};
use crate::queue::eq::Eq;
use crate::status::{guarded_unit, log_error};
use crate::{addr, info};

/// The object behind the handle of a passive endpoint. fi_listen(3) opens the object model's
/// passive endpoint with the event queue that is bound.
pub(crate) struct Pep {
    fabric: Arc<dyn selvedge::Fabric>,
    draft: Mutex<Draft>,
    live: OnceLock<Arc<dyn PassiveEndpoint>>,
    format: AddrFormat,
}

struct Draft {
    info: Info,
    eq: Option<(Arc<dyn selvedge::EventQueue>, User)>,
    /// An open passive endpoint that holds the address of fi_setname(3), until the bound passive
    /// endpoint is opened or an endpoint takes the address over.
    holder: Option<Arc<dyn PassiveEndpoint>>,
}

// SAFETY: `fid_pep` begins with its fid, and has two tables of functions behind it.
unsafe impl Class for Pep {
    type Handle = FidPep;
    const FCLASS: usize = fclass::PEP;
    const OPS: &'static Table<Ops, Self> = &FID;

    fn handle(&self, fid: Fid) -> FidPep {
        let (ops, cm) = (&EP.ops, &CM.ops);
        FidPep { fid, ops, cm }
    }
}

impl Drop for Pep {
    fn drop(&mut self) {
        if let Some(live) = self.live.get() {
            handles::remove(live);
        }
    }
}

static FID: Table<Ops, Pep> = object::ops::<Pep>().bind(|pep, fid, flags| {
    guarded_unit(|| {
        // SAFETY: the C caller passes a handle, as fi_pep_bind(3) requires.
        let eq = unsafe { argument::<Eq>(fid) }?;
        if flags != 0 {
            return Err(Errno::BadFlags);
        }
        let mut draft = pep.draft();
        if draft.eq.is_some() {
            return Err(Errno::Inval);
        }
        draft.eq = Some((Arc::clone(&eq.inner), eq.new_user()));
        Ok(())
    })
});
static EP: Table<OpsEp, Pep> = Table::<OpsEp, Pep>::empty()
    .getopt(|_, level, name, value, len| {
        guarded_unit(|| {
            if (level, name) != (0, ep::option::CM_DATA_SIZE_NAME) {
                return Err(Errno::NoProtoOpt);
            }
            // SAFETY: the C caller follows fi_getopt(3).
            unsafe { copy_out(value.cast(), len, &CM_DATA_SIZE.to_ne_bytes()) }
        })
    })
    // fi_setopt(3): no option can be set.
    .setopt(|_, _level, _name, _value, _len| guarded_unit(|| Err(Errno::NoProtoOpt)));
static CM: Table<OpsCm, Pep> = Table::<OpsCm, Pep>::empty()
    .setname(|pep, buf, len| {
        guarded_unit(|| {
            // SAFETY: the C caller follows fi_setname(3).
            let bytes = unsafe { array(buf.cast::<u8>(), len) }?;
            pep.set_name(addr::decode(bytes, pep.format)?)
        })
    })
    .getname(|pep, buf, len| {
        guarded_unit(|| {
            let draft = pep.draft();
            let addr = match pep.live.get() {
                Some(live) => live.address()?,
                None => draft.info.src_addr.clone().ok_or(Errno::AddrNotAvail)?,
            };
            // SAFETY: the C caller follows fi_getname(3).
            unsafe { copy_out(buf.cast(), len, &addr::encode(&addr)) }
        })
    })
    // fi_listen(3)
    .listen(|pep| guarded_unit(|| pep.open_once(pep.fid())?.listen()))
    .reject(|pep, handle, param, len| {
        guarded_unit(|| {
            // SAFETY: the C caller follows fi_reject(3), here and below.
            let data = unsafe { array(param.cast::<u8>(), len) }?;
            // SAFETY: as above.
            let request = unsafe { request_of(handle) }?;
            let live = pep.live.get().ok_or(Errno::OpBadState)?;
            live.reject(request, data)?;
            // SAFETY: as above; the handle is a request's.
            unsafe { close::<Request>(handle) };
            Ok(())
        })
    });

/// Creates a passive endpoint, which is not opened yet.
///
/// # Errors
/// [`Errno::Inval`] for NULL; [`Errno::NoDev`] for an unknown provider.
///
/// # Safety
/// `info` is NULL or an info of the fabric's layout, `out` is NULL or may be written.
pub(crate) unsafe fn open(
    fabric: &Object<Fabric>,
    info: *const abi::Info,
    out: *mut *mut FidPep,
    context: *mut c_void,
) -> Result {
    let make = || {
        // SAFETY: passed on from the caller.
        let parsed = unsafe { info::read(info, fabric.abi()) }?.info;
        let mut info = adopt_info(parsed, &selvedge::Hints::new())?;
        // Without `FI_SOURCE`, discovery returns a server's address as `dest_addr`; libfabric's own
        // programs do not set `FI_SOURCE` for the wildcard address.
        info.src_addr = info.src_addr.or_else(|| info.dest_addr.take());
        Ok(Pep {
            fabric: Arc::clone(&fabric.inner),
            format: info.addr_format,
            draft: Mutex::new(Draft {
                info,
                eq: None,
                holder: None,
            }),
            live: OnceLock::new(),
        })
    };
    // SAFETY: passed on from the caller.
    unsafe { fabric.child(out, context, make) }
}

impl Pep {
    /// Opens the described passive endpoint, unless it is open.
    ///
    /// # Errors
    /// [`Errno::NoEq`] without an event queue; the provider's.
    fn open_once(&self, handle: *mut Fid) -> Result<&Arc<dyn PassiveEndpoint>> {
        let mut draft = self.draft();
        if let Some(live) = self.live.get() {
            return Ok(live);
        }
        let (eq, _) = draft.eq.as_ref().ok_or(Errno::NoEq)?;
        let eq = Arc::clone(eq);
        if let Some(holder) = &draft.holder {
            draft.info.handle = holder.handle()?;
        }
        let open_once = self.fabric.passive_endpoint(&draft.info, eq);
        let open_once = open_once.map_err(|error| log_error(&error))?;
        draft.holder = None;
        handles::add(&open_once, handle);
        Ok(self.live.get_or_init(|| open_once))
    }

    fn draft(&self) -> MutexGuard<'_, Draft> {
        self.draft.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Binds an address at once, so that fi_getname(3) returns its port.
    ///
    /// # Errors
    /// The provider's; [`Errno::NoSys`] for a provider that binds an address only when it listens.
    fn hold_address(&self, info: &Info, addr: &Address) -> Result<Arc<dyn PassiveEndpoint>> {
        let mut without_address = info.clone();
        without_address.src_addr = None;
        let eq = self.fabric.eq(&eq::Attr::default());
        let eq = eq.map_err(|error| log_error(&error))?;
        let holder = self.fabric.passive_endpoint(&without_address, eq);
        let holder = holder.map_err(|error| log_error(&error))?;
        holder.handle()?;
        holder
            .set_address(addr)
            .map_err(|error| log_error(&error))?;
        Ok(holder)
    }

    fn set_name(&self, addr: Address) -> Result {
        let mut draft = self.draft();
        if self.live.get().is_some() || draft.holder.is_some() {
            return Err(Errno::OpBadState);
        }
        match self.hold_address(&draft.info, &addr) {
            Ok(holder) => {
                draft.info.src_addr = Some(holder.address()?);
                draft.holder = Some(holder);
            }
            Err(Errno::NoSys) => draft.info.src_addr = Some(addr),
            Err(errno) => return Err(errno),
        }
        Ok(())
    }
}

/// The object behind the handle of a connection request: its number.
pub(crate) struct Request(u64);

// SAFETY: a request's handle is a fid without further members.
unsafe impl Class for Request {
    type Handle = Fid;
    const FCLASS: usize = fclass::CONNREQ;
    const OPS: &'static Table<Ops, Self> = &REQUEST;

    fn handle(&self, fid: Fid) -> Fid {
        fid
    }
}

static REQUEST: Table<Ops, Request> = object::ops();

/// Allocates a handle for a request. Opening an endpoint with the handle, or rejecting the request,
/// closes the handle.
pub(crate) fn request(number: u64) -> *mut Fid {
    object::new(Request(number), std::ptr::null_mut(), None)
}

/// The number of a request.
///
/// # Errors
/// [`Errno::Inval`] for a handle of another class, and for a request that was accepted or rejected.
///
/// # Safety
/// `handle` is NULL or a handle.
pub(crate) unsafe fn request_of(handle: *const Fid) -> Result<u64> {
    // SAFETY: passed on from the caller.
    unsafe { argument::<Request>(handle) }.map(|request| request.0)
}

/// The address of a passive endpoint, for an endpoint that takes the address over, and the open
/// passive endpoint that holds the address, if any.
///
/// # Errors
/// [`Errno::Inval`] for a handle of another class; [`Errno::AddrNotAvail`] for a passive endpoint
/// without an address; [`Errno::OpBadState`] for a passive endpoint that listens.
///
/// # Safety
/// As [`request_of`].
pub(crate) unsafe fn address_of(handle: *const Fid) -> Result<HeldAddress> {
    // SAFETY: passed on from the caller.
    let pep = unsafe { argument::<Pep>(handle) }?;
    let draft = pep.draft();
    if pep.live.get().is_some() {
        return Err(Errno::OpBadState);
    }
    let addr = draft.info.src_addr.clone();
    Ok((addr.ok_or(Errno::AddrNotAvail)?, draft.holder.clone()))
}

pub(crate) type HeldAddress = (Address, Option<Arc<dyn PassiveEndpoint>>);
