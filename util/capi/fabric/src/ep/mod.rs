//! Endpoints: `struct fid_ep`. Before it is enabled, an endpoint only collects its bindings.
//! Enabling opens the object model's endpoint. Earlier posts fail.

#![expect(unsafe_code, reason = "functions of C")]

mod bind;
mod cm;
mod mc;
pub(crate) mod option;
pub(crate) mod post;
pub(crate) mod scalable;
pub(crate) mod shared;

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use selvedge::{
    AddrFormat, Caps, Endpoint, EpOption, Errno, Info, OpFlags, PassiveEndpoint, Result,
};
use selvedge_abi as abi;
use selvedge_abi::{Fid, FidEp, Handle, Ops, OpsEp, fclass, number};

use crate::domain::Domain;
use crate::object::handles;
use crate::object::{self, Class, Object, Table, User, close};
use crate::pointer::{put, required};
use crate::status::{guarded_count, guarded_unit, log_error};
use crate::{info, pep};
use bind::Bound;
use post::{atomic, collective, lists, msg, rma, tagged};
use scalable::{Context, Half, Side};

pub(crate) use option::CM_DATA_SIZE;

/// The object behind the handle of an endpoint, and behind a transmit or receive context.
pub(crate) struct Ep {
    /// The endpoint, from the first call that needs it after this handle was enabled.
    live: OnceLock<Arc<dyn Endpoint>>,
    shared: Arc<Shared>,
    /// The flags of posts by the short forms.
    tx_flags: AtomicU64,
    rx_flags: AtomicU64,
    /// The half of a context that this object represents; `None` for an endpoint.
    half: Option<Half>,
}

/// The state that an endpoint shares with its aliases.
struct Shared {
    draft: Mutex<Draft>,
    live: OnceLock<Arc<dyn Endpoint>>,
    domain: Arc<dyn selvedge::Domain>,
    format: AddrFormat,
    default_flags: (OpFlags, OpFlags),
    /// The context of a scalable endpoint; `None` for an endpoint that is not scalable.
    context: Option<Arc<Context>>,
    _domain: User,
}

/// The description of an endpoint that is not enabled yet.
struct Draft {
    info: Info,
    bound: Bound,
    /// Options that were set before the endpoint was enabled.
    options: Vec<EpOption>,
    /// The passive endpoint whose address the endpoint takes over.
    passive_ep: Option<Arc<dyn PassiveEndpoint>>,
}

impl Draft {
    fn set_options(&self, opened: &dyn Endpoint) -> Result {
        self.options
            .iter()
            .try_for_each(|&option| opened.set(option))
    }
}

impl Shared {
    fn new(domain: &Arc<dyn selvedge::Domain>, user: User, info: Info) -> Self {
        Self {
            live: OnceLock::new(),
            domain: Arc::clone(domain),
            format: info.addr_format,
            default_flags: (info.tx_attr.op_flags, info.rx_attr.op_flags),
            draft: Mutex::new(Draft {
                info,
                bound: Bound::default(),
                options: Vec::new(),
                passive_ep: None,
            }),
            context: None,
            _domain: user,
        }
    }

    fn draft(&self) -> MutexGuard<'_, Draft> {
        self.draft.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(live) = self.live.get() {
            handles::remove(live);
        }
    }
}

impl Ep {
    fn new(shared: Arc<Shared>, half: Option<Half>) -> Self {
        Self {
            live: OnceLock::new(),
            shared,
            tx_flags: AtomicU64::new(OpFlags::DEFAULT.bits()),
            rx_flags: AtomicU64::new(OpFlags::DEFAULT.bits()),
            half,
        }
    }

    /// The enabled endpoint.
    ///
    /// # Errors
    /// [`Errno::OpBadState`] before this handle is enabled; the errors of opening a context, if the
    /// first use of an enabled half opens it.
    #[inline(always)]
    pub(crate) fn live(&self) -> Result<&dyn Endpoint> {
        match self.live.get() {
            Some(live) => Ok(&**live),
            None => self.first_use().map(|live| &**live),
        }
    }

    /// As [`Self::live`], on the first use of this handle.
    #[cold]
    fn first_use(&self) -> Result<&Arc<dyn Endpoint>> {
        let live = match &self.half {
            Some(half) => self.use_half(half)?,
            None => self.shared.live.get().ok_or(Errno::OpBadState)?,
        };
        Ok(self.live.get_or_init(|| Arc::clone(live)))
    }

    /// The format of the endpoint's addresses.
    pub(crate) fn format(&self) -> AddrFormat {
        self.shared.format
    }

    #[inline(always)]
    fn tx_flags(&self) -> OpFlags {
        OpFlags::from_bits_retain(self.tx_flags.load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn rx_flags(&self) -> OpFlags {
        OpFlags::from_bits_retain(self.rx_flags.load(Ordering::Relaxed))
    }
}

// SAFETY: `fid_ep` begins with its fid, and has seven tables of functions behind it.
unsafe impl Class for Ep {
    type Handle = FidEp;
    const FCLASS: usize = fclass::EP;
    const OPS: &'static Table<Ops, Self> = &FID;

    fn fclass(&self) -> usize {
        self.half.as_ref().map_or(fclass::EP, Half::fclass)
    }

    fn handle(&self, fid: Fid) -> FidEp {
        let side = self.half.as_ref().map(Half::side);
        let (cm, msg, tagged) = match side {
            None => (&cm::CM, &msg::MSG, &tagged::TAGGED),
            Some(Side::Tx) => (&cm::TX_CM, &msg::TX_MSG, &tagged::TX_TAGGED),
            Some(Side::Rx) => (&cm::RX_CM, &msg::RX_MSG, &tagged::RX_TAGGED),
        };
        let handle = FidEp {
            ops: &EP.ops,
            cm: &cm.ops,
            msg: &msg.ops,
            tagged: &tagged.ops,
            ..FidEp::failing::<{ libc::ENOSYS }>(fid)
        };
        if side == Some(Side::Rx) {
            return handle;
        }
        FidEp {
            rma: &rma::RMA.ops,
            atomic: &atomic::ATOMIC.ops,
            collective: &collective::COLLECTIVE.ops,
            ..handle
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
    .cancel(|ep, context| guarded_count(|| ep.live()?.cancel(lists::context(context)).map(|()| 0)))
    .getopt(|ep, level, option_number, value, len| {
        // SAFETY: the C caller follows fi_getopt(3).
        guarded_unit(|| unsafe { ep.getopt(level, option_number, value, len) })
    })
    .setopt(|ep, level, option_number, value, len| {
        // SAFETY: the C caller follows fi_setopt(3).
        guarded_unit(|| unsafe { ep.setopt(level, option_number, value, len) })
    });

/// Opens an endpoint, which is not enabled yet.
///
/// # Errors
/// [`Errno::Inval`] for NULL, and for a handle that is neither a request nor a passive endpoint;
/// [`Errno::NoDev`] for an unknown provider.
///
/// # Safety
/// `info` is NULL or an info of the domain's layout, `out` is NULL or may be written.
pub(crate) unsafe fn open(
    domain: &Object<Domain>,
    info: *const abi::Info,
    out: *mut *mut FidEp,
    context: *mut c_void,
) -> Result {
    let make = || {
        // SAFETY: passed on from the caller.
        let parsed = unsafe { info::read(info, domain.abi) }?;
        let mut info = domain.adopt_info(parsed.info)?;
        let passive_ep = match parsed.handle.is_null() {
            true => None,
            // SAFETY: passed on from the caller.
            false => unsafe { take_handle(&mut info, parsed.handle) }?,
        };
        let mut shared = Shared::new(&domain.inner, domain.new_user(), info);
        let draft = shared.draft.get_mut();
        draft.unwrap_or_else(PoisonError::into_inner).passive_ep = passive_ep;
        Ok(Ep::new(Arc::new(shared), None))
    };
    // SAFETY: passed on from the caller.
    unsafe { object::open(out, context, None, make) }
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
    if let Ok(request) = unsafe { pep::request_of(handle) } {
        info.handle = request;
        // SAFETY: the handle is a request's, which belongs to the endpoint from now on.
        unsafe { close::<pep::Request>(handle) };
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
    /// Opens the described endpoint with its bindings, unless it is open.
    ///
    /// # Errors
    /// [`Errno::NoCq`], [`Errno::NoAv`] or [`Errno::NoEq`] for a missing binding; the provider's.
    fn enable(&self) -> Result<&dyn Endpoint> {
        let mut draft = self.shared.draft();
        if let Some(live) = self.shared.live.get() {
            return Ok(&**live);
        }
        let bindings = draft.bound.bindings(&draft.info, &*self.shared.domain)?;
        let opened = self.shared.domain.endpoint(&draft.info, bindings);
        let opened = opened.map_err(|error| log_error(&error))?;
        draft.set_options(&*opened)?;
        draft.passive_ep = None;
        handles::add(&opened, self.fid());
        Ok(&**self.shared.live.get_or_init(|| opened))
    }

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
            let alias = Ep {
                tx_flags: AtomicU64::new(self.tx_flags().bits()),
                rx_flags: AtomicU64::new(self.rx_flags().bits()),
                ..Ep::new(Arc::clone(&self.shared), None)
            };
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
