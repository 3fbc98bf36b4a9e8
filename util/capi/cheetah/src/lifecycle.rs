//! Contexts: opening, finalizing and closing.

#![expect(unsafe_code, reason = "pointers of C")]

use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use selvedge_cheetah::core::Core;
use selvedge_cheetah::{Config, Error, Result};

use crate::status::{Context, count, guarded};

/// # Safety
/// `argc` and `argv` are those of `main`, or laid out like them, and can be written; `context` can
/// be written.
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
        // SAFETY: not null, and the caller's promise.
        let arg_count = unsafe { *argc };
        // SAFETY: as above.
        let list = unsafe { *argv };
        let arg_count = usize::try_from(arg_count).unwrap_or(0);
        // SAFETY: `argv` has `argc` strings.
        let pointers = unsafe { pointers(list, arg_count) };
        // SAFETY: each is a string.
        let mut args: Vec<_> = pointers.iter().map(|&arg| unsafe { text(arg) }).collect();
        let all = args.clone();
        let config = Config::from_args(&mut args)?;
        let core = Core::open(&config)?;
        let kept = kept(&all, &args);
        for (index, &from) in kept.iter().enumerate() {
            // SAFETY: no more arguments are kept than there were.
            unsafe { list.wrapping_add(index).write(pointers[from]) };
        }
        if kept.len() < arg_count {
            // SAFETY: as above.
            unsafe { list.wrapping_add(kept.len()).write(ptr::null_mut()) };
        }
        // SAFETY: not null, and the caller's promise.
        unsafe { *argc = count(kept.len()) };
        let opened = Box::new(Context {
            core,
            special: std::sync::Mutex::default(),
        });
        // SAFETY: not null, and the caller's promise.
        unsafe { *context = Box::into_raw(opened) };
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

/// The former indices of the remaining arguments.
fn kept(all: &[String], left: &[String]) -> Vec<usize> {
    let mut from = 0;
    let mut kept = Vec::new();
    for arg in left {
        let at = all[from..].iter().position(|other| other == arg);
        if let Some(at) = at {
            kept.push(from + at);
            from += at + 1;
        }
    }
    kept
}

/// The context at a pointer of C.
///
/// # Safety
/// It is null, or was opened and is not closed.
pub(crate) unsafe fn open<'a>(context: *const Context) -> Result<&'a Context> {
    // SAFETY: the caller's promise.
    let context = unsafe { context.as_ref() };
    context
        .ok_or_else(|| Error::Garbled("the context is NULL; pass one of cheetah_open".to_owned()))
}

/// # Safety
/// `context` is null or was opened, and is not used any more.
#[unsafe(no_mangle)]
unsafe extern "C" fn cheetah_close(context: *mut Context) {
    if context.is_null() {
        return;
    }
    // SAFETY: allocated by `cheetah_open`, and closed once.
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
        assert_eq!(kept(&all, &words("p a a b")), [0, 1, 4, 6]);
    }
}
