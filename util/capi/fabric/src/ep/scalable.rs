//! Scalable endpoints: `fi_scalable_ep`, and the contexts that are opened from one.
//!
//! The object model has one endpoint where libfabric has a transmit and a receive context of one
//! index. Those two are the halves of a context. The context opens when both halves are enabled,
//! when an enabled half is used, or when the receive half is enabled while there is no transmit
//! half: peers may reach it from then on. A half that is enabled later is bound to the open
//! endpoint.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use selvedge::{
    Address, AddressVector, Caps, Endpoint, Errno, Error, Info, Result, ScalableEndpoint,
};
use selvedge_abi as abi;
use selvedge_abi::{Fid, FidEp, Handle, Ops, OpsCm, OpsEp, fclass, number};

use super::{Draft, Ep, Shared, lists};
use crate::av::Av;
use crate::domain::Domain;
use crate::object::{self, Class, Object, Table, User, argument};
use crate::pointer::copy_out;
use crate::status::{guarded_unit, log_error};
use crate::{addr, info};

/// The object behind the handle of a scalable endpoint.
pub(crate) struct Sep {
    common: Arc<Common>,
    info: Info,
    /// The open contexts, by index.
    contexts: Mutex<Vec<Weak<Shared>>>,
    domain: Arc<dyn selvedge::Domain>,
    domain_user: User,
}

/// The state that a scalable endpoint shares with its contexts.
struct Common {
    inner: Arc<dyn ScalableEndpoint>,
    av: OnceLock<(Arc<dyn AddressVector>, User)>,
}

/// A context: its index, and the states of its halves.
pub(super) struct Context {
    common: Arc<Common>,
    index: usize,
    halves: Mutex<[State; 2]>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Absent,
    Open,
    Enabled,
}

/// The half of a context that an [`Ep`] represents.
pub(super) struct Half {
    context: Arc<Context>,
    side: Side,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Tx,
    Rx,
}

const TX: Caps = Caps::SEND.union(Caps::READ).union(Caps::WRITE);
const RX: Caps = Caps::RECV
    .union(Caps::REMOTE_READ)
    .union(Caps::REMOTE_WRITE);

impl Side {
    const fn caps(self) -> Caps {
        match self {
            Self::Tx => TX,
            Self::Rx => RX,
        }
    }
}

impl Context {
    fn halves(&self) -> MutexGuard<'_, [State; 2]> {
        self.halves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the context with the bindings of its halves.
    ///
    /// # Errors
    /// [`Errno::NoCq`] or [`Errno::NoAv`] for a missing binding; the provider's.
    fn open(&self, draft: &mut Draft, domain: &dyn selvedge::Domain) -> Result<Arc<dyn Endpoint>> {
        if let Some((av, user)) = self.common.av.get() {
            draft.bound.add_av_if_none(av, user);
        }
        // The bindings of a half that is not enabled are not checked: the half needs no queue.
        let mut used_info = draft.info.clone();
        let halves = *self.halves();
        for side in [Side::Tx, Side::Rx] {
            if halves[side as usize] != State::Enabled {
                used_info.caps.remove(side.caps());
            }
        }
        let bindings = draft.bound.bindings(&used_info, domain)?;
        let opened = self.common.inner.context(self.index, &draft.info, bindings);
        opened.map_err(|error| log_error(&error))
    }
}

impl Half {
    pub(super) const fn side(&self) -> Side {
        self.side
    }

    /// `FI_CLASS_*` of the half's handle.
    pub(super) const fn fclass(&self) -> usize {
        match self.side {
            Side::Tx => fclass::TX_CTX,
            Side::Rx => fclass::RX_CTX,
        }
    }

    /// Returns whether the half can be bound to a queue or counter with these flags.
    pub(super) fn accepts(&self, flags: u64) -> bool {
        let others = Side::Tx.caps().union(Side::Rx.caps()) - self.side.caps();
        flags & others.bits() == 0
    }

    /// The address of the scalable endpoint, which exists before the context is open.
    ///
    /// # Errors
    /// As [`ScalableEndpoint::address`].
    pub(super) fn address(&self) -> Result<Address> {
        self.context.common.inner.address()
    }

    fn is_enabled(&self) -> bool {
        self.context.halves()[self.side as usize] == State::Enabled
    }

    fn set(&self, state: State) {
        self.context.halves()[self.side as usize] = state;
    }

    /// Returns whether the context opens now that this half is enabled.
    fn opens_context(&self) -> bool {
        let [tx, rx] = *self.context.halves();
        rx == State::Enabled && tx != State::Open
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        self.set(State::Absent);
    }
}

impl Ep {
    /// Enables a half of a context, and opens the context if [`Half::opens_context`].
    ///
    /// # Errors
    /// [`Errno::OpBadState`] if the half is enabled already; [`Errno::NoCq`] without a queue or
    /// counter; the errors of [`Context::open`].
    pub(super) fn enable_half(&self, half: &Half) -> Result {
        if half.is_enabled() {
            return Err(Errno::OpBadState);
        }
        let draft = self.shared.draft();
        draft.bound.check_reports(&draft.info, half.side.caps())?;
        drop(draft);
        half.set(State::Enabled);
        if half.opens_context() {
            let opened = self.open_context(half).map(|_| ());
            return opened.inspect_err(|_| half.set(State::Open));
        }
        Ok(())
    }

    /// The endpoint of an enabled half.
    ///
    /// # Errors
    /// [`Errno::OpBadState`] before the half is enabled; the errors of [`Context::open`].
    pub(super) fn use_half(&self, half: &Half) -> Result<&Arc<dyn Endpoint>> {
        match half.is_enabled() {
            true => self.open_context(half),
            false => Err(Errno::OpBadState),
        }
    }

    fn open_context(&self, half: &Half) -> Result<&Arc<dyn Endpoint>> {
        let mut draft = self.shared.draft();
        if let Some(live) = self.shared.live.get() {
            return Ok(live);
        }
        let opened = half.context.open(&mut draft, &*self.shared.domain)?;
        draft.set_options(&*opened)?;
        Ok(self.shared.live.get_or_init(|| opened))
    }
}

fn still_bound_error(index: usize) -> Errno {
    let reason = format!(
        "context {index} of a scalable endpoint: its other context is open and still reports to \
         the queues and counters that the closed one was bound to; close both, then open both"
    );
    log_error(&Error::new(Errno::OpBadState, reason))
}

// SAFETY: `fid_ep` begins with its fid, and has seven tables of functions behind it.
unsafe impl Class for Sep {
    type Handle = FidEp;
    const FCLASS: usize = fclass::SEP;
    const OPS: &'static Table<Ops, Self> = &FID;

    fn handle(&self, fid: Fid) -> FidEp {
        FidEp {
            ops: &SEP.ops,
            cm: &CM.ops,
            ..FidEp::failing::<{ libc::ENOSYS }>(fid)
        }
    }
}

static FID: Table<Ops, Sep> = object::ops::<Sep>()
    .bind(|sep, fid, flags| {
        guarded_unit(|| {
            // SAFETY: the C caller passes a handle, as fi_scalable_ep_bind(3) requires.
            let av = unsafe { argument::<Av>(fid) }?;
            if flags != 0 {
                return Err(Errno::BadFlags);
            }
            let bound = (Arc::clone(&av.inner), av.new_user());
            sep.common.av.set(bound).map_err(|_| Errno::Inval)
        })
    })
    // fi_control(3): enabling only checks the binding, because contexts are enabled instead.
    .control(|sep, command, _arg| {
        guarded_unit(|| match command {
            number::control::ENABLE if sep.common.av.get().is_none() => Err(Errno::NoAv),
            number::control::ENABLE => Ok(()),
            _ => Err(Errno::NoSys),
        })
    });
static SEP: Table<OpsEp, Sep> = Table::<OpsEp, Sep>::empty()
    .tx_ctx(|sep, index, attr, out, context| {
        // SAFETY: the C caller follows fi_tx_context(3), here and below.
        let op_flags = unsafe { attr.as_ref() }.map(|attr| attr.op_flags);
        // SAFETY: as above.
        guarded_unit(|| unsafe { sep.open_half(index, Side::Tx, op_flags, out, context) })
    })
    .rx_ctx(|sep, index, attr, out, context| {
        // SAFETY: the C caller follows fi_rx_context(3), here and below.
        let op_flags = unsafe { attr.as_ref() }.map(|attr| attr.op_flags);
        // SAFETY: as above.
        guarded_unit(|| unsafe { sep.open_half(index, Side::Rx, op_flags, out, context) })
    });
static CM: Table<OpsCm, Sep> = Table::<OpsCm, Sep>::empty().getname(|sep, buf, len| {
    guarded_unit(|| {
        let address = addr::encode(&sep.common.inner.address()?);
        // SAFETY: the C caller follows fi_getname(3).
        unsafe { copy_out(buf.cast(), len, &address) }
    })
});

/// Opens a scalable endpoint.
///
/// # Errors
/// [`Errno::Inval`] for NULL; the provider's.
///
/// # Safety
/// The caller follows fi_scalable_ep(3).
pub(crate) unsafe fn open(
    domain: &Object<Domain>,
    info: *const abi::Info,
    out: *mut *mut FidEp,
    context: *mut c_void,
) -> Result {
    let make = || {
        // SAFETY: passed on from the caller.
        let parsed = unsafe { info::read(info, domain.abi) }?;
        let info = domain.adopt_info(parsed.info)?;
        let inner = domain.inner.scalable_endpoint(&info);
        Ok(Sep {
            common: Arc::new(Common {
                inner: inner.map_err(|error| log_error(&error))?,
                av: OnceLock::new(),
            }),
            contexts: Mutex::default(),
            info,
            domain: Arc::clone(&domain.inner),
            domain_user: domain.new_user(),
        })
    };
    // SAFETY: passed on from the caller.
    unsafe { domain.child(out, context, make) }
}

impl Object<Sep> {
    /// Opens a half of a context, with its own default flags if `op_flags` has some.
    ///
    /// # Safety
    /// `out` is NULL or may be written.
    unsafe fn open_half(
        &self,
        index: c_int,
        side: Side,
        op_flags: Option<u64>,
        out: *mut *mut FidEp,
        context: *mut c_void,
    ) -> Result {
        let make = || {
            let ep = self.half(index, side)?;
            if let Some(flags) = op_flags {
                let default_flags = match side {
                    Side::Tx => &ep.tx_flags,
                    Side::Rx => &ep.rx_flags,
                };
                default_flags.store(lists::flags(flags)?.bits(), Ordering::Relaxed);
            }
            Ok(ep)
        };
        // SAFETY: passed on from the caller.
        unsafe { self.child(out, context, make) }
    }
}

impl Sep {
    /// Opens a half of the context of an index. Both halves share the context.
    ///
    /// # Errors
    /// [`Errno::Inval`] for an index out of range; [`Errno::Busy`] while this half is open;
    /// [`Errno::OpBadState`] if this half was closed and the other half still uses its bindings.
    fn half(&self, index: c_int, side: Side) -> Result<Ep> {
        let attr = &self.info.ep_attr;
        let (name, count) = match side {
            Side::Tx => ("tx_ctx_cnt", attr.tx_ctx_cnt),
            Side::Rx => ("rx_ctx_cnt", attr.rx_ctx_cnt),
        };
        let index_in_range = usize::try_from(index).ok().filter(|&index| index < count);
        let Some(index) = index_in_range else {
            let reason = format!("context {index} of a scalable endpoint: {name} is {count}");
            return Err(log_error(&Error::new(Errno::Inval, reason)));
        };
        let shared = self.shared(index);
        let context = shared.context.as_ref().ok_or(Errno::Inval)?;
        let is_bound = shared.draft().bound.has_any_of(side.caps());
        let mut halves = context.halves();
        if halves[side as usize] != State::Absent {
            return Err(Errno::Busy);
        }
        if is_bound && shared.live.get().is_some() {
            return Err(still_bound_error(index));
        }
        halves[side as usize] = State::Open;
        drop(halves);
        let context = Arc::clone(context);
        Ok(Ep::new(shared, Some(Half { context, side })))
    }

    /// Returns the state that the halves of a context share.
    fn shared(&self, index: usize) -> Arc<Shared> {
        let mut contexts = self.contexts.lock().unwrap_or_else(PoisonError::into_inner);
        if contexts.len() <= index {
            contexts.resize_with(index + 1, Weak::new);
        }
        if let Some(shared) = contexts[index].upgrade() {
            return shared;
        }
        let user = self.domain_user.clone();
        let mut shared = Shared::new(&self.domain, user, self.info.clone());
        shared.context = Some(Arc::new(Context {
            common: Arc::clone(&self.common),
            index,
            halves: Mutex::new([State::Absent; 2]),
        }));
        let shared = Arc::new(shared);
        contexts[index] = Arc::downgrade(&shared);
        shared
    }
}
