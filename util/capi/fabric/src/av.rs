//! Address vectors: `struct fid_av`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::Arc;

use selvedge::{AddrFormat, Address, AddressVector, Caps, Errno, FiAddr, OpFlags, Result, av};
use selvedge_abi as abi;
use selvedge_abi::{Fid, FidAv, Ops, OpsAv, fclass, number};

use crate::addr;
use crate::answer::{call, done, refusal};
use crate::domain::Domain;
use crate::given::{fill, given, list, put, room, text};
use crate::object::{self, Class, User, Users, argument, close, this};
use crate::{eq, info};

/// What stands behind an address vector.
pub(crate) struct Av {
    pub(crate) own: Arc<dyn AddressVector>,
    format: AddrFormat,
    /// The indices, for programs that read them from `map_addr` of a named one.
    _map: Box<[abi::FiAddr]>,
    users: Users,
    _domain: User,
}

impl Av {
    pub(crate) fn one_more_user(&self) -> User {
        self.users.one_more()
    }
}

// SAFETY: `fid_av` begins with its fid, and has a table of functions behind it.
unsafe impl Class for Av {
    type Handle = FidAv;
    const FCLASS: usize = fclass::AV;

    fn ops() -> &'static Ops {
        &FID
    }

    fn handle(&self, fid: Fid) -> FidAv {
        FidAv { fid, ops: &AV }
    }

    fn closed(fid: Fid) -> FidAv {
        FidAv { fid, ops: &CLOSED }
    }

    fn users(&self) -> Option<&Users> {
        Some(&self.users)
    }
}

static FID: Ops = Ops {
    close: Some(close::<Av>),
    bind: Some(bind),
    ..Ops::refusing::<{ libc::ENOSYS }>()
};
static AV: OpsAv = OpsAv {
    insert: Some(insert),
    insertsvc: Some(insertsvc),
    insertsym: Some(insertsym),
    remove: Some(remove),
    lookup: Some(lookup),
    straddr: Some(straddr),
    set_user_id: Some(set_user_id),
    av_set: Some(av_set),
    ..OpsAv::refusing::<{ libc::ENOSYS }>()
};
static CLOSED: OpsAv = OpsAv::refusing::<{ libc::EBADF }>();

/// Opens an address vector.
///
/// # Errors
/// [`Errno::Inval`] for one to read without a name; [`Errno::NoSys`] for flags of which the object
/// model has nothing; the provider's.
///
/// # Safety
/// `attr` is NULL or names attributes, which may be written; `out` is NULL or may be written.
pub(crate) unsafe fn open(
    domain: &Domain,
    given_attr: *mut abi::AvAttr,
    out: *mut *mut FidAv,
    context: *mut c_void,
) -> Result {
    // SAFETY: passed on from the caller.
    let attr = unsafe { given(given_attr.cast_const()) }?;
    if out.is_null() {
        return Err(Errno::Inval);
    }
    // Values of `flags` that ask for what is different from what is here; `FI_EVENT` is deprecated.
    let harmless = number::av::SYMMETRIC;
    if attr.flags & !(harmless | READ) != 0 {
        return Err(Errno::NoSys);
    }
    let mut asked = av::Attr::default();
    asked.av_type = info::av_type(attr.av_type).ok_or(Errno::Inval)?;
    asked.count = attr.count.min(MOST_EXPECTED);
    asked.rx_ctx_bits = u32::try_from(attr.rx_ctx_bits).map_err(|_| Errno::Inval)?;
    // SAFETY: passed on from the caller.
    let name = unsafe { text(attr.name) }?.map(str::to_owned);
    asked.name = match (name, attr.flags & READ != 0) {
        (None, true) => return Err(Errno::Inval),
        (name, true) => name.map(av::Named::Read),
        (name, false) => name.map(av::Named::Make),
    };
    let own = domain
        .own
        .av(&asked)
        .map_err(|error| crate::answer::told(&error))?;
    let map = map_of(&asked, &*own);
    if asked.name.is_some() {
        let at = map.as_ptr().cast_mut().cast();
        // SAFETY: it was read just now, so it is there.
        let map_addr = unsafe { &raw mut (*given_attr).map_addr };
        // SAFETY: the caller lets it be written.
        unsafe { put(map_addr, at) }?;
    }
    let handle = object::open(
        Av {
            own,
            format: domain.format,
            _map: map,
            users: Users::default(),
            _domain: domain.one_more_user(),
        },
        context,
    );
    // SAFETY: passed on from the caller.
    unsafe { put(out, handle) }
}

/// `FI_READ`.
const READ: u64 = Caps::READ.bits();

/// Indices as programs read them from `map_addr`: of all that are there, as many as are expected,
/// and some more, because they may be inserted later.
fn map_of(attr: &av::Attr, own: &dyn AddressVector) -> Box<[abi::FiAddr]> {
    const SOME: u64 = 1024;
    if attr.name.is_none() {
        return Box::default();
    }
    let members = own.members().unwrap_or_default();
    let last = members.last().map_or(0, |addr| addr.0 + 1);
    (0..SOME.max(last).max(attr.count as u64)).collect()
}

/// The count is a hint, for which no memory may run out.
const MOST_EXPECTED: usize = 1 << 20;

/// Insertions are over when they return, so an event queue has nothing to say.
///
/// # Safety
/// Both are handles.
unsafe extern "C" fn bind(_av: *mut Fid, fid: *mut Fid, flags: u64) -> c_int {
    done(|| {
        // SAFETY: passed on from the caller.
        unsafe { argument::<eq::Eq>(fid) }?;
        match flags {
            0 => Err(Errno::NoSys),
            _ => Err(Errno::BadFlags),
        }
    })
}

/// # Safety
/// As fi_av_insert(3) has it.
unsafe extern "C" fn insert(
    av: *mut FidAv,
    addr: *const c_void,
    count: usize,
    out: *mut abi::FiAddr,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: passed on from the caller.
    let av: &Av = unsafe { this(av) };
    call(|| {
        let named = flags & USER_ID != 0;
        check_flags(flags & !USER_ID)?;
        if named && out.is_null() && count > 0 {
            return Err(Errno::Inval);
        }
        // SAFETY: passed on from the caller.
        let given = unsafe { addr::all(addr, count, av.format) }?;
        // SAFETY: passed on from the caller.
        let mut slots = unsafe { Slots::of(out, context, flags, count) }?;
        let inserted = given.into_iter().enumerate().filter_map(|(at, addr)| {
            let id = slots.addrs.get(at).filter(|_| named);
            // SAFETY: a program that passes `FI_AV_USER_ID` has written a number there.
            let id = id.map(|id| unsafe { id.assume_init() });
            let own = addr.and_then(|addr| {
                let own = av.own.insert_one(&addr)?;
                id.map_or(Ok(()), |id| av.own.set_user_id(own, FiAddr(id)))?;
                Ok(own)
            });
            slots.note(at, own)
        });
        Ok(c_int::try_from(inserted.count()).unwrap_or(c_int::MAX))
    })
}

/// `FI_AV_USER_ID`: the places for the indices say what completions are to call the peers.
const USER_ID: u64 = Caps::AV_USER_ID.bits();

/// # Safety
/// As fi_av_set_user_id(3) has it.
unsafe extern "C" fn set_user_id(
    av: *mut FidAv,
    addr: abi::FiAddr,
    id: abi::FiAddr,
    flags: u64,
) -> c_int {
    // SAFETY: passed on from the caller.
    let av: &Av = unsafe { this(av) };
    done(|| match flags {
        0 => av.own.set_user_id(FiAddr(addr), FiAddr(id)),
        _ => Err(Errno::BadFlags),
    })
}

fn check_flags(flags: u64) -> Result {
    match flags & !(OpFlags::MORE.bits() | number::av::SYNC_ERR) {
        0 => Ok(()),
        _ => Err(Errno::BadFlags),
    }
}

/// Where insertions are told of: an index each, and with `FI_SYNC_ERR` an error each.
struct Slots<'a> {
    addrs: &'a mut [MaybeUninit<abi::FiAddr>],
    errors: &'a mut [MaybeUninit<c_int>],
}

impl Slots<'_> {
    /// # Errors
    /// [`Errno::Inval`] for impossible counts.
    ///
    /// # Safety
    /// As fi_av_insert(3) has it.
    unsafe fn of(
        addrs: *mut abi::FiAddr,
        context: *mut c_void,
        flags: u64,
        count: usize,
    ) -> Result<Self> {
        let wants_addrs = if addrs.is_null() { 0 } else { count };
        let wants_errors = if flags & number::av::SYNC_ERR == 0 {
            0
        } else {
            count
        };
        Ok(Self {
            // SAFETY: passed on from the caller.
            addrs: unsafe { room(addrs, wants_addrs) }?,
            // SAFETY: passed on from the caller.
            errors: unsafe { room(context.cast::<c_int>(), wants_errors) }?,
        })
    }

    fn note(&mut self, at: usize, own: Result<FiAddr>) -> Option<FiAddr> {
        if let Some(addr) = self.addrs.get_mut(at) {
            addr.write(own.unwrap_or(FiAddr::NOTAVAIL).0);
        }
        if let Some(error) = self.errors.get_mut(at) {
            error.write(own.err().map_or(0, |errno| -refusal(errno)));
        }
        own.ok()
    }
}

/// # Safety
/// As fi_av_insertsvc(3) has it.
unsafe extern "C" fn insertsvc(
    av: *mut FidAv,
    node: *const c_char,
    service: *const c_char,
    out: *mut abi::FiAddr,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: passed on from the caller.
    let av: &Av = unsafe { this(av) };
    call(|| {
        check_flags(flags)?;
        // SAFETY: passed on from the caller.
        let node = unsafe { text(node) }?.unwrap_or_default();
        // SAFETY: passed on from the caller.
        let service = unsafe { text(service) }?.unwrap_or_default();
        // SAFETY: passed on from the caller.
        let mut slots = unsafe { Slots::of(out, context, flags, 1) }?;
        let own = av.own.insert_service(node, service).map_err(Errno::from);
        slots.note(0, own);
        own.map(|_| 1)
    })
}

/// # Safety
/// As fi_av_insertsym(3) has it.
unsafe extern "C" fn insertsym(
    av: *mut FidAv,
    node: *const c_char,
    nodecnt: usize,
    service: *const c_char,
    svccnt: usize,
    out: *mut abi::FiAddr,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: passed on from the caller.
    let av: &Av = unsafe { this(av) };
    call(|| {
        check_flags(flags)?;
        // SAFETY: passed on from the caller.
        let node = unsafe { text(node) }?.ok_or(Errno::Inval)?;
        // SAFETY: passed on from the caller.
        let service = unsafe { text(service) }?.ok_or(Errno::Inval)?;
        let count = nodecnt
            .checked_mul(svccnt)
            .filter(|&count| count <= MOST_EXPECTED);
        let count = count.ok_or(Errno::Inval)?;
        let mut own = vec![FiAddr::NOTAVAIL; count];
        let inserted = av
            .own
            .insert_symmetric(node, nodecnt, service, svccnt, &mut own)?;
        // SAFETY: passed on from the caller.
        let mut slots = unsafe { Slots::of(out, context, flags, count) }?;
        for (at, &addr) in own.iter().enumerate() {
            let is_there = addr != FiAddr::NOTAVAIL;
            slots.note(at, is_there.then_some(addr).ok_or(Errno::AddrNotAvail));
        }
        Ok(c_int::try_from(inserted).unwrap_or(c_int::MAX))
    })
}

/// # Safety
/// As fi_av_remove(3) has it.
unsafe extern "C" fn remove(
    av: *mut FidAv,
    addrs: *mut abi::FiAddr,
    count: usize,
    flags: u64,
) -> c_int {
    // SAFETY: passed on from the caller.
    let av: &Av = unsafe { this(av) };
    done(|| {
        if flags != 0 {
            return Err(Errno::BadFlags);
        }
        // SAFETY: passed on from the caller.
        let addrs = unsafe { list(addrs, count) }?;
        let addrs: Vec<_> = addrs.iter().copied().map(FiAddr).collect();
        av.own.remove(&addrs)
    })
}

/// Copies as much as there is room for; a buffer that is too small is no error here.
///
/// # Safety
/// As fi_av_lookup(3) has it.
unsafe extern "C" fn lookup(
    av: *mut FidAv,
    addr: abi::FiAddr,
    buf: *mut c_void,
    len: *mut usize,
) -> c_int {
    // SAFETY: passed on from the caller.
    let av: &Av = unsafe { this(av) };
    done(|| {
        let found = addr::encode(&av.own.lookup(FiAddr(addr))?);
        // SAFETY: passed on from the caller.
        match unsafe { fill(buf.cast(), len, &found) } {
            Err(Errno::TooSmall) => Ok(()),
            answer => answer,
        }
    })
}

/// # Safety
/// As fi_av_straddr(3) has it.
unsafe extern "C" fn straddr(
    av: *mut FidAv,
    addr: *const c_void,
    buf: *mut c_char,
    len: *mut usize,
) -> *const c_char {
    // SAFETY: passed on from the caller.
    let av: &Av = unsafe { this(av) };
    let written = done(|| {
        // SAFETY: passed on from the caller.
        let (addr, _) = unsafe { addr::at(addr, av.format) }?;
        let text = in_words(&addr);
        // SAFETY: passed on from the caller.
        let had = *unsafe { given(len) }?;
        // SAFETY: passed on from the caller.
        match unsafe { fill(buf.cast(), len, text.as_bytes()) } {
            // What fits ends with a zero all the same.
            // SAFETY: the caller vouches for `had` bytes.
            Err(Errno::TooSmall) if had > 0 => unsafe { put(buf.wrapping_add(had - 1), 0) },
            Err(Errno::TooSmall) => Ok(()),
            answer => answer,
        }
    });
    if written == 0 { buf } else { std::ptr::null() }
}

/// # Safety
/// As fi_av_set(3) has it.
unsafe extern "C" fn av_set(
    av: *mut FidAv,
    attr: *mut abi::AvSetAttr,
    out: *mut *mut abi::FidAvSet,
    context: *mut c_void,
) -> c_int {
    // SAFETY: passed on from the caller.
    let av: &Av = unsafe { this(av) };
    // SAFETY: passed on from the caller.
    done(|| unsafe { crate::av_set::open(av, attr, out, context) })
}

/// As libfabric prints addresses, with a zero behind it.
fn in_words(addr: &Address) -> String {
    let scheme = match addr.format() {
        AddrFormat::SockaddrIn => "fi_sockaddr_in://",
        AddrFormat::SockaddrIn6 => "fi_sockaddr_in6://",
        _ => "",
    };
    format!("{scheme}{addr}\0")
}
