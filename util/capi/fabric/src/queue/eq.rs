//! Event queues: `struct fid_eq`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::c_void;
use std::mem::offset_of;
use std::ptr;
use std::sync::Arc;

use selvedge::eq::{Attr, ErrEntry, Event};
use selvedge::info::Version;
use selvedge::poll::Member;
use selvedge::{Context, Errno, EventQueue, Fabric, OpFlags, Result};
use selvedge_abi as abi;
use selvedge_abi::{EqEntry, EqErrEntry, Fid, FidEq, Ops, OpsEq, fclass, number};

use super::last_error::{self, LastError};
use super::wait::{self, WaitObject};
use crate::context;
use crate::info;
use crate::object::{self, Table, class, handles};
use crate::pep::request;
use crate::pointer::{array, output_array, put, required};
use crate::status::{guarded_count, guarded_unit, log_error};

/// The object behind the handle of an event queue.
pub(crate) struct Eq {
    pub(crate) inner: Arc<dyn EventQueue>,
    wait_obj: WaitObject,
    /// Whether the program may write events.
    is_writable: bool,
    version: Version,
    last: LastError,
}

class! {
    Eq, FidEq, FID, |_| fclass::EQ;
    tables |_| ops: &EQ
}

static FID: Table<Ops, Eq> = object::ops::<Eq>().control(|eq, command, arg| {
    // SAFETY: the C caller follows fi_control(3).
    guarded_unit(|| unsafe { eq.wait_obj.control(command, arg, eq.inner.wait_fd()) })
});
static EQ: Table<OpsEq, Eq> = Table::<OpsEq, Eq>::empty()
    .read(|eq, event, buf, len, flags| {
        // SAFETY: the C caller follows fi_eq_read(3).
        guarded_count(|| unsafe { eq.read_event(event, buf, len, flags, || eq.inner.read()) })
    })
    .sread(|eq, event, buf, len, timeout, flags| {
        let next = || eq.inner.wait(wait::timeout(timeout));
        // SAFETY: the C caller follows fi_eq_sread(3).
        guarded_count(|| unsafe { eq.read_event(event, buf, len, flags, next) })
    })
    .readerr(|eq, buf, flags| {
        guarded_count(|| {
            if buf.is_null() {
                return Err(Errno::Inval);
            }
            if flags != 0 {
                return Err(Errno::BadFlags);
            }
            let error = eq.inner.read_err()?;
            // SAFETY: the C caller passes an entry of its API version, as fi_eq_readerr(3)
            // requires.
            unsafe { eq.write_err_entry(&error, buf) }
        })
    })
    .write(|eq, event, buf, len, flags| {
        guarded_count(|| {
            if !eq.is_writable {
                return Err(Errno::Inval);
            }
            if flags != 0 {
                return Err(Errno::BadFlags);
            }
            if event != number::event::NOTIFY || len < size_of::<EqEntry>() {
                return Err(Errno::Inval);
            }
            // SAFETY: the C caller follows fi_eq_write(3); bytes need no alignment.
            let bytes = unsafe { array(buf.cast::<u8>(), size_of::<EqEntry>()) }?;
            let word = |offset: usize| {
                bytes[offset..offset + 8]
                    .try_into()
                    .map_or(0, u64::from_ne_bytes)
            };
            eq.inner.write(Event::Notify {
                context: Context(word(8)),
                data: word(16),
                handle: word(0),
            })?;
            Ok(len)
        })
    })
    .strerror(|eq, prov_errno, _err_data, buf, len| {
        // SAFETY: the C caller follows fi_eq_strerror(3).
        unsafe { eq.last.text(prov_errno, buf, len) }
    });

impl Eq {
    /// Opens an event queue for a program of this API version.
    ///
    /// # Errors
    /// [`Errno::NoSys`] for a wait object that is not supported; the provider's.
    ///
    /// # Safety
    /// `attr` is NULL or points to attributes.
    pub(crate) unsafe fn open(
        fabric: &dyn Fabric,
        version: Version,
        attr: *const abi::EqAttr,
    ) -> Result<Self> {
        // SAFETY: passed on from the caller.
        let attr = unsafe { required(attr) }?;
        let mut request = Attr::default();
        request.size = attr.size;
        // SAFETY: passed on from the caller.
        let (kind, set) = unsafe { wait::object(attr.wait_obj, attr.wait_set) }?;
        request.wait_obj = kind;
        let inner = fabric.eq(&request).map_err(|error| log_error(&error))?;
        let wait_obj = WaitObject::new(kind, set, Member::Eq(Arc::clone(&inner)))?;
        Ok(Self {
            inner,
            wait_obj,
            is_writable: attr.flags & selvedge::Caps::WRITE.bits() != 0,
            version,
            last: LastError::default(),
        })
    }

    /// Reads an event; with `FI_PEEK` the event stays in the queue. Private data that does not fit
    /// is lost.
    ///
    /// # Safety
    /// `event` is NULL or may be written; `buf` is NULL or has room for `len` bytes.
    unsafe fn read_event(
        &self,
        event: *mut u32,
        buf: *mut c_void,
        len: usize,
        flags: u64,
        next: impl FnOnce() -> Result<Event>,
    ) -> Result<usize> {
        let is_peek = match flags {
            0 => false,
            flags if flags == OpFlags::PEEK.bits() => true,
            _ => return Err(Errno::BadFlags),
        };
        if event.is_null() {
            return Err(Errno::Inval);
        }
        let queue_event = if is_peek { self.inner.peek() } else { next() }?;
        // SAFETY: passed on from the caller.
        unsafe { write_event(&queue_event, is_peek, event, buf, len) }
    }
}

/// Writes an event to the program's memory, and returns its length in bytes.
///
/// # Safety
/// As [`Eq::read_event`].
unsafe fn write_event(
    queue_event: &Event,
    is_peek: bool,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
) -> Result<usize> {
    let (number, bytes) = match queue_event {
        Event::Notify {
            context,
            data,
            handle,
        } => (number::event::NOTIFY, entry(*handle, *context, *data)),
        Event::JoinComplete { context } => (number::event::JOIN_COMPLETE, entry(0, *context, 0)),
        Event::ConnReq { pep, info, data } => {
            let info_c = if is_peek {
                ptr::null_mut()
            } else {
                info::allocate_info(info, request::allocate(info.handle))?
            };
            (
                number::event::CONNREQ,
                cm_entry(handles::find(pep), info_c, data),
            )
        }
        Event::Connected { ep, data } => {
            let bytes = cm_entry(handles::find(ep), ptr::null_mut(), data);
            (number::event::CONNECTED, bytes)
        }
        Event::Shutdown { ep } => {
            let bytes = cm_entry(handles::find(ep), ptr::null_mut(), &[]);
            (number::event::SHUTDOWN, bytes)
        }
        _ => return Err(Errno::NoSys),
    };
    let written_len = bytes.len().min(len);
    if written_len < ENTRY_MIN {
        return Err(Errno::TooSmall);
    }
    // SAFETY: passed on from the caller.
    unsafe { output_array(buf.cast::<u8>(), written_len) }?
        .write_copy_of_slice(&bytes[..written_len]);
    // SAFETY: passed on from the caller.
    unsafe { put(event, number) }?;
    Ok(written_len)
}

/// The length of the shortest entry in bytes. Private data may be truncated, the members before the
/// data may not.
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

/// Bytes of an error entry before version 1.5.
const ERR_DATA_SIZE_OFFSET: usize = offset_of!(EqErrEntry, err_data_size);

impl Eq {
    /// # Safety
    /// The caller follows fi_eq_readerr(3) and passes an entry of its API version.
    unsafe fn write_err_entry(&self, error: &ErrEntry, buf: *mut EqErrEntry) -> Result<usize> {
        let entry_len = if self.version < Version::new(1, 5) {
            ERR_DATA_SIZE_OFFSET
        } else {
            size_of::<EqErrEntry>()
        };
        // SAFETY: passed on from the caller.
        let room = unsafe { last_error::program_buffer(buf, ERR_DATA_SIZE_OFFSET, entry_len) };
        let (number, data) = (error.errno.as_raw(), error.data.clone());
        // SAFETY: the program states that its memory has this length.
        let (err_data, err_data_size) =
            unsafe { self.last.store(number, &error.detail, data, room) }?;
        let entry = EqErrEntry {
            fid: error.ep.as_ref().map_or(ptr::null_mut(), handles::find),
            context: context::to_c(error.context),
            data: 0,
            err: number,
            prov_errno: number,
            err_data,
            err_data_size,
        };
        // SAFETY: passed on from the caller: `buf` has room for `entry_len` bytes.
        unsafe { last_error::write(&entry, buf, entry_len) };
        Ok(entry_len)
    }
}
