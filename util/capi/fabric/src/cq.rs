//! Completion queues: `struct fid_cq`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::offset_of;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use selvedge::cq::{Attr, Entry, ErrEntry};
use selvedge::info::Version;
use selvedge::poll::Member;
use selvedge::{CompletionQueue, Errno, FiAddr, Result, wait as wait_object};
use selvedge_abi as abi;
use selvedge_abi::{CqErrEntry, Fid, FidCq, Ops, OpsCq, fclass, number};

use crate::addr;
use crate::answer::{counted, done, size, told};
use crate::domain::Domain;
use crate::given::{member, prepared, put, room};
use crate::object::{self, Class, User, Users, close, of_own_fid, this};
use crate::sets::{self, Held, WaitSet};
use crate::wait;

/// What stands behind a completion queue.
pub(crate) struct Cq {
    pub(crate) own: Arc<dyn CompletionQueue>,
    format: Format,
    wait_obj: wait_object::Object,
    /// Before the queue is closed, the set that it is in lets it go.
    _held: Option<Held>,
    version: Version,
    /// What the last error was, for `fi_cq_strerror`, and its data until the next is read.
    last: Mutex<Last>,
    users: Users,
    _domain: User,
}

#[derive(Debug, Default)]
struct Last {
    number: c_int,
    detail: CString,
    data: Vec<u8>,
}

/// How much of an entry a program asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Context,
    Msg,
    Data,
    Tagged,
}

impl Cq {
    pub(crate) fn one_more_user(&self) -> User {
        self.users.one_more()
    }
}

// SAFETY: `fid_cq` begins with its fid, and has a table of functions behind it.
unsafe impl Class for Cq {
    type Handle = FidCq;
    const FCLASS: usize = fclass::CQ;

    fn ops() -> &'static Ops {
        &FID
    }

    fn handle(&self, fid: Fid) -> FidCq {
        let ops = match self.format {
            Format::Tagged => &WHOLE,
            _ => &NARROW,
        };
        FidCq { fid, ops }
    }

    fn closed(fid: Fid) -> FidCq {
        FidCq { fid, ops: &CLOSED }
    }

    fn users(&self) -> Option<&Users> {
        Some(&self.users)
    }
}

static FID: Ops = Ops {
    close: Some(close::<Cq>),
    control: Some(control),
    ..Ops::refusing::<{ libc::ENOSYS }>()
};
/// Of queues whose entries are ours.
static WHOLE: OpsCq = OpsCq {
    read: Some(read_whole),
    readfrom: Some(readfrom_whole),
    ..NARROW
};
/// Of queues whose entries are the beginnings of ours.
static NARROW: OpsCq = OpsCq {
    read: Some(read),
    readfrom: Some(readfrom),
    readerr: Some(readerr),
    sread: Some(sread),
    sreadfrom: Some(sreadfrom),
    signal: Some(signal),
    strerror: Some(strerror),
    ..OpsCq::refusing::<{ libc::ENOSYS }>()
};
static CLOSED: OpsCq = OpsCq::refusing::<{ libc::EBADF }>();

/// Opens a completion queue.
///
/// # Errors
/// [`Errno::NoSys`] for a wait object that is not offered; [`Errno::Inval`] for a format that there
/// is not; the provider's.
///
/// # Safety
/// `attr` is NULL or names attributes, `out` is NULL or may be written.
pub(crate) unsafe fn open(
    domain: &Domain,
    attr: *const abi::CqAttr,
    out: *mut *mut FidCq,
    context: *mut c_void,
) -> Result {
    if out.is_null() {
        return Err(Errno::Inval);
    }
    // SAFETY: passed on from the caller: every version has this much.
    let (asked, format, set) = unsafe { attributes(attr) }?;
    let own = domain.own.cq(&asked).map_err(|error| told(&error))?;
    let hold = |set: &WaitSet| set.hold(Member::Cq(Arc::clone(&own)));
    let held = set.map(hold).transpose()?;
    let handle = object::open(
        Cq {
            own,
            format,
            wait_obj: asked.wait_obj,
            _held: held,
            version: domain.version,
            last: Mutex::default(),
            users: Users::default(),
            _domain: domain.one_more_user(),
        },
        context,
    );
    // SAFETY: passed on from the caller.
    unsafe { put(out, handle) }
}

/// # Safety
/// As [`open`].
unsafe fn attributes<'a>(attr: *const abi::CqAttr) -> Result<(Attr, Format, Option<&'a WaitSet>)> {
    // SAFETY: passed on from the caller: every version has this much.
    let attr = unsafe { crate::given::beginning(attr, ATTR_1_0) }?;
    let mut asked = Attr::with_size(attr.size);
    // SAFETY: passed on from the caller.
    let (object, set) = unsafe { sets::wanted(attr.wait_obj, attr.wait_set) }?;
    asked.wait_obj = object;
    // As libfabric's tcp: programs take the context of an error entry for one of theirs.
    asked.drops_failed_injects = true;
    let format = match attr.format {
        number::cq_format::UNSPEC | number::cq_format::CONTEXT => Format::Context,
        number::cq_format::MSG => Format::Msg,
        number::cq_format::DATA => Format::Data,
        number::cq_format::TAGGED => Format::Tagged,
        _ => return Err(Errno::Inval),
    };
    Ok((asked, format, set))
}

/// Bytes of `struct fi_cq_attr` before accelerators.
const ATTR_1_0: usize = 40;

/// # Safety
/// As fi_control(3) has it.
unsafe extern "C" fn control(fid: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: passed on from the caller.
    let cq: &Cq = unsafe { of_own_fid(fid) };
    // SAFETY: passed on from the caller.
    done(|| unsafe { wait::control(command, arg, cq.wait_obj, cq.own.wait_fd()) })
}

/// A count of entries, or that there is none yet.
#[inline]
fn found(answer: Result<usize>) -> isize {
    match answer {
        Ok(0) => size(Err(Errno::Again)),
        answer => size(answer),
    }
}

/// # Safety
/// As fi_cq_read(3) has it, for `struct fi_cq_tagged_entry`.
unsafe extern "C" fn read_whole(cq: *mut FidCq, buf: *mut c_void, count: usize) -> isize {
    // SAFETY: passed on from the caller.
    let cq: &Cq = unsafe { this(cq) };
    let read = |at, now| {
        // SAFETY: passed on from the caller; the entries are of one layout.
        let out = unsafe { prepared(buf.cast::<Entry>().wrapping_add(at), now, Entry::default()) };
        out.and_then(|out| cq.own.read(out))
    };
    found(in_steps(count, read))
}

/// Entries of the first step: nothing is written behind the first entry of a queue that has no more,
/// whatever count a program gives.
const FIRST_STEP: usize = 1;

/// Reads up to `count` entries, as many at a time as are prepared for it: `read` is told how many are
/// there and how many it may add. Steps end with one that is not filled.
#[inline]
fn in_steps(count: usize, mut read: impl FnMut(usize, usize) -> Result<usize>) -> Result<usize> {
    let (mut taken, mut step) = (0, FIRST_STEP.min(count));
    loop {
        match read(taken, step) {
            Ok(more) => {
                taken += more;
                if more < step || taken == count {
                    return Ok(taken);
                }
            }
            Err(errno) if taken == 0 => return Err(errno),
            // It waits for the next call.
            Err(_) => return Ok(taken),
        }
        step = BATCH.min(count - taken);
    }
}

/// # Safety
/// As fi_cq_readfrom(3) has it, for `struct fi_cq_tagged_entry`.
unsafe extern "C" fn readfrom_whole(
    cq: *mut FidCq,
    buf: *mut c_void,
    count: usize,
    src: *mut abi::FiAddr,
) -> isize {
    if src.is_null() {
        // SAFETY: passed on from the caller.
        return unsafe { read_whole(cq, buf, count) };
    }
    // SAFETY: passed on from the caller.
    let cq: &Cq = unsafe { this(cq) };
    let read = |at, now| {
        // SAFETY: as in `read_whole`.
        let out = unsafe { prepared(buf.cast::<Entry>().wrapping_add(at), now, Entry::default()) };
        // SAFETY: passed on from the caller; an address is a number.
        let src = unsafe { prepared(src.cast::<FiAddr>().wrapping_add(at), now, FiAddr::UNSPEC) };
        out.and_then(|out| cq.own.read_from(out, src?))
    };
    found(in_steps(count, read))
}

/// # Safety
/// As fi_cq_read(3) has it.
unsafe extern "C" fn read(cq: *mut FidCq, buf: *mut c_void, count: usize) -> isize {
    // SAFETY: passed on from the caller.
    unsafe { readfrom(cq, buf, count, ptr::null_mut()) }
}

/// Entries that are read at once before they are cut down.
const BATCH: usize = 32;

/// # Safety
/// As fi_cq_readfrom(3) has it.
unsafe extern "C" fn readfrom(
    cq: *mut FidCq,
    buf: *mut c_void,
    count: usize,
    src: *mut abi::FiAddr,
) -> isize {
    // SAFETY: passed on from the caller.
    let cq: &Cq = unsafe { this(cq) };
    let (mut entries, mut sources) = ([Entry::default(); BATCH], [FiAddr::UNSPEC; BATCH]);
    let batch = count.min(BATCH);
    if batch > 0 && buf.is_null() {
        return size(Err(Errno::Inval));
    }
    let taken = cq
        .own
        .read_from(&mut entries[..batch], &mut sources[..batch]);
    let Ok(taken) = taken else {
        return found(taken);
    };
    // SAFETY: passed on from the caller: there is room for `count`.
    unsafe { write(cq.format, buf, &entries[..taken]) };
    if !src.is_null() {
        for (at, source) in sources[..taken].iter().enumerate() {
            // SAFETY: passed on from the caller: there is room for `count`.
            unsafe { src.wrapping_add(at).write(source.0) };
        }
    }
    found(Ok(taken))
}

/// Writes entries as far as their format goes.
///
/// # Safety
/// There is room for them at `buf`.
unsafe fn write(format: Format, buf: *mut c_void, entries: &[Entry]) {
    let len = match format {
        Format::Context => 8,
        Format::Msg => 24,
        Format::Data => 40,
        Format::Tagged => size_of::<Entry>(),
    };
    for (at, entry) in entries.iter().enumerate() {
        let to = buf.cast::<u8>().wrapping_add(at * len);
        // SAFETY: the caller vouches for the room; formats are beginnings of the longest.
        unsafe { ptr::copy_nonoverlapping(ptr::from_ref(entry).cast(), to, len) };
    }
}

/// # Safety
/// As fi_cq_sread(3) has it.
unsafe extern "C" fn sread(
    cq: *mut FidCq,
    buf: *mut c_void,
    count: usize,
    cond: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: passed on from the caller.
    unsafe { sreadfrom(cq, buf, count, ptr::null_mut(), cond, timeout) }
}

/// # Safety
/// As fi_cq_sreadfrom(3) has it. The condition is a hint, which is not taken.
unsafe extern "C" fn sreadfrom(
    cq: *mut FidCq,
    buf: *mut c_void,
    count: usize,
    src: *mut abi::FiAddr,
    _cond: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: passed on from the caller.
    let own: &Cq = unsafe { this(cq) };
    let patience = wait::patience(timeout);
    let begin = Instant::now();
    loop {
        // SAFETY: passed on from the caller.
        let taken = unsafe { readfrom(cq, buf, count, src) };
        if taken != size(Err(Errno::Again)) || count == 0 {
            return taken;
        }
        let left = patience.map(|all| all.saturating_sub(begin.elapsed()));
        let waited = counted(|| own.own.wait(&mut [], left));
        let is_over = left == Some(Duration::ZERO);
        if waited < 0 || is_over {
            return match waited {
                0 => taken,
                error => error,
            };
        }
    }
}

/// # Safety
/// `cq` is a queue.
unsafe extern "C" fn signal(cq: *mut FidCq) -> c_int {
    // SAFETY: passed on from the caller.
    let cq: &Cq = unsafe { this(cq) };
    done(|| cq.own.signal())
}

/// The members of an entry that programs of older versions lack begin here.
const ERR_DATA_SIZE_AT: usize = 72;
const SRC_ADDR_AT: usize = 80;

/// # Safety
/// As fi_cq_readerr(3) has it: an entry of the program's version.
unsafe extern "C" fn readerr(cq: *mut FidCq, buf: *mut CqErrEntry, _flags: u64) -> isize {
    // SAFETY: passed on from the caller.
    let cq: &Cq = unsafe { this(cq) };
    counted(|| {
        if buf.is_null() {
            return Err(Errno::Inval);
        }
        let error = cq.own.read_err()?;
        // SAFETY: passed on from the caller.
        unsafe { cq.tell(&error, buf) }?;
        Ok(1)
    })
}

impl Cq {
    /// # Safety
    /// As [`readerr`].
    unsafe fn tell(&self, error: &ErrEntry, buf: *mut CqErrEntry) -> Result {
        let known = match self.version {
            old if old < Version::new(1, 5) => ERR_DATA_SIZE_AT,
            old if old < Version::new(1, 20) => SRC_ADDR_AT,
            _ => size_of::<CqErrEntry>(),
        };
        let (mut err_data, mut err_data_size) = (ptr::null_mut::<c_void>(), 0_usize);
        if known > ERR_DATA_SIZE_AT {
            // SAFETY: passed on from the caller: these are set, whatever else is.
            err_data = unsafe { member(buf, offset_of!(CqErrEntry, err_data)) };
            // SAFETY: as above.
            err_data_size = unsafe { member(buf, offset_of!(CqErrEntry, err_data_size)) };
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.note(error);
        let mut entry = entry_of(error);
        if err_data_size == 0 || err_data.is_null() {
            entry.err_data_size = last.data.len();
            entry.err_data = match last.data.as_mut_slice() {
                [] => ptr::null_mut(),
                data => data.as_mut_ptr().cast(),
            };
        } else {
            let fits = last.data.len().min(err_data_size);
            // SAFETY: the program says that there is room for so much.
            let room = unsafe { room(err_data.cast::<u8>(), fits) }?;
            room.write_copy_of_slice(&last.data[..fits]);
            entry.err_data = err_data;
            entry.err_data_size = fits;
        }
        // SAFETY: passed on from the caller: so much is there.
        unsafe { ptr::copy_nonoverlapping((&raw const entry).cast::<u8>(), buf.cast(), known) };
        Ok(())
    }
}

impl Last {
    fn note(&mut self, error: &ErrEntry) {
        self.number = error.prov_errno;
        self.detail = CString::new(error.detail.replace('\0', " ")).unwrap_or_default();
        self.data = match error.sender() {
            Some(sender) if error.errno == Errno::AddrNotAvail => addr::encode(&sender),
            _ => error.err_data.clone(),
        };
    }
}

fn entry_of(error: &ErrEntry) -> CqErrEntry {
    let entry = &error.entry;
    CqErrEntry {
        op_context: context_of(entry.context),
        flags: entry.flags.bits(),
        len: entry.len,
        buf: ptr::with_exposed_provenance_mut(entry.buf),
        data: entry.data,
        tag: entry.tag,
        olen: error.olen,
        err: error.errno.as_raw(),
        prov_errno: error.prov_errno,
        err_data: ptr::null_mut(),
        err_data_size: 0,
        src_addr: error.src.0,
    }
}

/// The pointer that a program has given with an operation.
pub(crate) fn context_of(context: selvedge::Context) -> *mut c_void {
    ptr::with_exposed_provenance_mut(usize::try_from(context.0).unwrap_or(usize::MAX))
}

/// The provider's sentence for the last error of this number, else the number's text; copied where
/// there is room.
///
/// # Safety
/// As fi_cq_strerror(3) has it.
unsafe extern "C" fn strerror(
    cq: *mut FidCq,
    prov_errno: c_int,
    _err_data: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: passed on from the caller.
    let cq: &Cq = unsafe { this(cq) };
    let last = cq.last.lock().unwrap_or_else(PoisonError::into_inner);
    let is_last = last.number == prov_errno && !last.detail.is_empty();
    // SAFETY: passed on from the caller.
    unsafe { sentence(is_last.then_some(&last.detail), prov_errno, buf, len) }
}

/// A provider's sentence or a number's text, kept until the next error, and copied where there is
/// room.
///
/// # Safety
/// `buf` is NULL or names `len` bytes.
pub(crate) unsafe fn sentence(
    own: Option<&CString>,
    number: c_int,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    let text = match own {
        Some(detail) => detail.as_ptr(),
        None => crate::export::strerror(number),
    };
    if !buf.is_null() && len > 0 {
        // SAFETY: both kinds of text end with a zero.
        let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
        let fits = bytes.len().min(len - 1);
        // SAFETY: passed on from the caller.
        if let Ok(room) = unsafe { room(buf.cast::<u8>(), fits + 1) } {
            room[..fits].write_copy_of_slice(&bytes[..fits]);
            room[fits].write(0);
            return buf;
        }
    }
    text
}

#[cfg(test)]
mod tests;
