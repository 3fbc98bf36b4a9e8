//! `Object`: a handle that the headers' inline functions read, followed by the object behind the
//! handle.
//!
//! A closed handle stays in memory for a while, with tables whose every function fails. A call with
//! a recently closed handle, a second close included, therefore fails instead of crashing.

#![expect(unsafe_code, reason = "handles of C")]

pub(crate) mod handles;

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

/// A type of objects that C holds by handles.
///
/// # Safety
/// For implementors: `Handle` is a structure of C that begins with a [`Fid`], and each table that
/// [`Self::handle`] fills in is for this type, or fails every call. No other type has the same
/// `OPS`.
pub(crate) unsafe trait Class: Sized + Send + Sync + 'static {
    /// The structure of C.
    type Handle: Handle;
    /// The table that every handle of this class has while it is open.
    const OPS: &'static Table<Ops, Self>;

    /// `FI_CLASS_*` of this object.
    fn fclass(&self) -> usize;

    /// A handle that begins with this fid.
    fn handle(&self, fid: Fid) -> Self::Handle;
}

/// Describes a class of objects: the type behind the handle, the structure of C, the static table
/// of the fid, `FI_CLASS_*` of an object, and the tables and other members of the handle. A table
/// that is not named fails every call.
macro_rules! class {
    (
        $class:ty, $handle:ty, $ops:ident, $fclass:expr
        $(; tables |$object:pat_param| $($table:ident: $static:expr),+)?
        $(; members |$owner:pat_param| $($member:ident: $value:expr),+)?
    ) => {
        // SAFETY: `abi::Handle` is implemented for structures that begin with a fid. Tables of
        // another class do not compile. `$ops` is a static, whose address is unique.
        unsafe impl $crate::object::Class for $class {
            type Handle = $handle;
            const OPS: &'static $crate::object::Table<selvedge_abi::Ops, Self> = &$ops;

            fn fclass(&self) -> usize {
                let fclass: fn(&Self) -> usize = $fclass;
                fclass(self)
            }

            fn handle(&self, fid: selvedge_abi::Fid) -> $handle {
                let handle = <$handle as selvedge_abi::Handle>::failing::<{ libc::ENOSYS }>(fid);
                $(
                    let $object = self;
                    let handle = {
                        let mut handle = handle;
                        $(
                            let table: &'static $crate::object::Table<_, Self> = $static;
                            handle.$table = &raw const table.ops;
                        )+
                        handle
                    };
                )?
                $(
                    let $owner = self;
                    let handle = {
                        let mut handle = handle;
                        $(handle.$member = $value;)+
                        handle
                    };
                )?
                handle
            }
        }
    };
}

/// Opens an object from another one in a function of C, with [`Object::child`]. The last expression
/// makes the object; it may call functions whose promise the page of the C function contains.
macro_rules! open_child {
    ($parent:ident, $out:expr, $context:expr, $make:expr) => {
        $crate::status::guarded_unit(|| {
            // SAFETY: the C caller follows the page of the function.
            let make = || unsafe { $make };
            // SAFETY: as above.
            unsafe { $parent.child($out, $context, make) }
        })
    };
}

pub(crate) use {class, open_child};

/// A table of functions for handles of a `T`.
pub(crate) type Table<O, T> = selvedge_abi::Table<O, Object<T>>;

/// The table of every object: `close` is filled, and all other slots fail until they are filled.
pub(crate) const fn ops<T: Class>() -> Table<Ops, T> {
    let mut table = Table::<Ops, T>::empty();
    table.ops.close = Some(close::<T>);
    table
}

/// A handle and the object behind it.
#[repr(C)]
pub(crate) struct Object<T: Class> {
    handle: UnsafeCell<T::Handle>,
    contents: UnsafeCell<Contents<T>>,
}

#[repr(C)]
struct Contents<T> {
    object: T,
    users: Users,
    /// The object from which this one was opened.
    _parent: Option<User>,
}

impl<T: Class> Deref for Object<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: only `close` changes the object, when no other reference to the object is left.
        unsafe { &(*self.contents.get()).object }
    }
}

impl<T: Class> Object<T> {
    /// The handle.
    pub(crate) fn fid(&self) -> *mut Fid {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// The context that the program has given the handle.
    pub(crate) fn context(&self) -> *mut c_void {
        // SAFETY: a handle begins with its fid, which C may write and this function only reads.
        unsafe { (*self.fid()).context }
    }

    /// Opens an object from this one, which cannot be closed before the new one.
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

    /// Adds a user of this object. An object cannot be closed while it has users.
    pub(crate) fn new_user(&self) -> User {
        // SAFETY: as in `deref`.
        unsafe { &(*self.contents.get()).users }.add()
    }
}

// SAFETY: only `open` makes handles whose tables are for a `T`, and each handle is the beginning of
// its object.
unsafe impl<T: Class> FromHandle for Object<T> {
    #[inline(always)]
    unsafe fn from_handle<'a>(handle: *const c_void) -> &'a Self {
        // SAFETY: the caller vouches that the object is open. Its members that change are in cells.
        unsafe { &*handle.cast() }
    }
}

/// Opens an object and writes its handle to `out`.
///
/// # Errors
/// [`Errno::Inval`] if `out` is NULL; those of `make`.
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

/// Allocates an object and returns its handle.
pub(crate) fn new<T: Class>(
    object: T,
    context: *mut c_void,
    parent: Option<User>,
) -> *mut T::Handle {
    let fid = Fid {
        fclass: object.fclass(),
        context,
        ops: &T::OPS.ops,
    };
    let boxed = Box::new(Object {
        handle: UnsafeCell::new(object.handle(fid)),
        contents: UnsafeCell::new(Contents {
            object,
            users: Users::default(),
            _parent: parent,
        }),
    });
    Box::into_raw(boxed).cast()
}

/// The object of a handle that was passed as an argument.
///
/// # Errors
/// [`Errno::Inval`] for NULL, for an object of another class or of another library, and for a closed
/// object.
///
/// # Safety
/// `fid` is NULL, or points to a handle of an object that is open or was closed a short time ago.
pub(crate) unsafe fn argument<'a, T: Class>(fid: *const Fid) -> Result<&'a Object<T>> {
    // SAFETY: passed on from the caller.
    let head = unsafe { crate::pointer::required(fid) }?;
    if !ptr::eq(head.ops, &T::OPS.ops) {
        return Err(Errno::Inval);
    }
    // SAFETY: only `new` makes handles with this table, and closing replaces it.
    Ok(unsafe { Object::from_handle(fid.cast()) })
}

/// `close` of every class.
///
/// # Safety
/// `fid` is the handle of an open object of this type.
pub(crate) unsafe extern "C" fn close<T: Class>(fid: *mut Fid) -> c_int {
    guarded_unit(|| {
        // SAFETY: passed on from the caller.
        let contents = unsafe { Object::<T>::from_handle(fid.cast()) }
            .contents
            .get();
        // SAFETY: the object exists as long as its handle is open.
        if unsafe { &(*contents).users }.is_busy() {
            return Err(Errno::Busy);
        }
        // SAFETY: C may write the fid, and this function only reads it.
        let mut head = unsafe { fid.read() };
        head.ops = &CLOSED;
        let handle: *mut T::Handle = fid.cast();
        // SAFETY: the handle is in a cell, at the beginning of the object.
        unsafe { handle.write(T::Handle::failing::<{ libc::EBADF }>(head)) };
        // SAFETY: no call reaches the object through the closed handle, so it is dropped once.
        unsafe { ptr::drop_in_place(contents) };
        retire_handle(fid.cast(), Layout::new::<Object<T>>());
        Ok(())
    })
}

static CLOSED: Ops = Ops::failing::<{ libc::EBADF }>();

/// Closed handles, the oldest first.
static CLOSED_HANDLES: Mutex<VecDeque<ClosedHandle>> = Mutex::new(VecDeque::new());
/// Number of closed handles that stay in memory. A program that uses a handle after closing this
/// many later ones reads freed memory.
const MAX_CLOSED_HANDLES: usize = 256;

struct ClosedHandle(*mut u8, Layout);

// SAFETY: the value is only an address until the handle is freed, and any thread may free it.
unsafe impl Send for ClosedHandle {}

fn retire_handle(object: *mut u8, layout: Layout) {
    let mut closed = CLOSED_HANDLES
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    closed.push_back(ClosedHandle(object, layout));
    if closed.len() > MAX_CLOSED_HANDLES
        && let Some(ClosedHandle(oldest, layout)) = closed.pop_front()
    {
        // SAFETY: the handle was allocated as a box of this layout, and its contents are dropped.
        unsafe { dealloc(oldest, layout) };
    }
}

/// The count of an object's users: an object with users does not close.
#[derive(Debug, Default)]
struct Users(Arc<()>);

/// One user of an object.
#[derive(Clone, Debug)]
pub(crate) struct User(#[expect(dead_code, reason = "the reference count is read")] Arc<()>);

impl Users {
    fn add(&self) -> User {
        User(Arc::clone(&self.0))
    }

    fn is_busy(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}
