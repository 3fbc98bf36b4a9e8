//! Objects as C holds them: a handle that the headers' inline functions read, and behind it what it
//! stands for.
//!
//! A handle that was closed stays in memory for a while with tables that refuse every call, so that
//! closing twice and using what is closed is mostly an error rather than a crash.

#![expect(unsafe_code, reason = "handles of C")]

use std::alloc::{Layout, dealloc};
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use selvedge::{Errno, Result};
use selvedge_abi::{Fid, Ops};

use crate::answer::done;

/// What stands behind a handle.
///
/// # Safety
/// For implementors: `Handle` is a structure of C that begins with a [`Fid`], and both of its makers
/// fill in every table.
pub(crate) unsafe trait Class: Sized + Send + Sync {
    /// The structure of C.
    type Handle;
    /// `FI_CLASS_*`.
    const FCLASS: usize;

    /// The table that every handle of this class has while it is open.
    fn ops() -> &'static Ops;

    /// A handle with this beginning.
    fn handle(&self, fid: Fid) -> Self::Handle;

    /// A handle that refuses every call.
    fn closed(fid: Fid) -> Self::Handle;

    /// Who would be left without it.
    fn users(&self) -> Option<&Users> {
        None
    }
}

#[repr(C)]
struct Object<T: Class> {
    handle: UnsafeCell<T::Handle>,
    own: T,
}

/// Makes an object of C's.
pub(crate) fn open<T: Class>(own: T, context: *mut c_void) -> *mut T::Handle {
    let fid = Fid {
        fclass: T::FCLASS,
        context,
        ops: T::ops(),
    };
    let object = Box::new(Object {
        handle: UnsafeCell::new(own.handle(fid)),
        own,
    });
    Box::into_raw(object).cast()
}

/// What stands behind a handle.
///
/// # Safety
/// `handle` was made by [`open`] for a `T`, or for a type that is a `T` and nothing else
/// (`repr(transparent)`), and is not closed for `'a`: the inline functions of the headers pass a
/// handle to functions of its own table, which a closed one has no more.
#[inline(always)]
pub(crate) unsafe fn this<'a, T: Class>(handle: *const T::Handle) -> &'a T {
    let object: *const Object<T> = handle.cast();
    // SAFETY: the caller vouches that `open` made it for a `T` and that it is still there. The
    // handle itself, which C writes to, is in a cell.
    unsafe { &(*object).own }
}

/// As [`this`], for the handle of any object.
///
/// # Safety
/// As [`this`].
#[inline(always)]
pub(crate) unsafe fn of_own_fid<'a, T: Class>(fid: *const Fid) -> &'a T {
    // SAFETY: handles begin with their fid.
    unsafe { this(fid.cast()) }
}

/// What stands behind a handle that was passed as an argument.
///
/// # Errors
/// [`Errno::Inval`] for NULL, an object of another class or of another library, and a closed one.
///
/// # Safety
/// `fid` is NULL, or names a handle of some object that is open, or was closed a short time ago.
pub(crate) unsafe fn argument<'a, T: Class>(fid: *const Fid) -> Result<&'a T> {
    // SAFETY: passed on from the caller.
    let head = unsafe { crate::given::given(fid) }?;
    if head.fclass != T::FCLASS || !ptr::eq(head.ops, T::ops()) {
        return Err(Errno::Inval);
    }
    // SAFETY: only `open` makes handles with this table, and closing takes it away.
    Ok(unsafe { of_own_fid(fid) })
}

/// `close` of every class.
///
/// # Safety
/// As [`of_own_fid`].
pub(crate) unsafe extern "C" fn close<T: Class>(fid: *mut Fid) -> c_int {
    done(|| {
        // SAFETY: passed on from the caller.
        let own = unsafe { of_own_fid::<T>(fid) };
        if own.users().is_some_and(Users::is_busy) {
            return Err(Errno::Busy);
        }
        let object: *mut Object<T> = fid.cast();
        // SAFETY: the fid is C's to write, and only read here.
        let mut head = unsafe { fid.read() };
        head.ops = &CLOSED;
        let handle: *mut T::Handle = fid.cast();
        // SAFETY: the handle is in a cell, at the beginning of the object.
        unsafe { handle.write(T::closed(head)) };
        // SAFETY: the object is there as long as its handle.
        let own = unsafe { &raw mut (*object).own };
        // SAFETY: nobody reaches it through the closed handle, so it is dropped once.
        unsafe { ptr::drop_in_place(own) };
        bury(object.cast(), Layout::new::<Object<T>>());
        Ok(())
    })
}

static CLOSED: Ops = Ops::refusing::<{ libc::EBADF }>();

/// Closed handles, the oldest first.
static GRAVES: Mutex<VecDeque<Grave>> = Mutex::new(VecDeque::new());
/// As many as a program may close before it notices that it uses one of them.
const MOST_GRAVES: usize = 256;

struct Grave(*mut u8, Layout);

// SAFETY: it is only an address until it is freed, by whichever thread.
unsafe impl Send for Grave {}

fn bury(object: *mut u8, layout: Layout) {
    let mut graves = GRAVES.lock().unwrap_or_else(PoisonError::into_inner);
    graves.push_back(Grave(object, layout));
    if graves.len() > MOST_GRAVES
        && let Some(Grave(oldest, layout)) = graves.pop_front()
    {
        // SAFETY: a box of this layout was made of it, and what was in it is dropped.
        unsafe { dealloc(oldest, layout) };
    }
}

/// Those who need an object: while there are any, it does not close.
#[derive(Debug, Default)]
pub(crate) struct Users(Arc<()>);

/// One of them.
#[derive(Clone, Debug)]
pub(crate) struct User(#[expect(dead_code, reason = "it counts by being there")] Arc<()>);

impl Users {
    pub(crate) fn one_more(&self) -> User {
        User(Arc::clone(&self.0))
    }

    fn is_busy(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}
