//! Shared contexts: `fi_srx_context`, whose handle is a `struct fid_ep` that receives are posted to,
//! and `fi_stx_context`, `struct fid_stx`.
//!
//! A shared transmit context is a handle and no more: endpoints of a domain have nothing to send by
//! that there could be too few of.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use selvedge::info::RxAttr;
use selvedge::{Caps, Errno, FiAddr, OpFlags, Result, SharedReceives, TagMatch, msg, tagged};
use selvedge_abi as abi;
use selvedge_abi::{
    Fid, FidEp, FidStx, Iovec, Ops, OpsAtomic, OpsCm, OpsCollective, OpsEp, OpsMsg, OpsRma,
    OpsTagged, fclass, number,
};

use super::lists;
use crate::answer::{counted, done, posted, told};
use crate::domain::Domain;
use crate::given::{given, put};
use crate::object::{self, Class, User, Users, close, of_own_fid, this};

/// What stands behind a shared receive context.
pub(crate) struct Srx {
    pub(super) own: Arc<dyn SharedReceives>,
    users: Users,
    _domain: User,
}

/// What stands behind a shared transmit context.
pub(crate) struct Stx {
    users: Users,
    _domain: User,
}

impl Srx {
    pub(super) fn one_more_user(&self) -> User {
        self.users.one_more()
    }
}

impl Stx {
    pub(super) fn one_more_user(&self) -> User {
        self.users.one_more()
    }
}

// SAFETY: `fid_ep` begins with its fid, and has seven tables of functions behind it.
unsafe impl Class for Srx {
    type Handle = FidEp;
    const FCLASS: usize = fclass::SRX_CTX;

    fn ops() -> &'static Ops {
        &FID
    }

    fn handle(&self, fid: Fid) -> FidEp {
        FidEp {
            fid,
            ops: &EP,
            cm: &Refusing::<{ libc::ENOSYS }>::CM,
            msg: &MSG,
            rma: &Refusing::<{ libc::ENOSYS }>::RMA,
            tagged: &TAGGED,
            atomic: &Refusing::<{ libc::ENOSYS }>::ATOMIC,
            collective: &Refusing::<{ libc::ENOSYS }>::COLLECTIVE,
        }
    }

    fn closed(fid: Fid) -> FidEp {
        FidEp {
            fid,
            ops: &Refusing::<{ libc::EBADF }>::EP,
            cm: &Refusing::<{ libc::EBADF }>::CM,
            msg: &Refusing::<{ libc::EBADF }>::MSG,
            rma: &Refusing::<{ libc::EBADF }>::RMA,
            tagged: &Refusing::<{ libc::EBADF }>::TAGGED,
            atomic: &Refusing::<{ libc::EBADF }>::ATOMIC,
            collective: &Refusing::<{ libc::EBADF }>::COLLECTIVE,
        }
    }

    fn users(&self) -> Option<&Users> {
        Some(&self.users)
    }
}

// SAFETY: `fid_stx` begins with its fid, and has a table of functions behind it.
unsafe impl Class for Stx {
    type Handle = FidStx;
    const FCLASS: usize = fclass::STX_CTX;

    fn ops() -> &'static Ops {
        &STX_FID
    }

    fn handle(&self, fid: Fid) -> FidStx {
        let ops = &Refusing::<{ libc::ENOSYS }>::EP;
        FidStx { fid, ops }
    }

    fn closed(fid: Fid) -> FidStx {
        let ops = &Refusing::<{ libc::EBADF }>::EP;
        FidStx { fid, ops }
    }

    fn users(&self) -> Option<&Users> {
        Some(&self.users)
    }
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
}

static FID: Ops = Ops {
    close: Some(close::<Srx>),
    control: Some(control),
    ..Ops::refusing::<{ libc::ENOSYS }>()
};
static STX_FID: Ops = Ops {
    close: Some(close::<Stx>),
    control: Some(control),
    ..Ops::refusing::<{ libc::ENOSYS }>()
};
static EP: OpsEp = OpsEp {
    cancel: Some(cancel),
    ..OpsEp::refusing::<{ libc::ENOSYS }>()
};
static MSG: OpsMsg = OpsMsg {
    recv: Some(recv),
    recvv: Some(recvv),
    recvmsg: Some(recvmsg),
    ..OpsMsg::refusing::<{ libc::ENOSYS }>()
};
static TAGGED: OpsTagged = OpsTagged {
    recv: Some(trecv),
    recvv: Some(trecvv),
    recvmsg: Some(trecvmsg),
    ..OpsTagged::refusing::<{ libc::ENOSYS }>()
};

/// `fi_srx_context`.
///
/// # Safety
/// As fi_endpoint(3) has it.
pub(crate) unsafe extern "C" fn srx_context(
    domain: *mut abi::FidDomain,
    attr: *mut abi::RxAttr,
    out: *mut *mut FidEp,
    context: *mut c_void,
) -> c_int {
    // SAFETY: passed on from the caller.
    let domain: &Domain = unsafe { this(domain) };
    done(|| {
        if out.is_null() {
            return Err(Errno::Inval);
        }
        let mut asked = RxAttr::default();
        if !attr.is_null() {
            // SAFETY: passed on from the caller.
            let attr = unsafe { given(attr.cast_const()) }?;
            asked.caps = Caps::from_bits_truncate(attr.caps);
            asked.op_flags = lists::flags(attr.op_flags)?;
            asked.size = attr.size;
            asked.iov_limit = attr.iov_limit;
        }
        let own = domain.own.srx(&asked).map_err(|error| told(&error))?;
        let srx = Srx {
            own,
            users: Users::default(),
            _domain: domain.one_more_user(),
        };
        // SAFETY: passed on from the caller.
        unsafe { put(out, object::open(srx, context)) }
    })
}

/// `fi_stx_context`.
///
/// # Safety
/// As fi_endpoint(3) has it.
pub(crate) unsafe extern "C" fn stx_context(
    domain: *mut abi::FidDomain,
    _attr: *mut abi::TxAttr,
    out: *mut *mut FidStx,
    context: *mut c_void,
) -> c_int {
    // SAFETY: passed on from the caller.
    let domain: &Domain = unsafe { this(domain) };
    done(|| {
        if out.is_null() {
            return Err(Errno::Inval);
        }
        let stx = Stx {
            users: Users::default(),
            _domain: domain.one_more_user(),
        };
        // SAFETY: passed on from the caller.
        unsafe { put(out, object::open(stx, context)) }
    })
}

/// Both are enabled from the first.
///
/// # Safety
/// As fi_control(3) has it.
unsafe extern "C" fn control(_fid: *mut Fid, command: c_int, _arg: *mut c_void) -> c_int {
    done(|| match command {
        number::control::ENABLE => Ok(()),
        _ => Err(Errno::NoSys),
    })
}

/// # Safety
/// As fi_cancel(3) has it.
unsafe extern "C" fn cancel(fid: *mut Fid, context: *mut c_void) -> isize {
    // SAFETY: passed on from the caller.
    let srx: &Srx = unsafe { of_own_fid(fid) };
    counted(|| srx.own.cancel(lists::context(context)).map(|()| 0))
}

/// # Safety
/// As fi_recv(3) has it.
unsafe extern "C" fn recv(
    srx: *mut FidEp,
    buf: *mut c_void,
    len: usize,
    desc: *mut c_void,
    src: u64,
    context: *mut c_void,
) -> isize {
    let msg = msg::RecvMsg {
        iov: &[lists::room(buf, len)],
        desc: &[lists::desc(desc)],
        src: FiAddr(src),
        context: lists::context(context),
    };
    // SAFETY: passed on from the caller.
    let srx: &Srx = unsafe { this(srx) };
    // SAFETY: passed on from the caller.
    let post = || unsafe { srx.own.recvmsg(&msg, OpFlags::DEFAULT) };
    posted(lists::named(msg.iov).and_then(|()| post()))
}

/// # Safety
/// As fi_recvv(3) has it.
unsafe extern "C" fn recvv(
    srx: *mut FidEp,
    iov: *const Iovec,
    desc: *const *mut c_void,
    count: usize,
    src: u64,
    context: *mut c_void,
) -> isize {
    let given = abi::Msg {
        msg_iov: iov,
        desc,
        iov_count: count,
        addr: src,
        context,
        data: 0,
    };
    // SAFETY: passed on from the caller.
    posted(unsafe { post(srx, &given, OpFlags::DEFAULT) })
}

/// # Safety
/// As fi_recvmsg(3) has it.
unsafe extern "C" fn recvmsg(srx: *mut FidEp, msg: *const abi::Msg, flags: u64) -> isize {
    let post = || {
        let flags = lists::flags(flags)?;
        // SAFETY: passed on from the caller.
        let msg = unsafe { given(msg) }?;
        // SAFETY: passed on from the caller.
        unsafe { post(srx, msg, flags) }
    };
    posted(post())
}

/// # Safety
/// As fi_recvmsg(3) has it.
unsafe fn post(srx: *mut FidEp, given: &abi::Msg, flags: OpFlags) -> Result {
    let msg = msg::RecvMsg {
        // SAFETY: passed on from the caller.
        iov: unsafe { lists::iov_room(given.msg_iov, given.iov_count) }?,
        // SAFETY: passed on from the caller.
        desc: unsafe { lists::descs(given.desc, given.iov_count) }?,
        src: FiAddr(given.addr),
        context: lists::context(given.context),
    };
    // SAFETY: passed on from the caller.
    let srx: &Srx = unsafe { this(srx) };
    // SAFETY: passed on from the caller.
    unsafe { srx.own.recvmsg(&msg, flags) }
}

/// # Safety
/// As fi_trecv(3) has it.
unsafe extern "C" fn trecv(
    srx: *mut FidEp,
    buf: *mut c_void,
    len: usize,
    desc: *mut c_void,
    src: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    let msg = tagged::RecvMsg {
        iov: &[lists::room(buf, len)],
        desc: &[lists::desc(desc)],
        src: FiAddr(src),
        tag: TagMatch { tag, ignore },
        context: lists::context(context),
    };
    // SAFETY: passed on from the caller.
    let srx: &Srx = unsafe { this(srx) };
    // SAFETY: passed on from the caller.
    let post = || unsafe { srx.own.trecvmsg(&msg, OpFlags::DEFAULT) };
    posted(lists::named(msg.iov).and_then(|()| post()))
}

/// # Safety
/// As fi_trecvv(3) has it.
unsafe extern "C" fn trecvv(
    srx: *mut FidEp,
    iov: *const Iovec,
    desc: *const *mut c_void,
    count: usize,
    src: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    let given = abi::MsgTagged {
        msg_iov: iov,
        desc,
        iov_count: count,
        addr: src,
        tag,
        ignore,
        context,
        data: 0,
    };
    // SAFETY: passed on from the caller.
    posted(unsafe { tpost(srx, &given, OpFlags::DEFAULT) })
}

/// # Safety
/// As fi_trecvmsg(3) has it.
unsafe extern "C" fn trecvmsg(srx: *mut FidEp, msg: *const abi::MsgTagged, flags: u64) -> isize {
    let post = || {
        let flags = lists::flags(flags)?;
        // SAFETY: passed on from the caller.
        let msg = unsafe { given(msg) }?;
        // SAFETY: passed on from the caller.
        unsafe { tpost(srx, msg, flags) }
    };
    posted(post())
}

/// # Safety
/// As fi_trecvmsg(3) has it.
unsafe fn tpost(srx: *mut FidEp, given: &abi::MsgTagged, flags: OpFlags) -> Result {
    let (tag, ignore) = (given.tag, given.ignore);
    let msg = tagged::RecvMsg {
        // SAFETY: passed on from the caller.
        iov: unsafe { lists::iov_room(given.msg_iov, given.iov_count) }?,
        // SAFETY: passed on from the caller.
        desc: unsafe { lists::descs(given.desc, given.iov_count) }?,
        src: FiAddr(given.addr),
        tag: TagMatch { tag, ignore },
        context: lists::context(given.context),
    };
    // SAFETY: passed on from the caller.
    let srx: &Srx = unsafe { this(srx) };
    // SAFETY: passed on from the caller.
    unsafe { srx.own.trecvmsg(&msg, flags) }
}
