//! Opens, finalizes and closes contexts.

#![expect(unsafe_code, reason = "pointers of C")]

use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use selvedge_cheetah::core::Core;
use selvedge_cheetah::{Config, Error, Result};

use crate::status::{Context, count, guarded};

/// # Safety
/// `argc` and `argv` are laid out like those of `main` and can be written; `context` can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn cheetah_open(
    argc: *mut c_int,
    argv: *mut *mut *mut c_char,
    context: *mut *mut Context,
) -> c_int {
    guarded(|| {
        if argc.is_null() || argv.is_null() || context.is_null() {
            return Err(Error::Usage(
                "cheetah_open: argc, argv or context is NULL".to_owned(),
            ));
        }
        selvedge::log::init().map_err(|error| Error::Usage(error.to_string()))?;
        // SAFETY: the pointer is not null, and the caller's promise.
        let arg_count = unsafe { *argc };
        // SAFETY: as above.
        let arg_list = unsafe { *argv };
        let arg_count = usize::try_from(arg_count).unwrap_or(0);
        // SAFETY: `argv` has `argc` strings.
        let pointers = unsafe { pointers(arg_list, arg_count) };
        // SAFETY: each pointer is to a string.
        let mut args: Vec<_> = pointers.iter().map(|&arg| unsafe { text(arg) }).collect();
        let all_args = args.clone();
        let config = Config::from_args(&mut args)?;
        let core = Core::open(&config)?;
        let kept = kept_indices(&all_args, &args);
        for (index, &index_before) in kept.iter().enumerate() {
            // SAFETY: at most `argc` arguments are kept.
            unsafe { arg_list.wrapping_add(index).write(pointers[index_before]) };
        }
        if kept.len() < arg_count {
            // SAFETY: as above.
            unsafe { arg_list.wrapping_add(kept.len()).write(ptr::null_mut()) };
        }
        // SAFETY: the pointer is not null, and the caller's promise.
        unsafe { *argc = count(kept.len()) };
        let handle = Box::new(Context {
            core,
            special: std::sync::Mutex::default(),
        });
        // SAFETY: the pointer is not null, and the caller's promise.
        unsafe { *context = Box::into_raw(handle) };
        Ok(0)
    })
}

/// # Safety
/// `list` has `len` pointers.
unsafe fn pointers(list: *mut *mut c_char, len: usize) -> Vec<*mut c_char> {
    if list.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(list, len) }.to_vec()
}

/// # Safety
/// `arg` is a string or null.
unsafe fn text(arg: *mut c_char) -> String {
    if arg.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(arg) }
        .to_string_lossy()
        .into_owned()
}

/// The indices in `all` of the arguments that remain.
fn kept_indices(all: &[String], remaining: &[String]) -> Vec<usize> {
    let mut start = 0;
    let mut indices = Vec::new();
    for arg in remaining {
        let offset = all[start..].iter().position(|other| other == arg);
        if let Some(offset) = offset {
            indices.push(start + offset);
            start += offset + 1;
        }
    }
    indices
}

/// Borrows the context at a pointer of C.
///
/// # Errors
/// [`Error::Garbled`] for null.
///
/// # Safety
/// `context` is null, or was opened and is not closed for `'a`.
pub(crate) unsafe fn open<'a>(context: *const Context) -> Result<&'a Context> {
    // SAFETY: the caller's promise.
    let context = unsafe { context.as_ref() };
    context.ok_or_else(|| {
        Error::Garbled("the context is NULL; pass a context from cheetah_open".to_owned())
    })
}

/// # Safety
/// `context` is null or was opened, and is not used any more.
#[unsafe(no_mangle)]
unsafe extern "C" fn cheetah_close(context: *mut Context) {
    if context.is_null() {
        return;
    }
    // SAFETY: `cheetah_open` allocated the context, and the caller closes it once.
    let context = unsafe { Box::from_raw(context) };
    // The function returns nothing, so a panic cannot be reported.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        context.core.abort();
        drop(context);
    }));
}

/// # Safety
/// `context` is open.
#[unsafe(no_mangle)]
unsafe extern "C" fn cheetah_finalize_step(context: *mut Context) -> c_int {
    // SAFETY: the caller's promise.
    guarded(|| Ok(unsafe { open(context) }?.core.finalize_step()?.into()))
}

/// # Safety
/// `context` is open.
#[unsafe(no_mangle)]
unsafe extern "C" fn cheetah_wait_for_children(context: *mut Context) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let core = &unsafe { open(context) }?.core;
        core.wait_for_children().map(|()| 0)
    })
}

/// # Safety
/// `context` is open.
#[unsafe(no_mangle)]
unsafe extern "C" fn cheetah_is_finalized(context: *const Context) -> c_int {
    // SAFETY: the caller's promise.
    guarded(|| Ok(unsafe { open(context) }?.core.is_finalized().into()))
}

/// # Safety
/// `context` is open.
#[unsafe(no_mangle)]
unsafe extern "C" fn cheetah_mycontext(context: *const Context) -> c_int {
    // SAFETY: the caller's promise.
    guarded(|| Ok(count(unsafe { open(context) }?.core.mycontext())))
}

/// # Safety
/// `context` is open.
#[unsafe(no_mangle)]
unsafe extern "C" fn cheetah_ncontexts(context: *const Context) -> c_int {
    // SAFETY: the caller's promise.
    guarded(|| Ok(count(unsafe { open(context) }?.core.ncontexts())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_arguments_keep_their_pointers() {
        let words = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
        let all = words("p a -np 2 a -shmem b");
        assert_eq!(kept_indices(&all, &words("p a a b")), [0, 1, 4, 6]);
    }
}
