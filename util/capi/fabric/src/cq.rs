//! Completion queues: `struct fid_cq`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use selvedge::cq::{Attr, Entry, ErrEntry};
use selvedge::info::Version;
use selvedge::poll::Member;
use selvedge::{CompletionQueue, Errno, FiAddr, Result};
use selvedge_abi as abi;
use selvedge_abi::{CqErrEntry, Fid, FidCq, Ops, OpsCq, fclass, number};

use crate::addr;
use crate::domain::Domain;
use crate::last_error::{self, Data, LastError};
use crate::object::{self, Class, Object, Table};
use crate::pointer::{filled, prefix};
use crate::sets::{self, WaitSet};
use crate::status::{count_status, guarded_count, guarded_unit, log_error};
use crate::wait::{self, WaitObject};

/// The object behind the handle of a completion queue.
pub(crate) struct Cq {
    pub(crate) inner: Arc<dyn CompletionQueue>,
    format: Format,
    wait_obj: WaitObject,
    version: Version,
    last: LastError,
}

/// `enum fi_cq_format`: the members of an entry that a program reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Context,
    Msg,
    Data,
    Tagged,
}

// SAFETY: `fid_cq` begins with its fid, and has a table of functions behind it.
unsafe impl Class for Cq {
    type Handle = FidCq;
    const FCLASS: usize = fclass::CQ;
    const OPS: &'static Table<Ops, Self> = &FID;

    fn handle(&self, fid: Fid) -> FidCq {
        let ops = match self.format {
            Format::Tagged => &WHOLE.ops,
            _ => &NARROW.ops,
        };
        FidCq { fid, ops }
    }
}

static FID: Table<Ops, Cq> = object::ops::<Cq>().control(|cq, command, arg| {
    // SAFETY: the C caller follows fi_control(3).
    guarded_unit(|| unsafe { cq.wait_obj.control(command, arg, cq.inner.wait_fd()) })
});
/// Functions of queues whose format is a beginning of `Entry`.
static NARROW: Table<OpsCq, Cq> = TABLE;
/// Functions of queues whose format is the whole `Entry`.
static WHOLE: Table<OpsCq, Cq> = TABLE
    // SAFETY: the C caller follows fi_cq_read(3), for `struct fi_cq_tagged_entry`.
    .read(|cq, buf, count| unsafe { cq.read_whole(buf, count) })
    // SAFETY: the C caller follows fi_cq_readfrom(3), likewise.
    .readfrom(|cq, buf, count, src| unsafe { cq.readfrom_whole(buf, count, src) });
const TABLE: Table<OpsCq, Cq> = Table::<OpsCq, Cq>::empty()
    // SAFETY: the C caller follows fi_cq_read(3).
    .read(|cq, buf, count| unsafe { cq.readfrom(buf, count, ptr::null_mut()) })
    // SAFETY: the C caller follows fi_cq_readfrom(3).
    .readfrom(|cq, buf, count, src| unsafe { cq.readfrom(buf, count, src) })
    .readerr(|cq, buf, _flags| {
        guarded_count(|| {
            if buf.is_null() {
                return Err(Errno::Inval);
            }
            let error = cq.inner.read_err()?;
            // SAFETY: the C caller passes an entry of its API version, as fi_cq_readerr(3)
            // requires.
            unsafe { cq.write_err_entry(&error, buf) }?;
            Ok(1)
        })
    })
    // The condition is a hint, which is ignored.
    .sread(|cq, buf, count, _cond, timeout| {
        // SAFETY: the C caller follows fi_cq_sread(3).
        unsafe { cq.sreadfrom(buf, count, ptr::null_mut(), timeout) }
    })
    .sreadfrom(|cq, buf, count, src, _cond, timeout| {
        // SAFETY: the C caller follows fi_cq_sreadfrom(3).
        unsafe { cq.sreadfrom(buf, count, src, timeout) }
    })
    // fi_cq_signal(3)
    .signal(|cq| guarded_unit(|| cq.inner.signal()))
    .strerror(|cq, prov_errno, _err_data, buf, len| {
        // SAFETY: the C caller follows fi_cq_strerror(3).
        unsafe { cq.last.text(prov_errno, buf, len) }
    });

/// Opens a completion queue.
///
/// # Errors
/// [`Errno::NoSys`] for a wait object that is not supported; [`Errno::Inval`] for an unknown
/// format; the provider's.
///
/// # Safety
/// `attr` is NULL or points to attributes, `out` is NULL or may be written.
pub(crate) unsafe fn open(
    domain: &Object<Domain>,
    attr: *const abi::CqAttr,
    out: *mut *mut FidCq,
    context: *mut c_void,
) -> Result {
    let make = || {
        // SAFETY: passed on from the caller.
        let (request, format, set) = unsafe { attributes(attr) }?;
        let inner = domain
            .inner
            .cq(&request)
            .map_err(|error| log_error(&error))?;
        let wait_obj = WaitObject::new(request.wait_obj, set, Member::Cq(Arc::clone(&inner)))?;
        Ok(Cq {
            inner,
            format,
            wait_obj,
            version: domain.version,
            last: LastError::default(),
        })
    };
    // SAFETY: passed on from the caller.
    unsafe { domain.child(out, context, make) }
}

type Attributes<'a> = (Attr, Format, Option<&'a Object<WaitSet>>);

/// # Safety
/// As [`open`].
unsafe fn attributes<'a>(attr: *const abi::CqAttr) -> Result<Attributes<'a>> {
    // SAFETY: passed on from the caller: every API version has these bytes.
    let attr = unsafe { prefix(attr, ATTR_1_0) }?;
    let mut request = Attr::with_size(attr.size);
    // SAFETY: passed on from the caller.
    let (object, set) = unsafe { sets::wait_object(attr.wait_obj, attr.wait_set) }?;
    request.wait_obj = object;
    // As libfabric's tcp provider: programs expect their own context in every error entry, and an
    // inject has none.
    request.drops_failed_injects = true;
    let format = match attr.format {
        number::cq_format::UNSPEC | number::cq_format::CONTEXT => Format::Context,
        number::cq_format::MSG => Format::Msg,
        number::cq_format::DATA => Format::Data,
        number::cq_format::TAGGED => Format::Tagged,
        _ => return Err(Errno::Inval),
    };
    Ok((request, format, set))
}

/// Bytes of `struct fi_cq_attr` before the member for accelerators, which every version has.
const ATTR_1_0: usize = 40;

/// A count of entries, or `-FI_EAGAIN` for none.
#[inline]
fn found(result: Result<usize>) -> isize {
    match result {
        Ok(0) => count_status(Err(Errno::Again)),
        result => count_status(result),
    }
}

/// Entries of the first step: a queue with at most one entry writes nothing behind the first one,
/// whatever count a program passes.
const FIRST_STEP: usize = 1;

/// Reads up to `count` entries in steps, so that only the memory of one step is initialised at a
/// time. `read` gets the number of entries read so far and the number that it may add. The first
/// step that is not filled is the last one.
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
            // The error is reported by the next call.
            Err(_) => return Ok(taken),
        }
        step = BATCH.min(count - taken);
    }
}

impl Cq {
    /// # Safety
    /// The caller follows fi_cq_read(3), for `struct fi_cq_tagged_entry`.
    #[inline(always)]
    unsafe fn read_whole(&self, buf: *mut c_void, count: usize) -> isize {
        let read = |at, now| {
            let buf = buf.cast::<Entry>().wrapping_add(at);
            // SAFETY: passed on from the caller; the entries are of one layout.
            let out = unsafe { filled(buf, now, Entry::default()) };
            out.and_then(|out| self.inner.read(out))
        };
        found(in_steps(count, read))
    }

    /// # Safety
    /// The caller follows fi_cq_readfrom(3), for `struct fi_cq_tagged_entry`.
    unsafe fn readfrom_whole(
        &self,
        buf: *mut c_void,
        count: usize,
        src: *mut abi::FiAddr,
    ) -> isize {
        if src.is_null() {
            // SAFETY: passed on from the caller.
            return unsafe { self.read_whole(buf, count) };
        }
        let read = |at, now| {
            let buf = buf.cast::<Entry>().wrapping_add(at);
            // SAFETY: as in `read_whole`.
            let out = unsafe { filled(buf, now, Entry::default()) };
            let src = src.cast::<FiAddr>().wrapping_add(at);
            // SAFETY: passed on from the caller; an address is a number.
            let src = unsafe { filled(src, now, FiAddr::UNSPEC) };
            out.and_then(|out| self.inner.read_from(out, src?))
        };
        found(in_steps(count, read))
    }

    /// # Safety
    /// The caller follows fi_cq_readfrom(3).
    unsafe fn readfrom(&self, buf: *mut c_void, count: usize, src: *mut abi::FiAddr) -> isize {
        let (mut entries, mut sources) = ([Entry::default(); BATCH], [FiAddr::UNSPEC; BATCH]);
        let batch = count.min(BATCH);
        if batch > 0 && buf.is_null() {
            return count_status(Err(Errno::Inval));
        }
        let (out, from) = (&mut entries[..batch], &mut sources[..batch]);
        let taken = self.inner.read_from(out, from);
        let Ok(taken) = taken else {
            return found(taken);
        };
        // SAFETY: passed on from the caller: there is room for `count`.
        unsafe { write(self.format, buf, &entries[..taken]) };
        if !src.is_null() {
            for (at, source) in sources[..taken].iter().enumerate() {
                // SAFETY: passed on from the caller: there is room for `count`.
                unsafe { src.wrapping_add(at).write(source.0) };
            }
        }
        found(Ok(taken))
    }

    /// # Safety
    /// The caller follows fi_cq_sreadfrom(3).
    unsafe fn sreadfrom(
        &self,
        buf: *mut c_void,
        count: usize,
        src: *mut abi::FiAddr,
        timeout: c_int,
    ) -> isize {
        let limit = wait::timeout(timeout);
        let begin = Instant::now();
        loop {
            // SAFETY: passed on from the caller.
            let taken = unsafe { self.readfrom(buf, count, src) };
            if taken != count_status(Err(Errno::Again)) || count == 0 {
                return taken;
            }
            let left = limit.map(|all| all.saturating_sub(begin.elapsed()));
            let waited = guarded_count(|| self.inner.wait(&mut [], left));
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
    /// The caller follows fi_cq_readerr(3) and passes an entry of its API version.
    unsafe fn write_err_entry(&self, error: &ErrEntry, buf: *mut CqErrEntry) -> Result {
        let entry_len = match self.version {
            old if old < Version::new(1, 5) => ERR_DATA_SIZE_AT,
            old if old < Version::new(1, 20) => SRC_ADDR_AT,
            _ => size_of::<CqErrEntry>(),
        };
        // SAFETY: passed on from the caller.
        let room = unsafe { last_error::data_room(buf, ERR_DATA_SIZE_AT, entry_len) };
        let data = match error.sender() {
            Some(sender) if error.errno == Errno::AddrNotAvail => addr::encode(&sender),
            _ => error.err_data.clone(),
        };
        let last = &self.last;
        // SAFETY: the program states that its memory has this length.
        let data = unsafe { last.store(error.prov_errno, &error.detail, data, room) }?;
        // SAFETY: passed on from the caller: `buf` has room for `entry_len` bytes.
        unsafe { last_error::write(&entry_of(error, data), buf, entry_len) };
        Ok(())
    }
}

/// The offsets of members that programs of older API versions lack.
const ERR_DATA_SIZE_AT: usize = offset_of!(CqErrEntry, err_data_size);
const SRC_ADDR_AT: usize = offset_of!(CqErrEntry, src_addr);

/// Entries that are read at once before they are cut to their format.
const BATCH: usize = 32;

/// Writes the beginnings of entries that belong to the format.
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
        // SAFETY: the caller vouches for the room; every format is a beginning of the longest one.
        unsafe { ptr::copy_nonoverlapping(ptr::from_ref(entry).cast(), to, len) };
    }
}

fn entry_of(error: &ErrEntry, (err_data, err_data_size): Data) -> CqErrEntry {
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
        err_data,
        err_data_size,
        src_addr: error.src.0,
    }
}

/// The context pointer that a program has passed with an operation.
pub(crate) fn context_of(context: selvedge::Context) -> *mut c_void {
    ptr::with_exposed_provenance_mut(usize::try_from(context.0).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests;
