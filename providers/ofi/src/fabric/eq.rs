//! Event queues.

#![expect(unsafe_code, reason = "calls of another library")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "explained at `call!`")]

use std::any::Any;
use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use selvedge::eq::{Attr, ErrEntry, Event};
use selvedge::{Context, Errno, Error, EventQueue, Result, wait};
use selvedge_abi::{EqAttr, EqCmEntry, EqEntry, EqErrEntry, Fid, FidEq, infos, number, pointer};

use super::state::FabricState;
use crate::library::LibraryInfo;
use crate::object::{Handle, call, millis, to_count, to_result, wait_descriptor};
use crate::open_objects;

/// An event queue of the library.
pub(crate) struct Eq {
    handle: Handle<FidEq>,
    fabric: Arc<FabricState>,
    wait_obj: wait::Object,
    descriptor: Option<RawFd>,
}

/// `FI_WRITE`: the application writes events.
const WRITE: u64 = 1 << 9;
/// `FI_PEEK`: a read leaves the event in the queue.
const PEEK: u64 = 1 << 19;

/// A buffer for an event with the largest connection data, aligned for the event's words.
#[repr(C, align(8))]
struct EventBuffer {
    bytes: [u8; 4096],
}

/// An event as the library has written it.
struct RawEvent {
    number: u32,
    buffer: EventBuffer,
    len: usize,
}

impl Eq {
    pub(crate) fn open(fabric: &Arc<FabricState>, attr: &Attr) -> Result<Self, Error> {
        let fid = fabric.ptr_or_error()?;
        let mut requested = EqAttr {
            size: attr.size,
            flags: WRITE,
            wait_obj: attr.wait_obj as u32,
            signaling_vector: 0,
            wait_set: ptr::null_mut(),
        };
        let handle = Handle::open(fabric.library, "an event queue", |out| {
            let requested = &raw mut requested;
            // SAFETY: the fabric is open, and the attributes live during the call.
            unsafe { call!(fid, (*fid).ops, eq_open, requested, out, ptr::null_mut()) }
        })?;
        Ok(Self {
            descriptor: wait_descriptor(handle.fid_or_error()?, attr.wait_obj),
            handle,
            fabric: Arc::clone(fabric),
            wait_obj: attr.wait_obj,
        })
    }

    pub(crate) fn fid(&self) -> Result<*mut Fid, Error> {
        self.handle.fid_or_error()
    }

    /// Whether the queue was opened from this fabric.
    pub(crate) fn is_opened_from(&self, fabric: &Arc<FabricState>) -> bool {
        Arc::ptr_eq(&self.fabric, fabric)
    }

    /// Reads the next event whose object is still open.
    fn next_event(&self, take: impl Fn(*mut u32, *mut c_void, usize) -> isize) -> Result<Event> {
        loop {
            let raw = RawEvent::read_with(&take)?;
            if let Some(event) = self.parse_event(&raw, ReadMode::Take)? {
                return Ok(event);
            }
        }
    }

    fn parse_event(&self, raw: &RawEvent, mode: ReadMode) -> Result<Option<Event>> {
        let entry: EqEntry = raw.prefix()?;
        Ok(match raw.number {
            number::event::CONNREQ => self.parse_request(raw, mode)?,
            number::event::CONNECTED => open_objects::find_endpoint(entry.fid).map(|ep| {
                let data = raw.data();
                Event::Connected { ep, data }
            }),
            number::event::SHUTDOWN => {
                let ep = open_objects::find_endpoint(entry.fid);
                ep.map(|ep| Event::Shutdown { ep })
            }
            number::event::JOIN_COMPLETE => Some(Event::JoinComplete {
                context: context(entry.context),
            }),
            _ => Some(Event::Notify {
                context: context(entry.context),
                data: entry.data,
                handle: entry.fid.addr() as u64,
            }),
        })
    }

    fn parse_request(&self, raw: &RawEvent, mode: ReadMode) -> Result<Option<Event>> {
        let entry: EqCmEntry = raw.prefix()?;
        let Some((pep, mut info)) = open_objects::find_pep(entry.fid) else {
            return Ok(None);
        };
        // SAFETY: the event has an info of the library, in the library's layout.
        let found = unsafe { infos::read(entry.info, self.fabric.library.abi()) }?;
        let name = found.handle.addr() as u64;
        (info.src_addr, info.dest_addr) = (found.info.src_addr, found.info.dest_addr);
        info.handle = name;
        if mode == ReadMode::Take {
            // SAFETY: the reader of an event owns its info and frees it.
            let library_info = unsafe { LibraryInfo::from_raw(self.fabric.library, entry.info) };
            open_objects::store_request(name, found.handle, library_info);
        }
        let data = raw.data();
        let info = Box::new(info);
        Ok(Some(Event::ConnReq { pep, info, data }))
    }

    fn provider_error_text(&self, entry: &EqErrEntry) -> String {
        let Ok(eq) = self.handle.ptr() else {
            return String::new();
        };
        let mut buffer = [0 as c_char; 256];
        let (code, data) = (entry.prov_errno, entry.err_data.cast_const());
        // SAFETY: the queue is open, and there is room for a text of this length.
        let text = unsafe {
            call!(
                eq,
                (*eq).ops,
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

/// Whether an event is read or peeked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadMode {
    Take,
    Peek,
}

impl RawEvent {
    fn read_with(take: impl Fn(*mut u32, *mut c_void, usize) -> isize) -> Result<Self> {
        let mut raw = Self {
            number: 0,
            buffer: EventBuffer { bytes: [0; 4096] },
            len: 0,
        };
        let buffer = &mut raw.buffer.bytes;
        let code = take(
            &raw mut raw.number,
            buffer.as_mut_ptr().cast(),
            buffer.len(),
        );
        raw.len = to_count(code)?.min(raw.buffer.bytes.len());
        Ok(raw)
    }

    fn prefix<T: Copy>(&self) -> Result<T> {
        // SAFETY: the buffer has this many bytes, and the event structures consist of numbers and
        // pointers.
        unsafe { pointer::prefix(self.buffer.bytes.as_ptr().cast(), self.len) }
    }

    /// The data that the peer has sent with the connection event.
    fn data(&self) -> Vec<u8> {
        let data = self.buffer.bytes.get(size_of::<EqCmEntry>()..self.len);
        data.unwrap_or_default().to_vec()
    }
}

fn context(word: *mut c_void) -> Context {
    Context(word.addr() as u64)
}

/// Downcasts an event queue of `fabric`, to which the object `user` will be bound.
///
/// # Errors
/// [`Errno::Inval`] for a queue of another fabric; the error names `user`, `fabric` and the queue.
pub(crate) fn bound_eq(
    eq: &Arc<dyn EventQueue>,
    fabric: &Arc<FabricState>,
    user: &dyn fmt::Debug,
) -> Result<Arc<Eq>, Error> {
    let any: Arc<dyn Any + Send + Sync> = Arc::<dyn EventQueue>::clone(eq);
    let own = any.downcast::<Eq>().ok();
    own.filter(|own| own.is_opened_from(fabric)).ok_or_else(|| {
        let id = &fabric.id;
        let message = format!(
            "{user:?} ({id:?}): the event queue is of another fabric ({eq:?}); open both from one"
        );
        Error::new(Errno::Inval, message)
    })
}

impl EventQueue for Eq {
    fn read(&self) -> Result<Event> {
        let eq = self.handle.ptr()?;
        self.next_event(|event, buffer, len| {
            // SAFETY: the queue is open, and there is room for an event of this length.
            unsafe { call!(eq, (*eq).ops, read, event, buffer, len, 0) }
        })
    }

    fn peek(&self) -> Result<Event> {
        let eq = self.handle.ptr()?;
        let read_flags = |flags| {
            move |event, buffer, len| {
                // SAFETY: the queue is open, and there is room for an event of this length.
                unsafe { call!(eq, (*eq).ops, read, event, buffer, len, flags) }
            }
        };
        loop {
            let raw = RawEvent::read_with(read_flags(PEEK))?;
            if let Some(event) = self.parse_event(&raw, ReadMode::Peek)? {
                return Ok(event);
            }
            // The object of the event is closed: the event is discarded.
            RawEvent::read_with(read_flags(0))?;
        }
    }

    fn read_err(&self) -> Result<ErrEntry> {
        let eq = self.handle.ptr()?;
        let mut data = vec![0_u8; 4096];
        let mut raw_error = EqErrEntry {
            fid: ptr::null_mut(),
            context: ptr::null_mut(),
            data: 0,
            err: 0,
            prov_errno: 0,
            err_data: data.as_mut_ptr().cast(),
            err_data_size: data.len(),
        };
        let entry = &raw mut raw_error;
        // SAFETY: the queue is open, and there is room for the entry and for its data.
        to_count(unsafe { call!(eq, (*eq).ops, readerr, entry, 0) })?;
        let text = self.fabric.library.error_text(raw_error.err);
        let detail = format!("{text}: {}", self.provider_error_text(&raw_error));
        let errno = Errno::from_raw(raw_error.err);
        let mut error = ErrEntry::new(context(raw_error.context), errno, detail);
        error.ep = open_objects::find_endpoint(raw_error.fid);
        data.truncate(raw_error.err_data_size);
        error.data = data;
        Ok(error)
    }

    fn write(&self, event: Event) -> Result {
        let Event::Notify {
            context,
            data,
            handle,
        } = event
        else {
            return Err(Errno::NoSys);
        };
        let eq = self.handle.ptr()?;
        let word = |word: u64| usize::try_from(word).map_err(|_| Errno::Inval);
        let entry = EqEntry {
            fid: ptr::without_provenance_mut(word(handle)?),
            context: ptr::without_provenance_mut(word(context.0)?),
            data,
        };
        let (entry_ptr, len) = ((&raw const entry).cast(), size_of::<EqEntry>());
        // SAFETY: the queue is open, and the entry lives during the call.
        to_result(unsafe {
            call!(
                eq,
                (*eq).ops,
                write,
                number::event::NOTIFY,
                entry_ptr,
                len,
                0
            )
        })
    }

    fn wait(&self, timeout: Option<Duration>) -> Result<Event> {
        // libfabric crashes in a wait on a queue without a wait object.
        if self.wait_obj == wait::Object::None {
            return Err(Errno::NoSys);
        }
        let (eq, timeout): (_, c_int) = (self.handle.ptr()?, millis(timeout));
        let event = self.next_event(|event, buffer, len| {
            // SAFETY: the queue is open, and there is room for an event of this length.
            unsafe { call!(eq, (*eq).ops, sread, event, buffer, len, timeout, 0) }
        });
        match event {
            Err(Errno::Canceled | Errno::Intr | Errno::TimedOut) => Err(Errno::Again),
            result => result,
        }
    }

    fn try_wait(&self) -> Result {
        self.fabric.try_wait(self.handle.fid()?)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the library keeps the descriptor open as long as the queue.
        self.descriptor
            .map(|fd| unsafe { BorrowedFd::borrow_raw(fd) })
    }
}

impl fmt::Debug for Eq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event queue of {:?}", self.fabric.id)
    }
}
