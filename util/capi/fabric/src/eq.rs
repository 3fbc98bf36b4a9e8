//! Event queues: `struct fid_eq`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::offset_of;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use selvedge::eq::{Attr, ErrEntry, Event};
use selvedge::info::Version;
use selvedge::poll::Member;
use selvedge::{Context, Errno, EventQueue, OpFlags, Result, wait as wait_object};
use selvedge_abi as abi;
use selvedge_abi::{EqEntry, EqErrEntry, Fid, FidEq, Ops, OpsEq, fclass, number};

use crate::answer::{counted, done, told};
use crate::cq::{context_of, sentence};
use crate::fabric::Fabric;
use crate::given::{given, list, member, put, room};
use crate::object::{self, Class, User, Users, close, of_own_fid, this};
use crate::sets::{self, Held, WaitSet};
use crate::{info, known, pep, wait};

/// What stands behind an event queue.
pub(crate) struct Eq {
    pub(crate) own: Arc<dyn EventQueue>,
    wait_obj: wait_object::Object,
    /// Before the queue is closed, the set that it is in lets it go.
    _held: Option<Held>,
    /// Whether the program may write events.
    is_writable: bool,
    version: Version,
    last: Mutex<Last>,
    users: Users,
    _fabric: User,
}

#[derive(Debug, Default)]
struct Last {
    number: c_int,
    detail: CString,
    data: Vec<u8>,
}

impl Eq {
    pub(crate) fn one_more_user(&self) -> User {
        self.users.one_more()
    }
}

// SAFETY: `fid_eq` begins with its fid, and has a table of functions behind it.
unsafe impl Class for Eq {
    type Handle = FidEq;
    const FCLASS: usize = fclass::EQ;

    fn ops() -> &'static Ops {
        &FID
    }

    fn handle(&self, fid: Fid) -> FidEq {
        FidEq { fid, ops: &EQ }
    }

    fn closed(fid: Fid) -> FidEq {
        FidEq { fid, ops: &CLOSED }
    }

    fn users(&self) -> Option<&Users> {
        Some(&self.users)
    }
}

static FID: Ops = Ops {
    close: Some(close::<Eq>),
    control: Some(control),
    ..Ops::refusing::<{ libc::ENOSYS }>()
};
static EQ: OpsEq = OpsEq {
    read: Some(read),
    readerr: Some(readerr),
    write: Some(write),
    sread: Some(sread),
    strerror: Some(strerror),
    ..OpsEq::refusing::<{ libc::ENOSYS }>()
};
static CLOSED: OpsEq = OpsEq::refusing::<{ libc::EBADF }>();

/// Opens an event queue.
///
/// # Errors
/// [`Errno::NoSys`] for a wait object that is not offered; the provider's.
///
/// # Safety
/// `attr` is NULL or names attributes, `out` is NULL or may be written.
pub(crate) unsafe fn open(
    fabric: &Fabric,
    attr: *const abi::EqAttr,
    out: *mut *mut FidEq,
    context: *mut c_void,
) -> Result {
    // SAFETY: passed on from the caller.
    let attr = unsafe { given(attr) }?;
    if out.is_null() {
        return Err(Errno::Inval);
    }
    let mut asked = Attr::default();
    asked.size = attr.size;
    // SAFETY: passed on from the caller.
    let (object, set) = unsafe { sets::wanted(attr.wait_obj, attr.wait_set) }?;
    asked.wait_obj = object;
    let own = fabric.own.eq(&asked).map_err(|error| told(&error))?;
    let hold = |set: &WaitSet| set.hold(Member::Eq(Arc::clone(&own)));
    let held = set.map(hold).transpose()?;
    let handle = object::open(
        Eq {
            own,
            wait_obj: asked.wait_obj,
            _held: held,
            is_writable: attr.flags & selvedge::Caps::WRITE.bits() != 0,
            version: fabric.version,
            last: Mutex::default(),
            users: Users::default(),
            _fabric: fabric.one_more_user(),
        },
        context,
    );
    // SAFETY: passed on from the caller.
    unsafe { put(out, handle) }
}

/// # Safety
/// As fi_control(3) has it.
unsafe extern "C" fn control(fid: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: passed on from the caller.
    let eq: &Eq = unsafe { of_own_fid(fid) };
    // SAFETY: passed on from the caller.
    done(|| unsafe { wait::control(command, arg, eq.wait_obj, eq.own.wait_fd()) })
}

/// # Safety
/// As fi_eq_read(3) has it.
unsafe extern "C" fn read(
    eq: *mut FidEq,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    flags: u64,
) -> isize {
    // SAFETY: passed on from the caller.
    let eq: &Eq = unsafe { this(eq) };
    // SAFETY: passed on from the caller.
    counted(|| unsafe { eq.take(event, buf, len, flags, |eq| eq.own.read()) })
}

/// # Safety
/// As fi_eq_sread(3) has it.
unsafe extern "C" fn sread(
    eq: *mut FidEq,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    timeout: c_int,
    flags: u64,
) -> isize {
    // SAFETY: passed on from the caller.
    let eq: &Eq = unsafe { this(eq) };
    let patience = wait::patience(timeout);
    // SAFETY: passed on from the caller.
    counted(|| unsafe { eq.take(event, buf, len, flags, |eq| eq.own.wait(patience)) })
}

impl Eq {
    /// Takes an event, or with `FI_PEEK` only shows it. One that does not fit is lost but for its
    /// beginning.
    ///
    /// # Safety
    /// `event` is NULL or may be written; `buf` is NULL or has room for `len` bytes.
    unsafe fn take(
        &self,
        event: *mut u32,
        buf: *mut c_void,
        len: usize,
        flags: u64,
        next: impl FnOnce(&Self) -> Result<Event>,
    ) -> Result<usize> {
        let is_peek = match flags {
            0 => false,
            flags if flags == OpFlags::PEEK.bits() => true,
            _ => return Err(Errno::BadFlags),
        };
        if event.is_null() {
            return Err(Errno::Inval);
        }
        let shown = if is_peek { self.own.peek() } else { next(self) }?;
        // SAFETY: passed on from the caller.
        unsafe { tell(&shown, is_peek, event, buf, len) }
    }
}

/// Writes an event down, and says how many bytes it took.
///
/// # Safety
/// As [`Eq::take`].
unsafe fn tell(
    shown: &Event,
    is_peek: bool,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
) -> Result<usize> {
    let (number, bytes) = match shown {
        Event::Notify {
            context,
            data,
            handle,
        } => (number::event::NOTIFY, entry(*handle, *context, *data)),
        Event::JoinComplete { context } => (number::event::JOIN_COMPLETE, entry(0, *context, 0)),
        Event::ConnReq { pep, info, data } => {
            let described = match is_peek {
                true => ptr::null_mut(),
                false => info::one(info, pep::request(info.handle))?,
            };
            (
                number::event::CONNREQ,
                cm_entry(known::handle(pep), described, data),
            )
        }
        Event::Connected { ep, data } => {
            let bytes = cm_entry(known::handle(ep), ptr::null_mut(), data);
            (number::event::CONNECTED, bytes)
        }
        Event::Shutdown { ep } => {
            let bytes = cm_entry(known::handle(ep), ptr::null_mut(), &[]);
            (number::event::SHUTDOWN, bytes)
        }
        _ => return Err(Errno::NoSys),
    };
    let fits = bytes.len().min(len);
    if fits < ENTRY_MIN {
        return Err(Errno::TooSmall);
    }
    // SAFETY: passed on from the caller.
    unsafe { room(buf.cast::<u8>(), fits) }?.write_copy_of_slice(&bytes[..fits]);
    // SAFETY: passed on from the caller.
    unsafe { put(event, number) }?;
    Ok(fits)
}

/// Bytes of the shortest entry: private data may be cut, what is before it not.
const ENTRY_MIN: usize = size_of::<abi::EqCmEntry>();

/// `struct fi_eq_entry`.
fn entry(handle: u64, context: Context, data: u64) -> Vec<u8> {
    let words = [handle, context.0, data];
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// `struct fi_eq_cm_entry`.
fn cm_entry(fid: *mut Fid, info: *mut abi::Info, data: &[u8]) -> Vec<u8> {
    let words = [fid.expose_provenance(), info.expose_provenance()];
    let head = words.iter().flat_map(|word| word.to_ne_bytes());
    head.chain(data.iter().copied()).collect()
}

/// Bytes of an entry before version 1.5.
const ERR_DATA_SIZE_AT: usize = 40;

/// # Safety
/// As fi_eq_readerr(3) has it: an entry of the program's version.
unsafe extern "C" fn readerr(eq: *mut FidEq, buf: *mut EqErrEntry, flags: u64) -> isize {
    // SAFETY: passed on from the caller.
    let eq: &Eq = unsafe { this(eq) };
    counted(|| {
        if buf.is_null() {
            return Err(Errno::Inval);
        }
        if flags != 0 {
            return Err(Errno::BadFlags);
        }
        let error = eq.own.read_err()?;
        // SAFETY: passed on from the caller.
        unsafe { eq.tell_err(&error, buf) }
    })
}

impl Eq {
    /// # Safety
    /// As [`readerr`].
    unsafe fn tell_err(&self, error: &ErrEntry, buf: *mut EqErrEntry) -> Result<usize> {
        let known_size = match self.version < Version::new(1, 5) {
            true => ERR_DATA_SIZE_AT,
            false => size_of::<EqErrEntry>(),
        };
        let (mut err_data, mut err_data_size) = (ptr::null_mut::<c_void>(), 0_usize);
        if known_size > ERR_DATA_SIZE_AT {
            // SAFETY: passed on from the caller: these are set, whatever else is.
            err_data = unsafe { member(buf, offset_of!(EqErrEntry, err_data)) };
            // SAFETY: as above.
            err_data_size = unsafe { member(buf, offset_of!(EqErrEntry, err_data_size)) };
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Last {
            number: error.errno.as_raw(),
            detail: CString::new(error.detail.replace('\0', " ")).unwrap_or_default(),
            data: error.data.clone(),
        };
        let mut entry = EqErrEntry {
            fid: error.ep.as_ref().map_or(ptr::null_mut(), known::handle),
            context: context_of(error.context),
            data: 0,
            err: error.errno.as_raw(),
            prov_errno: error.errno.as_raw(),
            err_data: ptr::null_mut(),
            err_data_size: last.data.len(),
        };
        if err_data_size > 0 && !err_data.is_null() {
            let fits = last.data.len().min(err_data_size);
            // SAFETY: the program says that there is room for so much.
            let room = unsafe { room(err_data.cast::<u8>(), fits) }?;
            room.write_copy_of_slice(&last.data[..fits]);
            (entry.err_data, entry.err_data_size) = (err_data, fits);
        } else if !last.data.is_empty() {
            entry.err_data = last.data.as_mut_ptr().cast();
        }
        // SAFETY: passed on from the caller: so much is there.
        unsafe {
            ptr::copy_nonoverlapping((&raw const entry).cast::<u8>(), buf.cast(), known_size)
        };
        Ok(known_size)
    }
}

/// # Safety
/// As fi_eq_write(3) has it.
unsafe extern "C" fn write(
    eq: *mut FidEq,
    event: u32,
    buf: *const c_void,
    len: usize,
    flags: u64,
) -> isize {
    // SAFETY: passed on from the caller.
    let eq: &Eq = unsafe { this(eq) };
    counted(|| {
        if !eq.is_writable {
            return Err(Errno::Inval);
        }
        if flags != 0 {
            return Err(Errno::BadFlags);
        }
        if event != number::event::NOTIFY || len < size_of::<EqEntry>() {
            return Err(Errno::Inval);
        }
        // SAFETY: passed on from the caller; the words are copied, wherever they lie.
        let bytes = unsafe { list(buf.cast::<u8>(), size_of::<EqEntry>()) }?;
        let word = |at: usize| bytes[at..at + 8].try_into().map_or(0, u64::from_ne_bytes);
        eq.own.write(Event::Notify {
            context: Context(word(8)),
            data: word(16),
            handle: word(0),
        })?;
        Ok(len)
    })
}

/// # Safety
/// As fi_eq_strerror(3) has it.
unsafe extern "C" fn strerror(
    eq: *mut FidEq,
    prov_errno: c_int,
    _err_data: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: passed on from the caller.
    let eq: &Eq = unsafe { this(eq) };
    let last = eq.last.lock().unwrap_or_else(PoisonError::into_inner);
    let is_last = last.number == prov_errno && !last.detail.is_empty();
    // SAFETY: passed on from the caller.
    unsafe { sentence(is_last.then_some(&last.detail), prov_errno, buf, len) }
}
