//! Functions, handlers, and their messages.

#![expect(unsafe_code, reason = "pointers of C")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use selvedge_cheetah::core::{Core, Message};
use selvedge_cheetah::{BellName, Error, Port, Result};

use crate::lifecycle::open;
use crate::status::{Context, check_span, count, guarded, index_of};

/// `struct cheetah_message`.
#[repr(C)]
pub(crate) struct CMessage {
    from: c_int,
    kind: c_int,
    id: c_int,
    tag: c_int,
    bytes: *mut c_void,
    len: usize,
    handle: *mut c_void,
}

const FUNCTION: c_int = 0;
const CHANNEL: c_int = 1;

/// The port of a kind, a number and a tag of C.
pub(crate) fn port(core: &Core, kind: c_int, id: c_int, tag: c_int) -> Result<Port> {
    let id = index_of("function or handler", id)? as u32;
    match kind {
        FUNCTION => Ok(Port::Function(id)),
        CHANNEL if id < core.channels() => Ok(Port::Channel { channel: id, tag }),
        CHANNEL => Err(Error::Garbled(format!(
            "message for handler {id}: this context has not created it; create handlers in the same \
             order in all contexts"
        ))),
        _ => Err(Error::Garbled(format!(
            "message of kind {kind}: expected 0 (function) or 1 (handler)"
        ))),
    }
}

/// # Safety
/// `context` is open; `message` can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn cheetah_next(context: *mut Context, message: *mut CMessage) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let core = &unsafe { open(context) }?.core;
        let Some(next) = core.next() else {
            return Ok(0);
        };
        let (kind, id, tag) = match next.port() {
            Port::Function(id) => (FUNCTION, id, 0),
            Port::Channel { channel, tag } => (CHANNEL, channel, tag),
        };
        let (from, len) = (count(next.from()), next.bytes().len());
        let handle = Box::into_raw(Box::new(next));
        let pulled = CMessage {
            from,
            kind,
            id: id.cast_signed(),
            tag,
            // SAFETY: allocated just now, and not shared yet.
            bytes: unsafe { &mut *handle }.base().cast(),
            len,
            handle: handle.cast(),
        };
        // SAFETY: the caller's promise.
        unsafe { message.write(pulled) };
        Ok(1)
    })
}

/// # Safety
/// `message` was pulled, and is released once.
#[unsafe(no_mangle)]
unsafe extern "C" fn cheetah_release(message: *mut CMessage) {
    // SAFETY: the caller's promise.
    let handle = unsafe { message.as_mut() }.map(|message| &mut message.handle);
    let handle = handle.map_or(ptr::null_mut(), |handle| {
        std::mem::replace(handle, ptr::null_mut())
    });
    if !handle.is_null() {
        // SAFETY: allocated by `cheetah_next`.
        drop(unsafe { Box::from_raw(handle.cast::<Message>()) });
    }
}

/// # Safety
/// `context` is open; `name` is a string or null, `code` a function or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn cheetah_register(
    context: *mut Context,
    name: *const c_char,
    code: *const c_void,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let name = unsafe { name_of(name, code) };
        // SAFETY: the caller's promise.
        let id = unsafe { open(context) }?.core.register(&name)?;
        Ok(id.cast_signed())
    })
}

/// # Safety
/// `context` is open; `name` is a string or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn cheetah_channel(context: *mut Context, name: *const c_char) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let name = unsafe { name_of(name, ptr::null()) };
        // SAFETY: the caller's promise.
        let id = unsafe { open(context) }?.core.channel(&name)?;
        Ok(id.cast_signed())
    })
}

/// The name that identifies a function or handler in all contexts: `name`, or the file and offset
/// of `code`, which are the same in every process that runs the same files.
///
/// # Safety
/// As [`cheetah_register`].
unsafe fn name_of(name: *const c_char, code: *const c_void) -> String {
    if !name.is_null() {
        // SAFETY: the caller's promise.
        return unsafe { CStr::from_ptr(name) }
            .to_string_lossy()
            .into_owned();
    }
    let mut dl_info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr(3) accepts any address.
    if code.is_null() || unsafe { libc::dladdr(code, dl_info.as_mut_ptr()) } == 0 {
        return "without a name".to_owned();
    }
    // SAFETY: zeros are a valid `Dl_info`, and the call has filled it.
    let dl_info = unsafe { dl_info.assume_init() };
    let offset = code.addr().wrapping_sub(dl_info.dli_fbase.addr());
    let file = if dl_info.dli_fname.is_null() {
        String::new()
    } else {
        // SAFETY: the loader's string, which ends with a zero.
        unsafe { CStr::from_ptr(dl_info.dli_fname) }
            .to_string_lossy()
            .into_owned()
    };
    let file = file.rsplit('/').next().unwrap_or_default();
    if dl_info.dli_sname.is_null() {
        format!("{file}+{offset:#x}")
    } else {
        // SAFETY: as above.
        let symbol = unsafe { CStr::from_ptr(dl_info.dli_sname) };
        format!("{} ({file}+{offset:#x})", symbol.to_string_lossy())
    }
}

/// # Safety
/// `context` is open.
#[unsafe(no_mangle)]
unsafe extern "C" fn cheetah_no_function(context: *mut Context, caller: c_int, id: c_int) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let core = &unsafe { open(context) }?.core;
        core.report_no_function(index_of("context", caller)?, id.cast_unsigned());
        Ok(0)
    })
}

/// # Safety
/// `context` is open. The bytes are valid for reads during the call; with a bell, they stay valid
/// and unwritten until the bell has rung.
#[unsafe(no_mangle)]
unsafe extern "C" fn cheetah_ainvoke(
    context: *mut Context,
    to: c_int,
    id: c_int,
    bytes: *const c_void,
    len: usize,
    bell: *mut c_int,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let core = &unsafe { open(context) }?.core;
        check_span("ainvoke", bytes, len)?;
        let (to, port) = (index_of("context", to)?, port(core, FUNCTION, id, 0)?);
        if id.cast_unsigned() >= core.functions() {
            return Err(Error::NoFunction {
                caller: core.mycontext(),
                target: to,
                id: id.cast_unsigned(),
                registered: core.functions(),
            });
        }
        if bell.is_null() {
            // SAFETY: the caller's promise.
            core.invoke(to, port, unsafe { slice(bytes, len) })?;
        } else {
            let bell = BellName::at(bell.expose_provenance());
            // SAFETY: the caller's promise.
            unsafe { core.invoke_no_copy(to, port, (bytes.cast(), len), bell) }?;
        }
        Ok(0)
    })
}

/// # Safety
/// `context` is open; the bytes are valid for reads.
#[unsafe(no_mangle)]
unsafe extern "C" fn cheetah_send(
    context: *mut Context,
    to: c_int,
    channel: c_int,
    tag: c_int,
    bytes: *const c_void,
    len: usize,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let core = &unsafe { open(context) }?.core;
        check_span("send", bytes, len)?;
        let port = port(core, CHANNEL, channel, tag)?;
        // SAFETY: the caller's promise.
        let bytes = unsafe { slice(bytes, len) };
        core.invoke(index_of("context", to)?, port, bytes)?;
        Ok(0)
    })
}

/// # Safety
/// The bytes are valid for reads and not written for `'a`. An empty slice may be at null.
unsafe fn slice<'a>(bytes: *const c_void, len: usize) -> &'a [u8] {
    match len {
        0 => &[],
        // SAFETY: the caller's promise.
        _ => unsafe { std::slice::from_raw_parts(bytes.cast(), len) },
    }
}
