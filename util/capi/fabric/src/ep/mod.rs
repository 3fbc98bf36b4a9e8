//! Endpoints: `struct fid_ep`. Before it is enabled, an endpoint only collects its bindings.
//! Enabling opens the object model's endpoint. Earlier posts fail.

#![expect(unsafe_code, reason = "functions of C")]

mod bind;
mod bound;
mod cm;
mod endpoint;
mod half;
mod mc;
mod option;
pub(crate) mod post;
pub(crate) mod scalable;
pub(crate) mod shared;

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use selvedge::{Caps, Domain, Errno, Info, OpFlags, PassiveEndpoint, Result};
use selvedge_abi as abi;
use selvedge_abi::{Fid, FidEp, Ops, OpsAtomic, OpsCollective, OpsEp, OpsRma, fclass, number};

use crate::context;
use crate::object::{self, Object, Table, User, class, close};
use crate::pep::{self, request};
use crate::pointer::{put, required};
use crate::status::{guarded_count, guarded_unit};
use endpoint::Shared;
use half::{Half, Side};
use post::atomic::ATOMIC;
use post::collective::COLLECTIVE;
use post::{msg, rma, tagged};

pub(crate) use endpoint::Ep;

class! {
    Ep, FidEp, FID, |ep| ep.half.as_ref().map_or(fclass::EP, Half::fclass);
    tables |ep|
        ops: &EP,
        cm: ep.table(&cm::CM, &cm::TX_CM, &cm::RX_CM),
        msg: ep.table(&msg::MSG, &msg::TX_MSG, &msg::RX_MSG),
        tagged: ep.table(&tagged::TAGGED, &tagged::TX_TAGGED, &tagged::RX_TAGGED),
        rma: ep.table(&rma::RMA, &rma::RMA, const { &Table::<OpsRma, Ep>::empty() }),
        atomic: ep.table(&ATOMIC, &ATOMIC, const { &Table::<OpsAtomic, Ep>::empty() }),
        collective:
            ep.table(&COLLECTIVE, &COLLECTIVE, const { &Table::<OpsCollective, Ep>::empty() })
}

impl Ep {
    /// Chooses the table of an endpoint, of a transmit half or of a receive half.
    fn table<T>(&self, both: T, tx: T, rx: T) -> T {
        match self.half.as_ref().map(Half::side) {
            None => both,
            Some(Side::Tx) => tx,
            Some(Side::Rx) => rx,
        }
    }
}

static FID: Table<Ops, Ep> = object::ops::<Ep>()
    .bind(|ep, fid, flags| {
        // SAFETY: the C caller passes a handle, as fi_ep_bind(3) requires.
        guarded_unit(|| unsafe { ep.bind(fid, flags) })
    })
    .control(|ep, command, arg| {
        // SAFETY: the C caller follows fi_control(3).
        guarded_unit(|| unsafe { ep.control(command, arg) })
    });
static EP: Table<OpsEp, Ep> = Table::<OpsEp, Ep>::empty()
    // fi_cancel(3)
    .cancel(|ep, context| guarded_count(|| ep.live()?.cancel(context::from_c(context)).map(|()| 0)))
    .getopt(|ep, level, option_number, value, len| {
        // SAFETY: the C caller follows fi_getopt(3).
        guarded_unit(|| unsafe { ep.getopt(level, option_number, value, len) })
    })
    .setopt(|ep, level, option_number, value, len| {
        // SAFETY: the C caller follows fi_setopt(3).
        guarded_unit(|| unsafe { ep.setopt(level, option_number, value, len) })
    });

impl Ep {
    /// Opens an endpoint of a domain, which is not enabled yet. The endpoint takes over the
    /// connection request or the passive endpoint at `handle`.
    ///
    /// # Errors
    /// [`Errno::Inval`] for a handle that is neither a request nor a passive endpoint.
    ///
    /// # Safety
    /// `handle` is NULL or a handle.
    pub(crate) unsafe fn open(
        domain: &Arc<dyn Domain>,
        domain_user: User,
        mut info: Info,
        handle: *mut Fid,
    ) -> Result<Self> {
        let passive_ep = if handle.is_null() {
            None
        } else {
            // SAFETY: passed on from the caller.
            unsafe { take_handle(&mut info, handle) }?
        };
        let shared = Shared::new(domain, domain_user, info);
        shared.draft().passive_ep = passive_ep;
        Ok(Self::new(Arc::new(shared), None))
    }
}

/// Takes over a connection request, or the address of a passive endpoint. The program may close the
/// passive endpoint before it binds the new endpoint.
///
/// # Safety
/// `handle` is a handle.
unsafe fn take_handle(
    info: &mut Info,
    handle: *mut Fid,
) -> Result<Option<Arc<dyn PassiveEndpoint>>> {
    // SAFETY: passed on from the caller.
    if let Ok(number) = unsafe { request::number_of(handle) } {
        info.handle = number;
        // SAFETY: the handle is a request's, which belongs to the endpoint from now on.
        unsafe { close::<request::Request>(handle) };
        return Ok(None);
    }
    // SAFETY: passed on from the caller.
    let (addr, passive_ep) = unsafe { pep::address_of(handle) }?;
    match &passive_ep {
        Some(passive_ep) => {
            info.handle = passive_ep.handle()?;
            info.src_addr = Some(addr);
        }
        None => drop(info.src_addr.get_or_insert(addr)),
    }
    Ok(passive_ep)
}

impl Object<Ep> {
    /// # Safety
    /// The caller follows fi_control(3).
    unsafe fn control(&self, command: c_int, arg: *mut c_void) -> Result {
        match (command, &self.half) {
            (number::control::ENABLE, Some(half)) => self.enable_half(half),
            (number::control::ENABLE, _) if self.shared.live.get().is_some() => {
                Err(Errno::OpBadState)
            }
            (number::control::ENABLE, None) => self.enable().map(|_| ()),
            // SAFETY: passed on from the caller.
            (number::control::GETOPSFLAG, _) => unsafe { self.write_flags(arg.cast()) },
            (number::control::SETOPSFLAG, _) => {
                // SAFETY: passed on from the caller.
                let flags = *unsafe { required(arg.cast::<u64>()) }?;
                self.set_flags(flags)
            }
            // SAFETY: passed on from the caller.
            (number::control::ALIAS, None) => unsafe { self.alias(arg.cast()) },
            _ => Err(Errno::NoSys),
        }
    }

    /// Opens a second handle of the same endpoint, with its own flags for one direction.
    ///
    /// # Safety
    /// `request` is NULL or points to a request for an alias.
    unsafe fn alias(&self, request: *const abi::Alias) -> Result {
        // SAFETY: passed on from the caller.
        let request = unsafe { required(request) }?;
        let make = || {
            let alias = self.with_same_flags();
            alias.set_flags(request.flags)?;
            Ok(alias)
        };
        // SAFETY: passed on from the caller; a handle begins with its fid.
        unsafe { self.child(request.fid.cast(), self.context(), make) }
    }
}

/// The bits that choose the direction whose flags are read or set.
const DIRECTIONS: u64 = Caps::SEND.union(Caps::RECV).bits();

impl Ep {
    /// Writes the flags of the direction that the bits at `flags_ptr` choose.
    ///
    /// # Safety
    /// `flags_ptr` is NULL or points to flags, which may be written.
    unsafe fn write_flags(&self, flags_ptr: *mut u64) -> Result {
        // SAFETY: passed on from the caller.
        let request = *unsafe { required(flags_ptr) }?;
        let (tx, rx) = self.shared.default_flags;
        let (current, default) = match request & DIRECTIONS {
            send if send == Caps::SEND.bits() => (self.tx_flags(), tx),
            recv if recv == Caps::RECV.bits() => (self.rx_flags(), rx),
            _ => return Err(Errno::Inval),
        };
        let flags = if current.contains(OpFlags::DEFAULT) {
            default
        } else {
            current
        };
        // SAFETY: `flags_ptr` was read just now, and the caller vouches that it may be written.
        unsafe { put(flags_ptr, flags.bits()) }
    }

    fn set_flags(&self, flags: u64) -> Result {
        let op_flags = OpFlags::from_bits(flags & !DIRECTIONS).ok_or(Errno::BadFlags)?;
        if op_flags.intersects(OpFlags::DEFAULT | OpFlags::DEFERRED) {
            return Err(Errno::BadFlags);
        }
        match flags & DIRECTIONS {
            send if send == Caps::SEND.bits() => {
                self.tx_flags.store(op_flags.bits(), Ordering::Relaxed);
            }
            recv if recv == Caps::RECV.bits() => {
                self.rx_flags.store(op_flags.bits(), Ordering::Relaxed);
            }
            _ => return Err(Errno::Inval),
        }
        Ok(())
    }
}
