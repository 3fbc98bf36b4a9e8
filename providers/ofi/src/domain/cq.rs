//! Completion queues.

#![expect(unsafe_code, reason = "calls of another library")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "explained at `call!`")]

use std::ffi::{c_char, c_void};
use std::fmt;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use selvedge::cq::{Attr, Entry, ErrEntry};
use selvedge::{CompletionFlags, CompletionQueue, Context, Errno, Error, FiAddr, Result, wait};
use selvedge_abi::{CqAttr, CqErrEntry, Fid, FidCq, addr, number, pointer};
use selvedge_kit::{DomainId, OfDomain};

use super::state::DomainState;
use crate::object::{Handle, call, millis, to_count, to_result, wait_descriptor};

/// A completion queue of the library.
pub(crate) struct Cq {
    handle: Handle<FidCq>,
    domain: Arc<DomainState>,
    format: Format,
    wait_obj: wait::Object,
    descriptor: Option<RawFd>,
    read_ahead: ReadAhead,
}

/// An entry that [`CompletionQueue::is_ready`] has read, until a read returns it.
#[derive(Default)]
struct ReadAhead {
    entry: Mutex<Option<(Entry, FiAddr)>>,
    /// Whether there is an entry. A read checks this before it takes the lock, under which it
    /// changes.
    is_full: AtomicBool,
}

impl ReadAhead {
    fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    fn take(&self) -> Option<(Entry, FiAddr)> {
        if !self.is_full() {
            return None;
        }
        let mut entry = self.entry();
        self.is_full.store(false, Ordering::Relaxed);
        entry.take()
    }

    /// Stores the entry that `read` returns, if there is none yet. Whether there is one then.
    fn fill(&self, read: impl FnOnce() -> Result<Option<(Entry, FiAddr)>>) -> Result<bool> {
        let mut entry = self.entry();
        if entry.is_none() {
            *entry = read()?;
            self.is_full.store(entry.is_some(), Ordering::Relaxed);
        }
        Ok(entry.is_some())
    }

    fn entry(&self) -> MutexGuard<'_, Option<(Entry, FiAddr)>> {
        self.entry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A format of the library's entries. Each format is a prefix of all larger ones. The largest
/// format has the layout of [`Entry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Format {
    number: u32,
    /// The size of an entry, in bytes.
    size: usize,
}

/// The formats in the order in which [`Cq::open`] tries them: first the format with all fields,
/// last the one that every provider has.
const FORMATS: [Format; 4] = [
    Format::new(number::cq_format::TAGGED, size_of::<Entry>()),
    Format::new(number::cq_format::DATA, 40),
    Format::new(number::cq_format::MSG, 24),
    Format::new(number::cq_format::CONTEXT, 8),
];

impl Format {
    const fn new(number: u32, size: usize) -> Self {
        Self { number, size }
    }
}

/// Minimum room for the error data of an entry, in bytes.
const ERR_DATA: usize = 256;
/// Maximum number of entries that one call reads in a format smaller than [`Entry`].
const BATCH: usize = 16;

impl Cq {
    pub(crate) fn open(domain: &Arc<DomainState>, attr: &Attr) -> Result<Self, Error> {
        let mut tried = FORMATS
            .into_iter()
            .map(|format| Self::try_open(domain, attr, format));
        let first = tried.next().expect("there are formats");
        match first {
            Err(error) if is_format_error(error.errno()) => tried.find_map(Result::ok).ok_or(error),
            opened => opened,
        }
    }

    fn try_open(domain: &Arc<DomainState>, attr: &Attr, format: Format) -> Result<Self, Error> {
        let fid = domain.ptr_or_error()?;
        let mut requested = CqAttr {
            size: attr.size,
            flags: 0,
            format: format.number,
            wait_obj: attr.wait_obj as u32,
            signaling_vector: 0,
            wait_cond: 0,
            wait_set: ptr::null_mut(),
            xpu_ctx: ptr::null_mut(),
        };
        let handle = Handle::open(
            domain.library(),
            domain.describe("a completion queue"),
            |out| {
                let requested = &raw mut requested;
                // SAFETY: the domain is open, and the attributes live during the call.
                unsafe { call!(fid, (*fid).ops, cq_open, requested, out, ptr::null_mut()) }
            },
        )?;
        Ok(Self {
            descriptor: wait_descriptor(handle.fid_or_error()?, attr.wait_obj),
            handle,
            domain: Arc::clone(domain),
            format,
            wait_obj: attr.wait_obj,
            read_ahead: ReadAhead::default(),
        })
    }

    /// Returns the entry that was read ahead, if there is one and `out` has room.
    fn take_read_ahead(&self, out: &mut [Entry], src: &mut [FiAddr]) -> Option<usize> {
        let first = out.first_mut()?;
        let (entry, from) = self.read_ahead.take()?;
        *first = entry;
        if let Some(slot) = src.first_mut() {
            *slot = from;
        }
        Some(1)
    }

    fn read_new(&self, out: &mut [Entry], src: &mut [FiAddr]) -> Result<usize> {
        let cq = self.handle.ptr()?;
        self.read_entries(out, src, |buf, count, from| {
            // SAFETY: the queue is open, and there is room for `count` entries and sources.
            unsafe { call!(cq, (*cq).ops, readfrom, buf, count, from) }
        })
    }

    pub(crate) fn fid(&self) -> Result<*mut Fid, Error> {
        self.handle.fid_or_error()
    }

    /// Reads entries in the queue's format with `take`, and converts them. Drops the entries that
    /// the application did not request, and returns the number of the others.
    fn read_entries(
        &self,
        out: &mut [Entry],
        src: &mut [FiAddr],
        take: impl Fn(*mut c_void, usize, *mut u64) -> isize,
    ) -> Result<usize> {
        let from = if src.is_empty() {
            ptr::null_mut()
        } else {
            src.as_mut_ptr().cast()
        };
        let code = if self.format == FORMATS[0] {
            take(out.as_mut_ptr().cast(), out.len(), from)
        } else {
            self.read_narrow(out, |buf, count| take(buf, count, from))
        };
        let count = match to_count(code) {
            Err(Errno::Again) => return Ok(0),
            code => code?,
        };
        let count = count.min(out.len());
        let reported = self.domain.contexts.restore(&mut out[..count], src);
        out[..reported].iter_mut().for_each(clear_undefined_fields);
        Ok(reported)
    }

    fn read_narrow(
        &self,
        out: &mut [Entry],
        take: impl FnOnce(*mut c_void, usize) -> isize,
    ) -> isize {
        let mut narrow = [0_u64; BATCH * 5];
        let code = take(narrow.as_mut_ptr().cast(), out.len().min(BATCH));
        let count = usize::try_from(code).unwrap_or(0);
        let words = self.format.size / size_of::<u64>();
        for (entry, narrow) in out.iter_mut().zip(narrow.chunks(words)).take(count) {
            let word = |index: usize| narrow.get(index).copied().unwrap_or(0);
            *entry = Entry {
                context: Context(word(0)),
                flags: CompletionFlags::from_bits_retain(word(1)),
                len: usize::try_from(word(2)).unwrap_or(0),
                buf: usize::try_from(word(3)).unwrap_or(0),
                data: word(4),
                tag: 0,
            };
        }
        code
    }

    fn provider_error_text(&self, entry: &CqErrEntry) -> String {
        let Ok(cq) = self.handle.ptr() else {
            return String::new();
        };
        let mut buffer = [0 as c_char; 256];
        let (code, data) = (entry.prov_errno, entry.err_data.cast_const());
        // SAFETY: the queue is open, and `buffer` has room for the length that the call states.
        let text = unsafe {
            call!(
                cq,
                (*cq).ops,
                strerror,
                code,
                data,
                buffer.as_mut_ptr(),
                buffer.len()
            )
        };
        // SAFETY: the result is a C string or NULL.
        let text = unsafe { pointer::text(text) }.ok().flatten();
        text.unwrap_or_default().to_owned()
    }
}

/// Returns whether an open that failed with this error may succeed with another format.
fn is_format_error(errno: Errno) -> bool {
    matches!(errno, Errno::NoSys | Errno::Inval | Errno::OpNotSupp)
}

/// Clears the fields that the object model leaves undefined; some providers fill them.
fn clear_undefined_fields(entry: &mut Entry) {
    entry.flags &= CompletionFlags::all();
    let is_receive = entry.flags.contains(CompletionFlags::RECV);
    let is_remote = entry
        .flags
        .intersects(CompletionFlags::REMOTE_READ | CompletionFlags::REMOTE_WRITE);
    if !is_receive && !is_remote {
        entry.len = 0;
        entry.tag = 0;
        entry.buf = 0;
    }
    if !entry.flags.contains(CompletionFlags::REMOTE_CQ_DATA) {
        entry.data = 0;
    }
}

impl CompletionQueue for Cq {
    fn read(&self, out: &mut [Entry]) -> Result<usize> {
        if let Some(taken) = self.take_read_ahead(out, &mut []) {
            return Ok(taken);
        }
        let cq = self.handle.ptr()?;
        self.read_entries(out, &mut [], |buf, count, _| {
            // SAFETY: the queue is open, and there is room for `count` entries.
            unsafe { call!(cq, (*cq).ops, read, buf, count) }
        })
    }

    fn read_from(&self, out: &mut [Entry], src: &mut [FiAddr]) -> Result<usize> {
        if src.len() < out.len() {
            return Err(Errno::Inval);
        }
        match self.take_read_ahead(out, src) {
            Some(taken) => Ok(taken),
            None => self.read_new(out, src),
        }
    }

    fn is_ready(&self) -> bool {
        let read = || {
            let (mut entry, mut from) = ([Entry::default()], [FiAddr::UNSPEC]);
            let count = self.read_new(&mut entry, &mut from)?;
            Ok((count > 0).then_some((entry[0], from[0])))
        };
        // After an error there is an error entry to read.
        self.read_ahead.fill(read).unwrap_or(true)
    }

    fn read_err(&self) -> Result<ErrEntry> {
        let cq = self.handle.ptr()?;
        let mut data = vec![0_u8; self.domain.max_err_data.max(ERR_DATA)];
        let mut raw_error = EMPTY;
        raw_error.err_data = data.as_mut_ptr().cast();
        raw_error.err_data_size = data.len();
        let entry = &raw mut raw_error;
        // SAFETY: the queue is open, and there is room for the entry and for its data.
        to_count(unsafe { call!(cq, (*cq).ops, readerr, entry, 0) })?;
        let mut entry = Entry {
            context: Context(raw_error.op_context.addr() as u64),
            flags: CompletionFlags::from_bits_retain(raw_error.flags),
            len: raw_error.len,
            buf: raw_error.buf.addr(),
            data: raw_error.data,
            tag: raw_error.tag,
        };
        entry.context = self.domain.contexts.restore_failed(entry.context);
        clear_undefined_fields(&mut entry);
        let errno = Errno::from_raw(raw_error.err);
        let text = self.domain.library().error_text(raw_error.err);
        let detail = format!("{text}: {}", self.provider_error_text(&raw_error));
        let mut error = ErrEntry::new(entry, errno, detail);
        error.olen = raw_error.olen;
        error.prov_errno = raw_error.prov_errno;
        error.src = FiAddr(raw_error.src_addr);
        data.truncate(raw_error.err_data_size);
        error.err_data = match errno {
            Errno::AddrNotAvail => addr::decode(&data, self.domain.addr_format)
                .map_or(data, |sender| sender.to_bytes()),
            _ => data,
        };
        Ok(error)
    }

    fn wait(&self, out: &mut [Entry], timeout: Option<Duration>) -> Result<usize> {
        // libfabric crashes in a wait on a queue without a wait object.
        if self.wait_obj == wait::Object::None {
            return Err(Errno::NoSys);
        }
        if out.is_empty() && self.read_ahead.is_full() {
            return Ok(0);
        }
        if let Some(taken) = self.take_read_ahead(out, &mut []) {
            return Ok(taken);
        }
        let (cq, timeout) = (self.handle.ptr()?, millis(timeout));
        let count = self.read_entries(out, &mut [], |buf, count, _| {
            // SAFETY: the queue is open, and there is room for `count` entries.
            unsafe { call!(cq, (*cq).ops, sread, buf, count, ptr::null(), timeout) }
        });
        match count {
            // Without room, the library returns no entry also when the queue has one.
            Ok(0) if out.is_empty() && self.is_ready() => Ok(0),
            Ok(0) | Err(Errno::Canceled | Errno::Intr) => Err(Errno::Again),
            code => code,
        }
    }

    fn signal(&self) -> Result {
        let cq = self.handle.ptr()?;
        // SAFETY: the queue is open.
        to_result(unsafe { call!(cq, (*cq).ops, signal) })
    }

    fn try_wait(&self) -> Result {
        if self.read_ahead.is_full() {
            return Err(Errno::Again);
        }
        self.domain.fabric.try_wait(self.handle.fid()?)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the library keeps the descriptor open as long as the queue.
        self.descriptor
            .map(|fd| unsafe { BorrowedFd::borrow_raw(fd) })
    }
}

const EMPTY: CqErrEntry = CqErrEntry {
    op_context: ptr::null_mut(),
    flags: 0,
    len: 0,
    buf: ptr::null_mut(),
    data: 0,
    tag: 0,
    olen: 0,
    err: 0,
    prov_errno: 0,
    err_data: ptr::null_mut(),
    err_data_size: 0,
    src_addr: u64::MAX,
};

impl OfDomain for Cq {
    fn domain(&self) -> &DomainId {
        &self.domain.id
    }
}

impl fmt::Debug for Cq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.domain.describe("completion queue"))
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Instant;

    use super::*;

    /// Entries that are read while the next one may be read ahead.
    const ENTRIES: usize = 100_000;

    #[test]
    fn an_entry_that_is_read_ahead_during_a_read_is_found() {
        let read_ahead = ReadAhead::default();
        let deadline = Instant::now() + Duration::from_secs(60);
        let is_done = AtomicBool::new(false);
        let fill_until_done = || {
            while !is_done.load(Ordering::Relaxed) {
                let entry = || Ok(Some((Entry::default(), FiAddr::UNSPEC)));
                assert_eq!(read_ahead.fill(entry), Ok(true));
            }
        };
        let take_all = || {
            for number in 0..ENTRIES {
                while read_ahead.take().is_none() && Instant::now() < deadline {}
                let is_late = Instant::now() >= deadline;
                is_done.store(is_late || number + 1 == ENTRIES, Ordering::Relaxed);
                assert!(!is_late, "entry {number} is hidden");
            }
        };
        thread::scope(|scope| {
            scope.spawn(fill_until_done);
            take_all();
        });
    }
}
