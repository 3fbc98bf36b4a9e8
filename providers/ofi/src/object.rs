//! Objects of the library: open until they are dropped, called through their tables.

#![expect(unsafe_code, reason = "handles of another library")]

use std::ffi::c_int;
use std::fmt;
use std::ptr::{self, NonNull};

use selvedge::{Errno, Error, Result};
use selvedge_abi::{
    Fid, FidAv, FidCntr, FidCq, FidDomain, FidEp, FidEq, FidFabric, FidMc, FidMr, FidPep,
};
use selvedge_kit::fork_guard::ForkGuard;

use crate::library::{Answer, Library, number};

/// Calls a slot of a table with the object and more arguments. A table that there is not, or that
/// does not go as far, answers as libfabric's headers do.
macro_rules! call {
    ($object:expr, $table:expr, $slot:ident $(, $arg:expr)* $(,)?) => {{
        let slot = match $table {
            table if table.is_null() => None,
            table => {
                let place = (&raw const (*table).$slot).addr().wrapping_sub(table.addr());
                if place < (*table).size { (*table).$slot } else { None }
            }
        };
        match slot {
            Some(function) => function($object.cast() $(, $arg)*),
            None => selvedge_abi::Refusal::of(libc::ENOSYS),
        }
    }};
}
pub(crate) use call;

/// A structure that begins with its `struct fid`.
///
/// # Safety
/// It does.
pub(crate) unsafe trait Object {}

macro_rules! objects {
    ($($name:ident)+) => {
        // SAFETY: libfabric's headers have the fid at the beginning of each.
        $(unsafe impl Object for $name {})+
    };
}
objects!(FidAv FidCntr FidCq FidDomain FidEp FidEq FidFabric FidMc FidMr FidPep);

/// An object of the library, closed when it is dropped. Children of the process that opened it leave
/// it alone.
pub(crate) struct Handle<T: Object> {
    at: NonNull<T>,
    fork_guard: ForkGuard,
    library: &'static Library,
}

// SAFETY: the library was asked for objects that any thread may use, unless the application has
// promised to keep its threads apart.
unsafe impl<T: Object> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T: Object> Sync for Handle<T> {}

impl<T: Object> Handle<T> {
    /// Opens one: `open` has the library fill in where it is.
    ///
    /// # Errors
    /// The library's, with its text; `what` says what it is.
    pub(crate) fn open(
        library: &'static Library,
        what: impl fmt::Display,
        open: impl FnOnce(&mut *mut T) -> c_int,
    ) -> Result<Self, Error> {
        let mut at = ptr::null_mut();
        let answer = open(&mut at);
        match NonNull::new(at) {
            Some(at) if answer == 0 => Ok(Self {
                at,
                fork_guard: ForkGuard::current(),
                library,
            }),
            _ if answer == 0 => Err(library.trouble(what, -libc::ENOSYS)),
            _ => Err(library.trouble(what, answer)),
        }
    }

    /// Where it is, for a call.
    ///
    /// # Errors
    /// [`Errno::BadF`] in a child of the process that opened it.
    #[inline]
    pub(crate) fn at(&self) -> Result<*mut T> {
        self.fork_guard.check()?;
        Ok(self.at.as_ptr())
    }

    /// The same, of what every object begins with.
    ///
    /// # Errors
    /// As [`Self::at`].
    pub(crate) fn fid(&self) -> Result<*mut Fid> {
        self.at().map(<*mut T>::cast)
    }

    /// Where it is, for opening something from it.
    ///
    /// # Errors
    /// As [`Self::at`].
    pub(crate) fn parent(&self) -> Result<*mut T, Error> {
        self.at().map_err(forked)
    }

    /// The same, of what every object begins with.
    ///
    /// # Errors
    /// As [`Self::at`].
    pub(crate) fn own_fid(&self) -> Result<*mut Fid, Error> {
        self.fid().map_err(forked)
    }

    /// What tells it from all others that are open.
    pub(crate) fn name(&self) -> usize {
        self.at.as_ptr().addr()
    }
}

impl<T: Object> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:?}", std::any::type_name::<T>(), self.at)
    }
}

impl<T: Object> Drop for Handle<T> {
    #[expect(
        clippy::multiple_unsafe_ops_per_block,
        reason = "one argument for an object, its table and the call"
    )]
    fn drop(&mut self) {
        let Ok(fid) = self.fid() else {
            return;
        };
        // SAFETY: it is open, and nobody uses it any more: what was opened from it keeps it.
        let answer = unsafe { call!(fid, (*fid).ops, close) };
        if answer != 0 {
            let kind = std::any::type_name::<T>();
            let error = self.library.trouble(format_args!("closing {kind}"), answer);
            log::warn!(target: "selvedge::ofi::core", "{error}");
        }
    }
}

/// A count, or an error.
#[inline]
pub(crate) fn counted(answer: isize) -> Result<usize> {
    usize::try_from(answer).map_err(|_| number(answer))
}

/// Nothing, or an error.
#[inline]
pub(crate) fn done(answer: impl Answer) -> Result {
    match answer.raw() {
        0.. => Ok(()),
        negative => Err(number(negative)),
    }
}

fn forked(errno: Errno) -> Error {
    let what = "this is an object of the process that this one was forked from";
    Error::new(errno, what)
}

/// Milliseconds, as the library counts time; without end for none.
pub(crate) fn millis(timeout: Option<std::time::Duration>) -> c_int {
    timeout.map_or(-1, |time| {
        let whole = time.as_nanos().div_ceil(1_000_000);
        c_int::try_from(whole).unwrap_or(c_int::MAX)
    })
}
