//! Passive endpoints: `struct fid_pep`.

#![expect(unsafe_code, reason = "functions of C")]

pub(crate) mod request;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use selvedge::{AddrFormat, Address, Errno, Fabric, Info, PassiveEndpoint, Result, eq};
use selvedge_abi::{Fid, FidPep, Ops, OpsCm, OpsEp, fclass};

use crate::addr;
use crate::object::{self, Table, User, argument, class, close, handles};
use crate::pointer::{array, copy_out};
use crate::queue::eq::Eq;
use crate::status::{guarded_unit, log_error};
use request::{CM_DATA_SIZE, CM_DATA_SIZE_NAME, Request};

/// The object behind the handle of a passive endpoint. fi_listen(3) opens the object model's
/// passive endpoint with the event queue that is bound.
pub(crate) struct Pep {
    fabric: Arc<dyn Fabric>,
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

class! {
    Pep, FidPep, FID, |_| fclass::PEP;
    tables |_| ops: &EP, cm: &CM
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
            if (level, name) != (0, CM_DATA_SIZE_NAME) {
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
            let request = unsafe { request::number_of(handle) }?;
            let live = pep.live.get().ok_or(Errno::OpBadState)?;
            live.reject(request, data)?;
            // SAFETY: as above; the handle is a request's.
            unsafe { close::<Request>(handle) };
            Ok(())
        })
    });

impl Pep {
    /// Creates a passive endpoint, which is not opened yet.
    pub(crate) fn new(fabric: &Arc<dyn Fabric>, mut info: Info) -> Self {
        // Without `FI_SOURCE`, discovery returns a server's address as `dest_addr`; libfabric's own
        // programs do not set `FI_SOURCE` for the wildcard address.
        info.src_addr = info.src_addr.or_else(|| info.dest_addr.take());
        Self {
            fabric: Arc::clone(fabric),
            format: info.addr_format,
            draft: Mutex::new(Draft {
                info,
                eq: None,
                holder: None,
            }),
            live: OnceLock::new(),
        }
    }

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

/// The address of a passive endpoint, for an endpoint that takes the address over, and the open
/// passive endpoint that holds the address, if any.
///
/// # Errors
/// [`Errno::Inval`] for a handle of another class; [`Errno::AddrNotAvail`] for a passive endpoint
/// without an address; [`Errno::OpBadState`] for a passive endpoint that listens.
///
/// # Safety
/// `handle` is NULL or a handle.
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
