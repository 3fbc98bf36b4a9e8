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
use selvedge::{CompletionQueue, Domain, Errno, FiAddr, Result};
use selvedge_abi as abi;
use selvedge_abi::{CqErrEntry, FidCq, Ops, OpsCq, fclass, number};

use super::last_error::{self, Data, LastError};
use super::read_policy::ReadPolicy;
use super::wait::{self, WaitObject, WaitSet};
use crate::addr;
use crate::context;
use crate::object::{self, Object, Table, class};
use crate::pointer::{initialized_array, prefix};
use crate::status::{count_status, guarded_count, guarded_unit, log_error};

/// The object behind the handle of a completion queue.
pub(crate) struct Cq {
    pub(crate) inner: Arc<dyn CompletionQueue>,
    format: Format,
    wait_obj: WaitObject,
    version: Version,
    policy: ReadPolicy,
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

class! {
    Cq, FidCq, FID, |_| fclass::CQ;
    tables |cq| ops: match cq.format {
        Format::Tagged => &TAGGED_OPS,
        _ => &TRUNCATING_OPS,
    }
}

static FID: Table<Ops, Cq> = object::ops::<Cq>().control(|cq, command, arg| {
    // SAFETY: the C caller follows fi_control(3).
    guarded_unit(|| unsafe { cq.wait_obj.control(command, arg, cq.inner.wait_fd()) })
});
/// Functions of queues whose format has only the first members of `Entry`.
static TRUNCATING_OPS: Table<OpsCq, Cq> = COMMON_OPS;
/// Functions of queues whose format has all members of `Entry`.
static TAGGED_OPS: Table<OpsCq, Cq> = COMMON_OPS
    // SAFETY: the C caller follows fi_cq_read(3), for `struct fi_cq_tagged_entry`.
    .read(|cq, buf, count| unsafe { cq.read_tagged(buf, count) })
    // SAFETY: the C caller follows fi_cq_readfrom(3), likewise.
    .readfrom(|cq, buf, count, src| unsafe { cq.readfrom_tagged(buf, count, src) });
const COMMON_OPS: Table<OpsCq, Cq> = Table::<OpsCq, Cq>::empty()
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

impl Cq {
    /// Opens a completion queue for a program of this API version.
    ///
    /// # Errors
    /// [`Errno::NoSys`] for a wait object that is not supported; [`Errno::Inval`] for an unknown
    /// format; the errors of the provider.
    ///
    /// # Safety
    /// `attr` is NULL or points to attributes.
    pub(crate) unsafe fn open(
        domain: &dyn Domain,
        version: Version,
        attr: *const abi::CqAttr,
    ) -> Result<Self> {
        // SAFETY: passed on from the caller.
        let (request, format, set) = unsafe { attributes(attr) }?;
        let inner = domain.cq(&request).map_err(|error| log_error(&error))?;
        let wait_obj = WaitObject::new(request.wait_obj, set, Member::Cq(Arc::clone(&inner)))?;
        Ok(Self {
            inner,
            format,
            wait_obj,
            version,
            policy: ReadPolicy::new(),
            last: LastError::default(),
        })
    }
}

type Attributes<'a> = (Attr, Format, Option<&'a Object<WaitSet>>);

/// # Safety
/// As [`Cq::open`].
unsafe fn attributes<'a>(attr: *const abi::CqAttr) -> Result<Attributes<'a>> {
    // SAFETY: passed on from the caller: every API version has these bytes.
    let attr = unsafe { prefix(attr, ATTR_1_0) }?;
    let mut request = Attr::with_size(attr.size);
    // SAFETY: passed on from the caller.
    let (object, wait_set) = unsafe { wait::object(attr.wait_obj, attr.wait_set) }?;
    request.wait_obj = object;
    // Programs expect a context of theirs in every error entry, and an inject has none. libfabric's
    // tcp provider drops these errors, too.
    request.drops_failed_injects = true;
    let format = match attr.format {
        number::cq_format::UNSPEC | number::cq_format::CONTEXT => Format::Context,
        number::cq_format::MSG => Format::Msg,
        number::cq_format::DATA => Format::Data,
        number::cq_format::TAGGED => Format::Tagged,
        _ => return Err(Errno::Inval),
    };
    Ok((request, format, wait_set))
}

/// Bytes of `struct fi_cq_attr` before the member for accelerators, which every version has.
const ATTR_1_0: usize = 40;

/// The return value of a read: the count of entries, or `-FI_EAGAIN` for none.
#[inline]
fn entries_status(result: Result<usize>) -> isize {
    match result {
        Ok(0) => count_status(Err(Errno::Again)),
        result => count_status(result),
    }
}

/// Reads up to `count` entries in steps, so that only the memory of one step is initialised at a
/// time. `read` gets the number of entries read so far and the number that it may add. The first
/// step that is not filled is the last one, unless `policy` adds a second poll.
#[inline]
fn read_in_steps(
    count: usize,
    policy: &ReadPolicy,
    mut read: impl FnMut(usize, usize) -> Result<usize>,
) -> Result<usize> {
    let first_step = policy.first_step().min(count);
    let mut read_count = read(0, first_step)?;
    if read_count == 0 || read_count == count {
        return Ok(read_count);
    }
    if read_count < first_step {
        if policy.polls_again() {
            // The next call reports the error, here and below.
            let added = read(read_count, BATCH.min(count - read_count)).unwrap_or(0);
            policy.record_second_poll(added > 0);
            read_count += added;
        }
        return Ok(read_count);
    }
    if first_step == 1 {
        policy.record_first_entry();
    }
    loop {
        let step = BATCH.min(count - read_count);
        let added = read(read_count, step).unwrap_or(0);
        read_count += added;
        if added < step || read_count == count {
            return Ok(read_count);
        }
    }
}

impl Cq {
    /// # Safety
    /// The caller follows fi_cq_read(3), for `struct fi_cq_tagged_entry`.
    #[inline(always)]
    unsafe fn read_tagged(&self, buf: *mut c_void, count: usize) -> isize {
        let read = |index, step| {
            let buf = buf.cast::<Entry>().wrapping_add(index);
            // SAFETY: passed on from the caller; the entries are of one layout.
            let out = unsafe { initialized_array(buf, step, Entry::default()) };
            out.and_then(|out| self.inner.read(out))
        };
        entries_status(read_in_steps(count, &self.policy, read))
    }

    /// # Safety
    /// The caller follows fi_cq_readfrom(3), for `struct fi_cq_tagged_entry`.
    unsafe fn readfrom_tagged(
        &self,
        buf: *mut c_void,
        count: usize,
        src: *mut abi::FiAddr,
    ) -> isize {
        if src.is_null() {
            // SAFETY: passed on from the caller.
            return unsafe { self.read_tagged(buf, count) };
        }
        let read = |index, step| {
            let buf = buf.cast::<Entry>().wrapping_add(index);
            // SAFETY: as in `read_tagged`.
            let out = unsafe { initialized_array(buf, step, Entry::default()) };
            let src = src.cast::<FiAddr>().wrapping_add(index);
            // SAFETY: passed on from the caller; an address is a number.
            let src = unsafe { initialized_array(src, step, FiAddr::UNSPEC) };
            out.and_then(|out| self.inner.read_from(out, src?))
        };
        entries_status(read_in_steps(count, &self.policy, read))
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
        let read_count = self.inner.read_from(out, from);
        let Ok(read_count) = read_count else {
            return entries_status(read_count);
        };
        // SAFETY: passed on from the caller: `buf` has room for `count` entries.
        unsafe { write(self.format, buf, &entries[..read_count]) };
        if !src.is_null() {
            for (index, source) in sources[..read_count].iter().enumerate() {
                // SAFETY: passed on from the caller: `src` has room for `count` addresses.
                unsafe { src.wrapping_add(index).write(source.0) };
            }
        }
        entries_status(Ok(read_count))
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
        let total = wait::timeout(timeout);
        let start = Instant::now();
        loop {
            // SAFETY: passed on from the caller.
            let read_count = unsafe { self.readfrom(buf, count, src) };
            if read_count != count_status(Err(Errno::Again)) || count == 0 {
                return read_count;
            }
            let remaining = total.map(|total| total.saturating_sub(start.elapsed()));
            let waited = guarded_count(|| self.inner.wait(&mut [], remaining));
            let has_timed_out = remaining == Some(Duration::ZERO);
            if waited < 0 || has_timed_out {
                return match waited {
                    0 => read_count,
                    error => error,
                };
            }
        }
    }

    /// # Safety
    /// The caller follows fi_cq_readerr(3) and passes an entry of its API version.
    unsafe fn write_err_entry(&self, error: &ErrEntry, buf: *mut CqErrEntry) -> Result {
        let entry_len = match self.version {
            old if old < Version::new(1, 5) => ERR_DATA_SIZE_OFFSET,
            old if old < Version::new(1, 20) => SRC_ADDR_OFFSET,
            _ => size_of::<CqErrEntry>(),
        };
        // SAFETY: passed on from the caller.
        let room = unsafe { last_error::program_buffer(buf, ERR_DATA_SIZE_OFFSET, entry_len) };
        let data = match error.sender() {
            Some(sender) if error.errno == Errno::AddrNotAvail => addr::encode(&sender),
            _ => error.err_data.clone(),
        };
        let last = &self.last;
        // SAFETY: the program states that its memory has this length.
        let data = unsafe { last.store(error.prov_errno, &error.detail, data, room) }?;
        // SAFETY: passed on from the caller: `buf` has room for `entry_len` bytes.
        unsafe { last_error::write(&error_entry(error, data), buf, entry_len) };
        Ok(())
    }
}

/// The offsets of members that the entries of older API versions lack.
const ERR_DATA_SIZE_OFFSET: usize = offset_of!(CqErrEntry, err_data_size);
const SRC_ADDR_OFFSET: usize = offset_of!(CqErrEntry, src_addr);

/// Entries that are read at once before they are truncated to their format.
const BATCH: usize = 32;

/// Writes the members of entries that belong to the format.
///
/// # Safety
/// `buf` has room for the entries in this format.
unsafe fn write(format: Format, buf: *mut c_void, entries: &[Entry]) {
    let len = match format {
        Format::Context => 8,
        Format::Msg => 24,
        Format::Data => 40,
        Format::Tagged => size_of::<Entry>(),
    };
    for (index, entry) in entries.iter().enumerate() {
        let dest = buf.cast::<u8>().wrapping_add(index * len);
        // SAFETY: the caller vouches for the room; every format is a prefix of `Entry`.
        unsafe { ptr::copy_nonoverlapping(ptr::from_ref(entry).cast(), dest, len) };
    }
}

fn error_entry(error: &ErrEntry, (err_data, err_data_size): Data) -> CqErrEntry {
    let entry = &error.entry;
    CqErrEntry {
        op_context: context::to_c(entry.context),
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

#[cfg(test)]
mod tests;
