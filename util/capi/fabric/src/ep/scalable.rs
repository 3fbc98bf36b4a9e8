//! Scalable endpoints: `fi_scalable_ep`, and the contexts that are opened from one.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use selvedge::{Domain, Errno, Error, Info, Result};
use selvedge_abi::{FidEp, Ops, OpsCm, OpsEp, fclass, number};

use super::endpoint::{Ep, Shared};
use super::half::{Common, Context, Half, Side, State};
use super::post::lists;
use crate::addr;
use crate::av::Av;
use crate::object::{self, Object, Table, User, argument, class};
use crate::pointer::copy_out;
use crate::status::{guarded_unit, log_error};

/// The object behind the handle of a scalable endpoint.
pub(crate) struct Sep {
    common: Arc<Common>,
    info: Info,
    /// The open contexts, by index.
    contexts: Mutex<Vec<Weak<Shared>>>,
    domain: Arc<dyn Domain>,
    domain_user: User,
}

class! {
    Sep, FidEp, FID, |_| fclass::SEP;
    tables |_| ops: &SEP, cm: &CM
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
    /// Opens a scalable endpoint of a domain, with one use of the domain for each context.
    ///
    /// # Errors
    /// The provider's.
    pub(crate) fn open(domain: &Arc<dyn Domain>, domain_user: User, info: Info) -> Result<Self> {
        let inner = domain.scalable_endpoint(&info);
        Ok(Self {
            common: Arc::new(Common {
                inner: inner.map_err(|error| log_error(&error))?,
                av: OnceLock::new(),
            }),
            contexts: Mutex::default(),
            info,
            domain: Arc::clone(domain),
            domain_user,
        })
    }

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

fn still_bound_error(index: usize) -> Errno {
    let reason = format!(
        "context {index} of a scalable endpoint: its other context is open and still reports to \
         the queues and counters that the closed one was bound to; close both, then open both"
    );
    log_error(&Error::new(Errno::OpBadState, reason))
}
