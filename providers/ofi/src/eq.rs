//! Event queues.

#![expect(unsafe_code, reason = "calls of another library")]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a call is an object, its table and a slot of it"
)]

use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use selvedge::eq::{Attr, ErrEntry, Event};
use selvedge::{Context, Errno, Error, EventQueue, Result, wait};
use selvedge_abi::{EqAttr, EqCmEntry, EqEntry, EqErrEntry, Fid, FidEq, given, infos, number};

use crate::cq::wait_descriptor;
use crate::fabric;
use crate::library::Theirs;
use crate::object::{Handle, call, counted, done, millis};
use crate::opened;

/// An event queue of the library.
pub(crate) struct Eq {
    handle: Handle<FidEq>,
    fabric: Arc<fabric::Inner>,
    wait_obj: wait::Object,
    descriptor: Option<RawFd>,
}

/// The application writes events.
const WRITE: u64 = 1 << 9;
const PEEK: u64 = 1 << 19;

/// An event with the largest data of a connection that there may be, at an address for its words.
#[repr(C, align(8))]
struct Room {
    bytes: [u8; 4096],
}

/// What the library has filled in.
struct Found {
    number: u32,
    room: Room,
    len: usize,
}

impl Eq {
    pub(crate) fn open(fabric: &Arc<fabric::Inner>, attr: &Attr) -> Result<Self, Error> {
        let at = fabric.parent()?;
        let mut asked = EqAttr {
            size: attr.size,
            flags: WRITE,
            wait_obj: attr.wait_obj as u32,
            signaling_vector: 0,
            wait_set: ptr::null_mut(),
        };
        let handle = Handle::open(fabric.library, "an event queue", |out| {
            let asked = &raw mut asked;
            // SAFETY: the fabric is open, and the attributes live during the call.
            unsafe { call!(at, (*at).ops, eq_open, asked, out, ptr::null_mut()) }
        })?;
        Ok(Self {
            descriptor: wait_descriptor(handle.own_fid()?, attr.wait_obj),
            handle,
            fabric: Arc::clone(fabric),
            wait_obj: attr.wait_obj,
        })
    }

    pub(crate) fn fid(&self) -> Result<*mut Fid, Error> {
        self.handle.own_fid()
    }

    /// Whether it was opened from this fabric of the library.
    pub(crate) fn is_of(&self, fabric: &Arc<fabric::Inner>) -> bool {
        Arc::ptr_eq(&self.fabric, fabric)
    }

    /// The next event of which there is still the object that it is about.
    fn next(&self, take: impl Fn(*mut u32, *mut c_void, usize) -> isize) -> Result<Event> {
        loop {
            let found = Found::by(&take)?;
            if let Some(event) = self.event(&found, Keep::Yes)? {
                return Ok(event);
            }
        }
    }

    fn event(&self, found: &Found, keep: Keep) -> Result<Option<Event>> {
        let entry: EqEntry = found.beginning()?;
        Ok(match found.number {
            number::event::CONNREQ => self.request(found, keep)?,
            number::event::CONNECTED => opened::endpoint(entry.fid).map(|ep| {
                let data = found.data();
                Event::Connected { ep, data }
            }),
            number::event::SHUTDOWN => {
                let ep = opened::endpoint(entry.fid);
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

    fn request(&self, found: &Found, keep: Keep) -> Result<Option<Event>> {
        let entry: EqCmEntry = found.beginning()?;
        let Some(pep) = opened::pep(entry.fid) else {
            return Ok(None);
        };
        // SAFETY: the event has a description of the library's, of its layout.
        let given = unsafe { infos::read(entry.info, self.fabric.library.abi()) }?;
        let name = given.handle.addr() as u64;
        let info = Box::new(pep.request(given.info, name));
        if keep == Keep::Yes {
            // SAFETY: a description that came with an event is the reader's to free.
            let theirs = unsafe { Theirs::from_raw(self.fabric.library, entry.info) };
            opened::keep_request(name, given.handle, theirs);
        }
        let data = found.data();
        Ok(Some(Event::ConnReq { pep, info, data }))
    }

    fn said(&self, entry: &EqErrEntry) -> String {
        let Ok(at) = self.handle.at() else {
            return String::new();
        };
        let mut room = [0 as c_char; 256];
        let (code, data) = (entry.prov_errno, entry.err_data.cast_const());
        // SAFETY: the queue is open, and there is room for a text of this length.
        let text = unsafe {
            call!(
                at,
                (*at).ops,
                strerror,
                code,
                data,
                room.as_mut_ptr(),
                room.len()
            )
        };
        // SAFETY: the answer is a text or NULL.
        let text = unsafe { given::text(text) }.ok().flatten();
        text.unwrap_or_default().to_owned()
    }
}

/// Whether an event is taken or only looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    Yes,
    No,
}

impl Found {
    fn by(take: impl Fn(*mut u32, *mut c_void, usize) -> isize) -> Result<Self> {
        let mut found = Self {
            number: 0,
            room: Room { bytes: [0; 4096] },
            len: 0,
        };
        let room = &mut found.room.bytes;
        let answer = take(&raw mut found.number, room.as_mut_ptr().cast(), room.len());
        found.len = counted(answer)?.min(found.room.bytes.len());
        Ok(found)
    }

    fn beginning<T: Copy>(&self) -> Result<T> {
        // SAFETY: there are as many bytes, and the events' structures are numbers and pointers.
        unsafe { given::beginning(self.room.bytes.as_ptr().cast(), self.len) }
    }

    /// What the peer has sent with it.
    fn data(&self) -> Vec<u8> {
        let data = self.room.bytes.get(size_of::<EqCmEntry>()..self.len);
        data.unwrap_or_default().to_vec()
    }
}

fn context(of: *mut c_void) -> Context {
    Context(of.addr() as u64)
}

impl EventQueue for Eq {
    fn read(&self) -> Result<Event> {
        let at = self.handle.at()?;
        self.next(|event, room, len| {
            // SAFETY: the queue is open, and there is room for an event of this length.
            unsafe { call!(at, (*at).ops, read, event, room, len, 0) }
        })
    }

    fn peek(&self) -> Result<Event> {
        let at = self.handle.at()?;
        let look = |flags| {
            move |event, room, len| {
                // SAFETY: the queue is open, and there is room for an event of this length.
                unsafe { call!(at, (*at).ops, read, event, room, len, flags) }
            }
        };
        loop {
            let found = Found::by(look(PEEK))?;
            if let Some(event) = self.event(&found, Keep::No)? {
                return Ok(event);
            }
            // It is about an object that is closed.
            Found::by(look(0))?;
        }
    }

    fn read_err(&self) -> Result<ErrEntry> {
        let at = self.handle.at()?;
        let mut data = vec![0_u8; 4096];
        let mut theirs = EqErrEntry {
            fid: ptr::null_mut(),
            context: ptr::null_mut(),
            data: 0,
            err: 0,
            prov_errno: 0,
            err_data: data.as_mut_ptr().cast(),
            err_data_size: data.len(),
        };
        let entry = &raw mut theirs;
        // SAFETY: the queue is open, and there is room for the entry and for its data.
        counted(unsafe { call!(at, (*at).ops, readerr, entry, 0) })?;
        let text = self.fabric.library.text(theirs.err);
        let detail = format!("{text}: {}", self.said(&theirs));
        let errno = Errno::from_raw(theirs.err);
        let mut error = ErrEntry::new(context(theirs.context), errno, detail);
        error.ep = opened::endpoint(theirs.fid);
        data.truncate(theirs.err_data_size);
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
        let at = self.handle.at()?;
        let word = |word: u64| usize::try_from(word).map_err(|_| Errno::Inval);
        let entry = EqEntry {
            fid: ptr::without_provenance_mut(word(handle)?),
            context: ptr::without_provenance_mut(word(context.0)?),
            data,
        };
        let (from, len) = ((&raw const entry).cast(), size_of::<EqEntry>());
        // SAFETY: the queue is open, and the entry lives during the call.
        done(unsafe { call!(at, (*at).ops, write, number::event::NOTIFY, from, len, 0) })
    }

    fn wait(&self, timeout: Option<Duration>) -> Result<Event> {
        // Libraries of this age fall over a wait without a wait object.
        if self.wait_obj == wait::Object::None {
            return Err(Errno::NoSys);
        }
        let (at, timeout): (_, c_int) = (self.handle.at()?, millis(timeout));
        let event = self.next(|event, room, len| {
            // SAFETY: the queue is open, and there is room for an event of this length.
            unsafe { call!(at, (*at).ops, sread, event, room, len, timeout, 0) }
        });
        match event {
            Err(Errno::Canceled | Errno::Intr | Errno::TimedOut) => Err(Errno::Again),
            answer => answer,
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
