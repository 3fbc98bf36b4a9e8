//! Objects as C holds them: a handle that the headers' inline functions read, and behind it what it
//! stands for, with what every object has.
//!
//! A handle that was closed stays in memory for a while with tables that refuse every call, so that
//! closing twice and using what is closed is mostly an error rather than a crash.

#![expect(unsafe_code, reason = "handles of C")]

use std::alloc::{Layout, dealloc};
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::ops::Deref;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use selvedge::{Errno, Result};
use selvedge_abi::{Fid, FromHandle, Handle, Ops};

use crate::pointer::put;
use crate::status::guarded_unit;

/// The object behind the handle of a handle.
///
/// # Safety
/// For implementors: `Handle` is a structure of C that begins with a [`Fid`], and each table that
/// [`Self::handle`] fills in is one for this type, or refuses. No other type has the same `OPS`.
pub(crate) unsafe trait Class: Sized + Send + Sync + 'static {
    /// The structure of C.
    type Handle: Handle;
    /// `FI_CLASS_*`.
    const FCLASS: usize;
    /// The table that every handle of this class has while it is open.
    const OPS: &'static Table<Ops, Self>;

    /// `FI_CLASS_*` of this object, for types that stand for several.
    fn fclass(&self) -> usize {
        Self::FCLASS
    }

    /// A handle with this beginning.
    fn handle(&self, fid: Fid) -> Self::Handle;
}

/// A table of functions for handles of a `T`.
pub(crate) type Table<O, T> = selvedge_abi::Table<O, Object<T>>;

/// The table of every object: those that it does not fill refuse, but for `close`.
pub(crate) const fn ops<T: Class>() -> Table<Ops, T> {
    let mut table = Table::<Ops, T>::empty();
    table.ops.close = Some(close::<T>);
    table
}

/// A handle and what stands behind it.
#[repr(C)]
pub(crate) struct Object<T: Class> {
    handle: UnsafeCell<T::Handle>,
    contents: UnsafeCell<Contents<T>>,
}

#[repr(C)]
struct Contents<T> {
    own: T,
    users: Users,
    /// The object that it was made of.
    _parent: Option<User>,
}

impl<T: Class> Deref for Object<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: only `close` changes it, when nobody else has the object any more.
        unsafe { &(*self.contents.get()).own }
    }
}

impl<T: Class> Object<T> {
    /// The handle.
    pub(crate) fn fid(&self) -> *mut Fid {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// The value that the program gave the handle.
    pub(crate) fn context(&self) -> *mut c_void {
        // SAFETY: a handle begins with its fid, which is C's to write, and only read here.
        unsafe { (*self.fid()).context }
    }

    /// Makes an object of this one, which does not close before it.
    ///
    /// # Errors
    /// As [`open`].
    ///
    /// # Safety
    /// As [`open`].
    pub(crate) unsafe fn child<C: Class>(
        &self,
        out: *mut *mut C::Handle,
        context: *mut c_void,
        make: impl FnOnce() -> Result<C>,
    ) -> Result {
        // SAFETY: passed on from the caller.
        unsafe { open(out, context, Some(self.new_user()), make) }
    }

    /// Keeps the object from being closed.
    pub(crate) fn new_user(&self) -> User {
        // SAFETY: as in `deref`.
        unsafe { &(*self.contents.get()).users }.add()
    }
}

// SAFETY: only `open` makes handles whose tables are for a `T`, and each is the beginning of its
// object.
unsafe impl<T: Class> FromHandle for Object<T> {
    #[inline(always)]
    unsafe fn from_handle<'a>(handle: *const Fid) -> &'a Self {
        // SAFETY: the caller vouches that the object is still there. What changes in it is in cells.
        unsafe { &*handle.cast() }
    }
}

/// Makes an object of C's, unless there is no place for its handle.
///
/// # Errors
/// [`Errno::Inval`] for no place; those of `make`.
///
/// # Safety
/// `out` is NULL or may be written.
pub(crate) unsafe fn open<T: Class>(
    out: *mut *mut T::Handle,
    context: *mut c_void,
    parent: Option<User>,
    make: impl FnOnce() -> Result<T>,
) -> Result {
    if out.is_null() {
        return Err(Errno::Inval);
    }
    let handle = new(make()?, context, parent);
    // SAFETY: passed on from the caller.
    unsafe { put(out, handle) }
}

/// Makes an object of C's.
pub(crate) fn new<T: Class>(own: T, context: *mut c_void, parent: Option<User>) -> *mut T::Handle {
    let fid = Fid {
        fclass: own.fclass(),
        context,
        ops: &T::OPS.ops,
    };
    let object = Box::new(Object {
        handle: UnsafeCell::new(own.handle(fid)),
        contents: UnsafeCell::new(Contents {
            own,
            users: Users::default(),
            _parent: parent,
        }),
    });
    Box::into_raw(object).cast()
}

/// The object of a handle that was passed as an argument.
///
/// # Errors
/// [`Errno::Inval`] for NULL, an object of another class or of another library, and a closed one.
///
/// # Safety
/// `fid` is NULL, or names a handle of some object that is open, or was closed a short time ago.
pub(crate) unsafe fn argument<'a, T: Class>(fid: *const Fid) -> Result<&'a Object<T>> {
    // SAFETY: passed on from the caller.
    let head = unsafe { crate::pointer::required(fid) }?;
    if !ptr::eq(head.ops, &T::OPS.ops) {
        return Err(Errno::Inval);
    }
    // SAFETY: only `new` makes handles with this table, and closing takes it away.
    Ok(unsafe { Object::from_handle(fid) })
}

/// `close` of every class.
///
/// # Safety
/// `fid` is the handle of an open object of this type.
pub(crate) unsafe extern "C" fn close<T: Class>(fid: *mut Fid) -> c_int {
    guarded_unit(|| {
        // SAFETY: passed on from the caller.
        let contents = unsafe { Object::<T>::from_handle(fid) }.contents.get();
        // SAFETY: the object is there as long as its handle is open.
        if unsafe { &(*contents).users }.is_busy() {
            return Err(Errno::Busy);
        }
        // SAFETY: the fid is C's to write, and only read here.
        let mut head = unsafe { fid.read() };
        head.ops = &CLOSED;
        let handle: *mut T::Handle = fid.cast();
        // SAFETY: the handle is in a cell, at the beginning of the object.
        unsafe { handle.write(T::Handle::failing::<{ libc::EBADF }>(head)) };
        // SAFETY: nobody reaches it through the closed handle, so it is dropped once.
        unsafe { ptr::drop_in_place(contents) };
        retire(fid.cast(), Layout::new::<Object<T>>());
        Ok(())
    })
}

static CLOSED: Ops = Ops::failing::<{ libc::EBADF }>();

/// Closed handles, the oldest first.
static CLOSED_HANDLES: Mutex<VecDeque<ClosedHandle>> = Mutex::new(VecDeque::new());
/// As many as a program may close before it notices that it uses one of them.
const MAX_CLOSED_HANDLES: usize = 256;

struct ClosedHandle(*mut u8, Layout);

// SAFETY: it is only an address until it is freed, by whichever thread.
unsafe impl Send for ClosedHandle {}

fn retire(object: *mut u8, layout: Layout) {
    let mut closed = CLOSED_HANDLES
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    closed.push_back(ClosedHandle(object, layout));
    if closed.len() > MAX_CLOSED_HANDLES
        && let Some(ClosedHandle(oldest, layout)) = closed.pop_front()
    {
        // SAFETY: a box of this layout was made of it, and what was in it is dropped.
        unsafe { dealloc(oldest, layout) };
    }
}

/// Those who need an object: while there are any, it does not close.
#[derive(Debug, Default)]
struct Users(Arc<()>);

/// One of them.
#[derive(Clone, Debug)]
pub(crate) struct User(#[expect(dead_code, reason = "it counts by being there")] Arc<()>);

impl Users {
    fn add(&self) -> User {
        User(Arc::clone(&self.0))
    }

    fn is_busy(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}
