//! Scalable endpoints: `fi_scalable_ep`, and the contexts that are opened from one.
//!
//! The object model has one endpoint where libfabric has a transmit and a receive context of one
//! number. So those two are the halves of a context. It is opened when both have been enabled, when
//! one that was enabled is used, or when the receive context is enabled and there is no transmit
//! context: peers may reach it from then on. A half that comes later is bound to the open endpoint.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use selvedge::{
    AddrFormat, Address, AddressVector, Caps, Endpoint, Errno, Error, Info, OpFlags, Result,
    ScalableEndpoint,
};
use selvedge_abi as abi;
use selvedge_abi::{
    Fid, FidEp, Ops, OpsAtomic, OpsCm, OpsCollective, OpsEp, OpsMsg, OpsRma, OpsTagged, fclass,
    number,
};

use super::bind::Bound;
use super::{
    Draft, Ep, Shared, atomic, bind, cancel, cm, collective, lists, msg, option, rma, tagged,
};
use crate::answer::{done, told};
use crate::av::Av;
use crate::domain::Domain;
use crate::given::{fill, given, put};
use crate::object::{self, Class, User, Users, argument, close, of_own_fid, this};
use crate::{addr, info};

/// What stands behind a scalable endpoint.
pub(crate) struct Sep {
    common: Arc<Common>,
    info: Info,
    /// Those that are open, by number.
    contexts: Mutex<Vec<Weak<Shared>>>,
    domain: Arc<dyn selvedge::Domain>,
    users: Users,
    whole_domain: User,
}

/// What it has in common with its contexts.
struct Common {
    own: Arc<dyn ScalableEndpoint>,
    format: AddrFormat,
    av: OnceLock<(Arc<dyn AddressVector>, User)>,
}

/// The number of an endpoint that is a context, and what was done to its halves.
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

/// What makes an [`Ep`] a half of a context.
pub(super) struct Half {
    context: Arc<Context>,
    side: Side,
    _sep: User,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Tx,
    Rx,
}

/// What stands behind a transmit context.
#[repr(transparent)]
pub(crate) struct TxContext(pub(super) Ep);

/// What stands behind a receive context.
#[repr(transparent)]
pub(crate) struct RxContext(pub(super) Ep);

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

    /// Opens the context, bound to what its halves are.
    ///
    /// # Errors
    /// [`Errno::NoCq`] or [`Errno::NoAv`] for what is not bound; the provider's.
    fn open(&self, draft: &mut Draft, domain: &dyn selvedge::Domain) -> Result<Arc<dyn Endpoint>> {
        if let Some((av, user)) = self.common.av.get() {
            draft.bound.add_av_if_none(av, user);
        }
        // A half that is not there needs no queue.
        let mut used = draft.info.clone();
        let halves = *self.halves();
        for side in [Side::Tx, Side::Rx] {
            if halves[side as usize] != State::Enabled {
                used.caps.remove(side.caps());
            }
        }
        let bindings = draft.bound.bindings(&used, domain)?;
        let opened = self.common.own.context(self.index, &draft.info, bindings);
        opened.map_err(|error| told(&error))
    }
}

impl Half {
    /// Whether it takes a queue or counter with these flags.
    pub(super) fn takes(&self, flags: u64) -> bool {
        let others = Side::Tx.caps().union(Side::Rx.caps()) - self.side.caps();
        flags & others.bits() == 0
    }

    /// The address of the scalable endpoint, also before there is a context.
    ///
    /// # Errors
    /// As [`ScalableEndpoint::address`].
    pub(super) fn address(&self) -> Result<Address> {
        self.context.common.own.address()
    }

    fn is_enabled(&self) -> bool {
        self.context.halves()[self.side as usize] == State::Enabled
    }

    fn set(&self, state: State) {
        self.context.halves()[self.side as usize] = state;
    }

    /// Whether the context is opened now that this half was enabled.
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
    /// Enables a half of a context, and opens the context if it is time.
    ///
    /// # Errors
    /// [`Errno::OpBadState`] when it is enabled; [`Errno::NoCq`] without a queue or counter; those of
    /// [`Context::open`].
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

    /// The endpoint of a half that was enabled.
    ///
    /// # Errors
    /// [`Errno::OpBadState`] before it was; those of [`Context::open`].
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

fn still_bound(index: usize) -> Errno {
    let what = format!(
        "context {index} of a scalable endpoint: its other context is open and still reports to \
         the queues and counters that the closed one was bound to; close both, then open both"
    );
    told(&Error::new(Errno::OpBadState, what))
}

/// Tables that refuse every call with one number.
struct Refusing<const ERRNO: c_int>;

impl<const ERRNO: c_int> Refusing<ERRNO> {
    const EP: OpsEp = OpsEp::refusing::<ERRNO>();
    const CM: OpsCm = OpsCm::refusing::<ERRNO>();
    const MSG: OpsMsg = OpsMsg::refusing::<ERRNO>();
    const RMA: OpsRma = OpsRma::refusing::<ERRNO>();
    const TAGGED: OpsTagged = OpsTagged::refusing::<ERRNO>();
    const ATOMIC: OpsAtomic = OpsAtomic::refusing::<ERRNO>();
    const COLLECTIVE: OpsCollective = OpsCollective::refusing::<ERRNO>();

    const fn handle(fid: Fid) -> FidEp {
        FidEp {
            fid,
            ops: &Self::EP,
            cm: &Self::CM,
            msg: &Self::MSG,
            rma: &Self::RMA,
            tagged: &Self::TAGGED,
            atomic: &Self::ATOMIC,
            collective: &Self::COLLECTIVE,
        }
    }
}

type Nothing = Refusing<{ libc::ENOSYS }>;
type Gone = Refusing<{ libc::EBADF }>;

// SAFETY: `fid_ep` begins with its fid, and has seven tables of functions behind it.
unsafe impl Class for Sep {
    type Handle = FidEp;
    const FCLASS: usize = fclass::SEP;

    fn ops() -> &'static Ops {
        &SEP_FID
    }

    fn handle(&self, fid: Fid) -> FidEp {
        FidEp {
            ops: &SEP,
            cm: &SEP_CM,
            ..Nothing::handle(fid)
        }
    }

    fn closed(fid: Fid) -> FidEp {
        Gone::handle(fid)
    }

    fn users(&self) -> Option<&Users> {
        Some(&self.users)
    }
}

// SAFETY: as for `Sep`.
unsafe impl Class for TxContext {
    type Handle = FidEp;
    const FCLASS: usize = fclass::TX_CTX;

    fn ops() -> &'static Ops {
        &TX_FID
    }

    fn handle(&self, fid: Fid) -> FidEp {
        FidEp {
            ops: &HALF,
            cm: &TX_CM,
            msg: &TX_MSG,
            rma: &rma::RMA,
            tagged: &TX_TAGGED,
            atomic: &atomic::ATOMIC,
            collective: &collective::COLLECTIVE,
            ..Nothing::handle(fid)
        }
    }

    fn closed(fid: Fid) -> FidEp {
        Gone::handle(fid)
    }

    fn users(&self) -> Option<&Users> {
        Some(&self.0.users)
    }
}

// SAFETY: as for `Sep`.
unsafe impl Class for RxContext {
    type Handle = FidEp;
    const FCLASS: usize = fclass::RX_CTX;

    fn ops() -> &'static Ops {
        &RX_FID
    }

    fn handle(&self, fid: Fid) -> FidEp {
        FidEp {
            ops: &HALF,
            cm: &RX_CM,
            msg: &RX_MSG,
            tagged: &RX_TAGGED,
            ..Nothing::handle(fid)
        }
    }

    fn closed(fid: Fid) -> FidEp {
        Gone::handle(fid)
    }

    fn users(&self) -> Option<&Users> {
        Some(&self.0.users)
    }
}

static SEP_FID: Ops = Ops {
    close: Some(close::<Sep>),
    bind: Some(bind_sep),
    control: Some(control_sep),
    ..Ops::refusing::<{ libc::ENOSYS }>()
};
static SEP: OpsEp = OpsEp {
    tx_ctx: Some(tx_context),
    rx_ctx: Some(rx_context),
    ..Nothing::EP
};
static SEP_CM: OpsCm = OpsCm {
    getname: Some(getname),
    ..Nothing::CM
};

// What an `Ep` is given by these tables is the `Ep` in one of its halves, which is all there is.
static TX_FID: Ops = Ops {
    close: Some(close::<TxContext>),
    ..HALF_FID
};
static RX_FID: Ops = Ops {
    close: Some(close::<RxContext>),
    ..HALF_FID
};
const HALF_FID: Ops = Ops {
    bind: Some(bind::bind),
    control: Some(super::control),
    ..Ops::refusing::<{ libc::ENOSYS }>()
};
static HALF: OpsEp = OpsEp {
    cancel: Some(cancel),
    getopt: Some(option::getopt),
    setopt: Some(option::setopt),
    ..Nothing::EP
};
// Collectives are posted to the half that sends, and so that one joins.
static TX_CM: OpsCm = OpsCm {
    join: Some(crate::mc::join),
    ..HALF_CM
};
static RX_CM: OpsCm = HALF_CM;
const HALF_CM: OpsCm = OpsCm {
    getname: Some(cm::getname),
    ..Nothing::CM
};
static TX_MSG: OpsMsg = OpsMsg {
    recv: Nothing::MSG.recv,
    recvv: Nothing::MSG.recvv,
    recvmsg: Nothing::MSG.recvmsg,
    ..msg::TABLE
};
static RX_MSG: OpsMsg = OpsMsg {
    recv: msg::TABLE.recv,
    recvv: msg::TABLE.recvv,
    recvmsg: msg::TABLE.recvmsg,
    ..Nothing::MSG
};
static TX_TAGGED: OpsTagged = OpsTagged {
    recv: Nothing::TAGGED.recv,
    recvv: Nothing::TAGGED.recvv,
    recvmsg: Nothing::TAGGED.recvmsg,
    ..tagged::TABLE
};
static RX_TAGGED: OpsTagged = OpsTagged {
    recv: tagged::TABLE.recv,
    recvv: tagged::TABLE.recvv,
    recvmsg: tagged::TABLE.recvmsg,
    ..Nothing::TAGGED
};

/// `fi_scalable_ep`.
///
/// # Safety
/// As fi_scalable_ep(3) has it.
pub(crate) unsafe extern "C" fn scalable_ep(
    domain: *mut abi::FidDomain,
    info: *mut abi::Info,
    out: *mut *mut FidEp,
    context: *mut c_void,
) -> c_int {
    // SAFETY: passed on from the caller.
    let domain: &Domain = unsafe { this(domain) };
    done(|| {
        if out.is_null() {
            return Err(Errno::Inval);
        }
        // SAFETY: passed on from the caller.
        let given = unsafe { info::read(info, domain.abi) }?;
        let info = domain.adopted(given.info)?;
        let own = domain.own.scalable_endpoint(&info);
        let sep = Sep {
            common: Arc::new(Common {
                own: own.map_err(|error| told(&error))?,
                format: info.addr_format,
                av: OnceLock::new(),
            }),
            contexts: Mutex::default(),
            info,
            domain: Arc::clone(&domain.own),
            users: Users::default(),
            whole_domain: domain.one_more_user(),
        };
        // SAFETY: passed on from the caller.
        unsafe { put(out, object::open(sep, context)) }
    })
}

/// # Safety
/// Both are handles.
unsafe extern "C" fn bind_sep(sep: *mut Fid, fid: *mut Fid, flags: u64) -> c_int {
    // SAFETY: passed on from the caller.
    let sep: &Sep = unsafe { of_own_fid(sep) };
    done(|| {
        // SAFETY: passed on from the caller.
        let av: &Av = unsafe { argument(fid) }?;
        if flags != 0 {
            return Err(Errno::BadFlags);
        }
        let bound = (Arc::clone(&av.own), av.one_more_user());
        sep.common.av.set(bound).map_err(|_| Errno::Inval)
    })
}

/// There is nothing to enable but contexts.
///
/// # Safety
/// As fi_control(3) has it.
unsafe extern "C" fn control_sep(sep: *mut Fid, command: c_int, _arg: *mut c_void) -> c_int {
    // SAFETY: passed on from the caller.
    let sep: &Sep = unsafe { of_own_fid(sep) };
    done(|| match command {
        number::control::ENABLE if sep.common.av.get().is_none() => Err(Errno::NoAv),
        number::control::ENABLE => Ok(()),
        _ => Err(Errno::NoSys),
    })
}

/// # Safety
/// As fi_getname(3) has it.
unsafe extern "C" fn getname(sep: *mut Fid, at: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: passed on from the caller.
    let sep: &Sep = unsafe { of_own_fid(sep) };
    done(|| {
        let address = addr::encode(&sep.common.own.address()?);
        // SAFETY: passed on from the caller.
        unsafe { fill(at.cast(), len, &address) }
    })
}

/// # Safety
/// As fi_tx_context(3) has it.
unsafe extern "C" fn tx_context(
    sep: *mut FidEp,
    index: c_int,
    attr: *mut abi::TxAttr,
    out: *mut *mut FidEp,
    context: *mut c_void,
) -> c_int {
    // SAFETY: passed on from the caller.
    let sep: &Sep = unsafe { this(sep) };
    done(|| {
        let mut ep = sep.half(index, Side::Tx, out)?;
        if !attr.is_null() {
            // SAFETY: passed on from the caller.
            let attr = unsafe { given(attr.cast_const()) }?;
            ep.tx_flags = AtomicU64::new(lists::flags(attr.op_flags)?.bits());
        }
        // SAFETY: passed on from the caller.
        unsafe { put(out, object::open(TxContext(ep), context)) }
    })
}

/// # Safety
/// As fi_rx_context(3) has it.
unsafe extern "C" fn rx_context(
    sep: *mut FidEp,
    index: c_int,
    attr: *mut abi::RxAttr,
    out: *mut *mut FidEp,
    context: *mut c_void,
) -> c_int {
    // SAFETY: passed on from the caller.
    let sep: &Sep = unsafe { this(sep) };
    done(|| {
        let mut ep = sep.half(index, Side::Rx, out)?;
        if !attr.is_null() {
            // SAFETY: passed on from the caller.
            let attr = unsafe { given(attr.cast_const()) }?;
            ep.rx_flags = AtomicU64::new(lists::flags(attr.op_flags)?.bits());
        }
        // SAFETY: passed on from the caller.
        unsafe { put(out, object::open(RxContext(ep), context)) }
    })
}

impl Sep {
    /// A half of a context, which is opened for it or with the other half.
    ///
    /// # Errors
    /// [`Errno::Inval`] when there are not so many, or there is no place for the handle;
    /// [`Errno::Busy`] while this half is open; [`Errno::OpBadState`] when it was closed and the other
    /// half still needs what it was bound to.
    fn half(&self, index: c_int, side: Side, out: *mut *mut FidEp) -> Result<Ep> {
        let attr = &self.info.ep_attr;
        let (name, count) = match side {
            Side::Tx => ("tx_ctx_cnt", attr.tx_ctx_cnt),
            Side::Rx => ("rx_ctx_cnt", attr.rx_ctx_cnt),
        };
        let given = usize::try_from(index).ok().filter(|&index| index < count);
        let Some(index) = given.filter(|_| !out.is_null()) else {
            let what = format!("context {index} of a scalable endpoint: {name} is {count}");
            return Err(told(&Error::new(Errno::Inval, what)));
        };
        let shared = self.shared(index);
        let context = shared.context.as_ref().ok_or(Errno::Inval)?;
        let is_bound = shared.draft().bound.has_any_of(side.caps());
        let mut halves = context.halves();
        if halves[side as usize] != State::Absent {
            return Err(Errno::Busy);
        }
        if is_bound && shared.live.get().is_some() {
            return Err(still_bound(index));
        }
        halves[side as usize] = State::Open;
        drop(halves);
        let half = Half {
            context: Arc::clone(context),
            side,
            _sep: self.users.one_more(),
        };
        Ok(Ep {
            live: OnceLock::new(),
            shared,
            tx_flags: AtomicU64::new(OpFlags::DEFAULT.bits()),
            rx_flags: AtomicU64::new(OpFlags::DEFAULT.bits()),
            users: Users::default(),
            _original: None,
            half: Some(half),
        })
    }

    /// What the halves of a context have in common.
    fn shared(&self, index: usize) -> Arc<Shared> {
        let mut contexts = self.contexts.lock().unwrap_or_else(PoisonError::into_inner);
        if contexts.len() <= index {
            contexts.resize_with(index + 1, Weak::new);
        }
        if let Some(shared) = contexts[index].upgrade() {
            return shared;
        }
        let info = self.info.clone();
        let shared = Arc::new(Shared {
            live: OnceLock::new(),
            domain: Arc::clone(&self.domain),
            format: self.common.format,
            default_flags: (info.tx_attr.op_flags, info.rx_attr.op_flags),
            draft: Mutex::new(Draft {
                info,
                bound: Bound::default(),
                options: Vec::new(),
                place: None,
            }),
            context: Some(Arc::new(Context {
                common: Arc::clone(&self.common),
                index,
                halves: Mutex::new([State::Absent; 2]),
            })),
            _domain: self.whole_domain.clone(),
        });
        contexts[index] = Arc::downgrade(&shared);
        shared
    }
}
