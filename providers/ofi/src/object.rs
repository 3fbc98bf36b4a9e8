//! Handles: objects of the library, which are open until they are dropped, and are called through
//! their tables.

#![expect(unsafe_code, reason = "handles of another library")]

use std::ffi::{c_int, c_void};
use std::fmt;
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};

use selvedge::{AddrFormat, Address, Errno, Error, Result, wait};
use selvedge_abi::{
    Fid, FidAv, FidCntr, FidCq, FidDomain, FidEp, FidEq, FidFabric, FidMc, FidMr, FidPep, addr,
    number,
};
use selvedge_kit::fork_guard::ForkGuard;

use crate::library::{Library, ReturnCode, errno_of};

/// Calls a slot of a table with the object and more arguments. If the table is missing or too
/// short, the call fails like libfabric's inline functions.
///
/// A block with a call has several unsafe operations: the call reads the object, its table and a
/// function of the table.
macro_rules! call {
    ($object:expr, $table:expr, $slot:ident $(, $arg:expr)* $(,)?) => {{
        let slot = match $table {
            table if table.is_null() => None,
            table => {
                let offset = (&raw const (*table).$slot).addr().wrapping_sub(table.addr());
                if offset < (*table).size { (*table).$slot } else { None }
            }
        };
        match slot {
            Some(function) => function($object.cast() $(, $arg)*),
            None => selvedge_abi::ErrorReturn::from_errno(libc::ENOSYS),
        }
    }};
}
pub(crate) use call;

/// A structure that begins with its `struct fid`.
///
/// # Safety
/// The type begins with a `struct fid`.
pub(crate) unsafe trait Object {}

macro_rules! objects {
    ($($name:ident)+) => {
        // SAFETY: in libfabric's headers each of these begins with a fid.
        $(unsafe impl Object for $name {})+
    };
}
objects!(FidAv FidCntr FidCq FidDomain FidEp FidEq FidFabric FidMc FidMr FidPep);

/// An object of the library, closed when it is dropped. A forked child does not close the parent's
/// objects.
pub(crate) struct Handle<T: Object> {
    object: NonNull<T>,
    fork_guard: ForkGuard,
    library: &'static Library,
}

// SAFETY: the library opens thread-safe objects, unless the application has promised to serialize
// its threads.
unsafe impl<T: Object> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T: Object> Sync for Handle<T> {}

impl<T: Object> Handle<T> {
    /// Opens an object; `open` calls the library, which writes the pointer.
    ///
    /// # Errors
    /// The library's error with its text; `description` names the object.
    pub(crate) fn open(
        library: &'static Library,
        description: impl fmt::Display,
        open: impl FnOnce(&mut *mut T) -> c_int,
    ) -> Result<Self, Error> {
        let mut object = ptr::null_mut();
        let code = open(&mut object);
        match NonNull::new(object) {
            Some(object) if code == 0 => Ok(Self {
                object,
                fork_guard: ForkGuard::current(),
                library,
            }),
            _ if code == 0 => Err(library.call_error(description, -libc::ENOSYS)),
            _ => Err(library.call_error(description, code)),
        }
    }

    /// The pointer to the object, for a call.
    ///
    /// # Errors
    /// [`Errno::BadF`] in a forked child.
    #[inline]
    pub(crate) fn ptr(&self) -> Result<*mut T> {
        self.fork_guard.check()?;
        Ok(self.object.as_ptr())
    }

    /// The same pointer as a fid.
    ///
    /// # Errors
    /// As [`Self::ptr`].
    pub(crate) fn fid(&self) -> Result<*mut Fid> {
        self.ptr().map(<*mut T>::cast)
    }

    /// The pointer to the object, for a call that returns [`Error`].
    ///
    /// # Errors
    /// As [`Self::ptr`].
    pub(crate) fn ptr_or_error(&self) -> Result<*mut T, Error> {
        self.ptr().map_err(foreign_process)
    }

    /// The same pointer as a fid.
    ///
    /// # Errors
    /// As [`Self::ptr`].
    pub(crate) fn fid_or_error(&self) -> Result<*mut Fid, Error> {
        self.fid().map_err(foreign_process)
    }

    /// A number that no other open object has.
    pub(crate) fn id(&self) -> usize {
        self.object.as_ptr().addr()
    }
}

impl<T: Object> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:?}", std::any::type_name::<T>(), self.object)
    }
}

impl<T: Object> Drop for Handle<T> {
    #[expect(clippy::multiple_unsafe_ops_per_block, reason = "explained at `call!`")]
    fn drop(&mut self) {
        let Ok(fid) = self.fid() else {
            return;
        };
        // SAFETY: the object is open, and no other user is left: objects that were opened from it
        // keep it open.
        let code = unsafe { call!(fid, (*fid).ops, close) };
        if code != 0 {
            let kind = std::any::type_name::<T>();
            let error = self
                .library
                .call_error(format_args!("closing {kind}"), code);
            log::warn!(target: "selvedge::ofi::core", "{error}");
        }
    }
}

/// Converts a return code to a count, or an error.
#[inline]
pub(crate) fn to_count(code: isize) -> Result<usize> {
    usize::try_from(code).map_err(|_| errno_of(code))
}

/// Converts a return code to success, or an error.
#[inline]
pub(crate) fn to_result(code: impl ReturnCode) -> Result {
    match code.raw() {
        0.. => Ok(()),
        negative => Err(errno_of(negative)),
    }
}

fn foreign_process(errno: Errno) -> Error {
    let message =
        "the object belongs to the parent process of a fork; open another one in this process";
    Error::new(errno, message)
}

/// The milliseconds of a timeout for the library; -1 for none.
pub(crate) fn millis(timeout: Option<std::time::Duration>) -> c_int {
    timeout.map_or(-1, |time| {
        let whole = time.as_nanos().div_ceil(1_000_000);
        c_int::try_from(whole).unwrap_or(c_int::MAX)
    })
}

/// Returns the descriptor of a queue or counter that was opened with [`wait::Object::Fd`].
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "explained at `call!`")]
pub(crate) fn wait_descriptor(fid: *mut Fid, wait_obj: wait::Object) -> Option<RawFd> {
    if wait_obj != wait::Object::Fd {
        return None;
    }
    let mut descriptor: c_int = -1;
    let arg = (&raw mut descriptor).cast();
    // SAFETY: the object is open, and the command writes a descriptor to `arg`.
    let code = unsafe { call!(fid, (*fid).ops, control, number::control::GETWAIT, arg) };
    (to_result(code).is_ok() && descriptor >= 0).then_some(descriptor)
}

/// The size of the first buffer for an address, in bytes.
const NAME_LEN: usize = 256;

/// Reads an address with `getname`, which calls the library.
pub(crate) fn read_address(
    format: AddrFormat,
    getname: impl Fn(*mut c_void, *mut usize) -> c_int,
) -> Result<Address> {
    let mut bytes = vec![0_u8; NAME_LEN];
    loop {
        let mut len = bytes.len();
        let code = getname(bytes.as_mut_ptr().cast(), &raw mut len);
        match to_result(code) {
            Err(Errno::TooSmall) if len > bytes.len() => bytes.resize(len, 0),
            code => {
                code?;
                bytes.truncate(len);
                return addr::decode(&bytes, format);
            }
        }
    }
}
