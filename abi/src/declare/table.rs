//! Tables of functions.
//!
//! A table is described once, by the names, parameters and results of its slots. The description
//! generates the structure, a table whose every call fails, and a [`Table`] for one type of object,
//! whose slots take closures of Rust.

#![expect(unsafe_code, reason = "functions that C calls")]

use std::ffi::{c_char, c_int, c_void};
use std::marker::PhantomData;
use std::ptr::NonNull;

/// An object that C holds by a handle.
///
/// # Safety
/// For implementors: [`Self::from_handle`] returns the object of every handle that fulfils the
/// conditions of that function.
pub unsafe trait FromHandle {
    /// Returns the object of a handle.
    ///
    /// # Safety
    /// `handle` is the handle of an object of this type, and is not closed for `'a`. The inline
    /// functions of the headers pass a handle only to functions of the handle's tables, and closing
    /// a handle replaces its tables.
    unsafe fn from_handle<'a>(handle: *const c_void) -> &'a Self;
}

/// A table `O` for handles of objects of type `T`. The closure in a slot is called with the object
/// and the other arguments of C. A slot without a closure returns `-FI_ENOSYS`.
///
/// C calls the closures under the conditions of the man page of each function.
#[derive(Debug)]
#[repr(transparent)]
pub struct Table<O, T> {
    /// The table, which handles of `T` may point to.
    pub ops: O,
    object: PhantomData<fn(&T)>,
}

impl<O, T> Table<O, T> {
    /// A table for handles of `T`.
    pub(crate) const fn new(ops: O) -> Self {
        let object = PhantomData;
        Self { ops, object }
    }
}

/// Makes a closure of a type without captures.
///
/// # Safety
/// A closure of this type exists.
pub(crate) unsafe fn closure<F: Copy>() -> F {
    const { assert!(size_of::<F>() == 0, "functions of tables capture nothing") };
    // SAFETY: a value of no size can be read at any address. The caller vouches that the type has a
    // value, and a `Copy` type permits another one.
    unsafe { NonNull::<F>::dangling().read() }
}

/// The return type of a function that fails.
pub trait ErrorReturn {
    /// The return value for an error number.
    fn from_errno(errno: c_int) -> Self;
}

impl ErrorReturn for c_int {
    fn from_errno(errno: c_int) -> Self {
        -errno
    }
}

impl ErrorReturn for isize {
    fn from_errno(errno: c_int) -> Self {
        -(errno as Self)
    }
}

/// The value of a counter cannot express an error: the function returns 0.
impl ErrorReturn for u64 {
    fn from_errno(_: c_int) -> Self {
        0
    }
}

/// A function that returns a text returns NULL for an error.
impl ErrorReturn for *const c_char {
    fn from_errno(_: c_int) -> Self {
        std::ptr::null()
    }
}

/// Declares tables of functions, each with its size. The first parameter of every function is the
/// handle of an object.
macro_rules! c_tables {
    ($($(#[$meta:meta])* $name:ident = $size:literal {
        $($slot:ident($handle:ident: $object:ty $(, $arg:ident: $kind:ty)* $(,)?) -> $ret:ty,)*
    })+) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        #[expect(missing_docs, reason = "the names are the man pages'")]
        pub struct $name {
            pub size: usize,
            $(pub $slot: Option<unsafe extern "C" fn($object $(, $kind)*) -> $ret>,)*
        }

        const _: () = assert!(size_of::<$name>() == $size);

        impl $name {
            /// A table whose every slot returns this error number.
            pub const fn failing<const ERRNO: std::ffi::c_int>() -> Self {
                Self {
                    size: size_of::<Self>(),
                    $($slot: Some({
                        extern "C" fn fail<const ERRNO: std::ffi::c_int>(
                            _: $object $(, _: $kind)*
                        ) -> $ret {
                            <$ret as $crate::declare::table::ErrorReturn>::from_errno(ERRNO)
                        }
                        fail::<ERRNO>
                    }),)*
                }
            }

            /// The slots' names and byte offsets, in their order.
            pub const MEMBERS: &[(&str, usize)] =
                &[$((stringify!($slot), std::mem::offset_of!($name, $slot)),)*];
        }

        #[expect(missing_docs, reason = "the names are the man pages'")]
        #[expect(unsafe_code, reason = "functions that C calls")]
        impl<T: $crate::declare::table::FromHandle> $crate::declare::table::Table<$name, T> {
            /// A table whose every slot returns `-FI_ENOSYS`.
            pub const fn empty() -> Self {
                Self::new($name::failing::<{ libc::ENOSYS }>())
            }

            $(pub const fn $slot<F: Fn(&T $(, $kind)*) -> $ret + Copy>(mut self, _: F) -> Self {
                unsafe extern "C" fn call<
                    T: $crate::declare::table::FromHandle,
                    F: Fn(&T $(, $kind)*) -> $ret + Copy,
                >($handle: $object $(, $arg: $kind)*) -> $ret {
                    // SAFETY: C passes a handle to functions of its own tables only, and this table
                    // is for handles of `T`.
                    let object = unsafe { T::from_handle($handle.cast()) };
                    // SAFETY: the slot was filled with a closure of type `F`.
                    let function: F = unsafe { $crate::declare::table::closure() };
                    function(object $(, $arg)*)
                }
                self.ops.$slot = Some(call::<T, F>);
                self
            })*
        }
    )+};
}

pub(crate) use c_tables;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fid, FidCntr, Handle, OpsCntr};

    #[repr(C)]
    struct Counter {
        handle: FidCntr,
        value: u64,
    }

    // SAFETY: the handle is the first member.
    unsafe impl FromHandle for Counter {
        unsafe fn from_handle<'a>(handle: *const c_void) -> &'a Self {
            // SAFETY: passed on from the caller.
            unsafe { &*handle.cast() }
        }
    }

    static TABLE: Table<OpsCntr, Counter> = Table::<OpsCntr, Counter>::empty()
        .read(|cntr| cntr.value)
        .wait(|cntr, threshold, timeout| i32::from(cntr.value >= threshold) + timeout);

    fn counter(handle: fn(Fid) -> FidCntr) -> Counter {
        let fid = Fid {
            fclass: 0,
            context: std::ptr::null_mut(),
            ops: std::ptr::null(),
        };
        Counter {
            handle: handle(fid),
            value: 7,
        }
    }

    #[test]
    fn a_closure_in_a_slot_gets_the_object_and_the_arguments() {
        let mut cntr = counter(|fid| FidCntr {
            fid,
            ops: &TABLE.ops,
        });
        let handle = &raw mut cntr;
        let (read, wait) = (TABLE.ops.read.unwrap(), TABLE.ops.wait.unwrap());
        // SAFETY: the handle of a counter.
        assert_eq!(unsafe { read(handle.cast()) }, 7);
        // SAFETY: as above.
        let waited = [7, 8].map(|threshold| unsafe { wait(handle.cast(), threshold, 20) });
        assert_eq!(waited, [21, 20]);
    }

    #[test]
    fn unfilled_slots_and_tables_of_closed_handles_fail() {
        let mut cntr = counter(FidCntr::failing::<{ libc::EBADF }>);
        let handle = &raw mut cntr;
        // SAFETY: a failing handle points to a static table.
        let closed = unsafe { &*cntr.handle.ops };
        for (ops, errno) in [(&TABLE.ops, libc::ENOSYS), (closed, libc::EBADF)] {
            // SAFETY: the handle of a counter.
            assert_eq!(unsafe { ops.add.unwrap()(handle.cast(), 1) }, -errno);
        }
        // SAFETY: as above.
        assert_eq!(unsafe { closed.read.unwrap()(handle.cast()) }, 0);
    }
}
