//! The handlers that write the pages of the process to a file, `selvedge-PID.flight`, at a crash or
//! at a signal that the user chose.
//!
//! A handler calls only `getpid`, `unlink`, `open`, `write`, `close`, `sigaction` and `raise`. A
//! handler takes no lock and allocates no memory, and passes the address of each page to `write`,
//! which fails if the page was unmapped meanwhile. No handler is installed unless the environment
//! requests it.

#![expect(unsafe_code, reason = "signal handlers, and the system calls in them")]

use std::ffi::{c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering};

use selvedge::{Errno, Error};

use super::Settings;
use super::layout::PageKind;

/// The largest number of pages of one kind that are written out.
const MAX_PAGES: usize = 256;

type PageSlots = [AtomicPtr<AtomicU64>; MAX_PAGES];
/// The registered pages by kind, in the order of [`PageKind::ALL`].
static PAGES: [PageSlots; PageKind::ALL.len()] =
    [const { [const { AtomicPtr::new(ptr::null_mut()) }; MAX_PAGES] }; PageKind::ALL.len()];
/// The name of the file, in a static because the stack of a handler may be as small as 8 KiB, and
/// also holds the processor's registers.
static FILE_NAME: [AtomicU8; PATH_MAX] = [const { AtomicU8::new(0) }; PATH_MAX];
/// The offset of the process ID in the name; unset until handlers are requested.
static PID_OFFSET: OnceLock<usize> = OnceLock::new();

/// The signals of a crash.
const CRASH_SIGNALS: [c_int; 5] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGABRT,
];

/// The actions before installation, by the number of the signal.
static PREVIOUS_ACTIONS: [OnceLock<libc::sigaction>; 65] = [const { OnceLock::new() }; 65];

/// Registers a page to be written out, and returns the page's slot; `None` if all slots are taken.
pub(super) fn register(kind: PageKind, words: &[AtomicU64]) -> Option<usize> {
    let page = words.as_ptr().cast_mut();
    PAGES[kind as usize].iter().position(|slot| {
        let free = ptr::null_mut();
        let taken = slot.compare_exchange(free, page, Ordering::Release, Ordering::Relaxed);
        taken.is_ok()
    })
}

/// Undoes [`register`].
pub(super) fn unregister(kind: PageKind, slot: usize) {
    PAGES[kind as usize][slot].store(ptr::null_mut(), Ordering::Relaxed);
}

/// Installs the requested handlers, once in a process.
///
/// # Errors
/// [`Errno::Inval`] for a directory that cannot be part of a file name; the system's error for a
/// signal that cannot be caught.
pub fn install(settings: &Settings) -> Result<(), Error> {
    let crash_signals = CRASH_SIGNALS.iter().filter(|_| settings.crash);
    let requested = settings.signal.map(|signal| signal as c_int);
    if !settings.crash && requested.is_none() {
        return Ok(());
    }
    let folder = settings.dir.as_os_str().as_bytes();
    if folder.contains(&0) || folder.len() > PATH_MAX - MAX_SUFFIX {
        return Err(Error::new(
            Errno::Inval,
            "FI_SIGHT_DIR: the name of the directory is too long or has a zero byte",
        ));
    }
    PID_OFFSET.get_or_init(|| append(append(0, folder), b"/selvedge-"));
    for &signal in crash_signals {
        install_handler(signal, on_crash)?;
    }
    match requested {
        Some(signal) if has_no_handler(signal) => install_handler(signal, on_request),
        _ => Ok(()),
    }
}

/// Whether the program has no handler for a signal. A handler of the program must not be replaced.
fn has_no_handler(signal: c_int) -> bool {
    let request_handler = on_request as *const () as usize;
    let free = [libc::SIG_DFL, libc::SIG_IGN, request_handler];
    let has_no_handler = free.contains(&current_action(signal).sa_sigaction);
    if !has_no_handler {
        log::warn!(
            target: "selvedge::core::core",
            "FI_SIGHT_SIGNAL: the program has its own handler for signal {signal}, which stays; choose another signal"
        );
    }
    has_no_handler
}

/// The present action of a signal.
fn current_action(signal: c_int) -> libc::sigaction {
    // SAFETY: a structure of integers and an optional function.
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: reads the action only, and writes it to a structure of its type.
    unsafe { libc::sigaction(signal, ptr::null(), &raw mut old) };
    old
}

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// Installs a handler, unless a handler of this module is installed.
fn install_handler(signal: c_int, handler: Handler) -> Result<(), Error> {
    let Some(previous) = usize::try_from(signal)
        .ok()
        .and_then(|number| PREVIOUS_ACTIONS.get(number))
    else {
        return Err(Error::new(
            Errno::Inval,
            format!("{signal} is not the number of a signal"),
        ));
    };
    if previous.get().is_some() {
        return Ok(());
    }
    // SAFETY: a structure of integers and an optional function.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    // A handler that interrupts another one would need twice the stack.
    // SAFETY: writes a signal set on the stack.
    unsafe { libc::sigfillset(&raw mut action.sa_mask) };
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    if previous.set(current_action(signal)).is_err() {
        return Ok(());
    }
    // SAFETY: the handler does only what a handler may, and lives as long as the process.
    let result = unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
    match result {
        0 => Ok(()),
        _ => {
            let cause = std::io::Error::last_os_error();
            let errno = cause.raw_os_error().map_or(Errno::Inval, Errno::from_raw);
            Err(Error::new(errno, format!("signal {signal} cannot be caught")).because(cause))
        }
    }
}

/// Writes the pages out, then restores the previous action and lets it handle the signal.
extern "C" fn on_crash(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    write_pages();
    let Some(previous) = PREVIOUS_ACTIONS
        .get(signal as usize)
        .and_then(OnceLock::get)
    else {
        return;
    };
    // SAFETY: restores an action that `sigaction` returned.
    unsafe { libc::sigaction(signal, previous, ptr::null_mut()) };
    // SAFETY: the kernel passes a valid pointer for the duration of this call.
    let code = unsafe { (*info).si_code };
    // A fault occurs again when the instruction is retried; a signal that was sent does not.
    if code <= 0 {
        // SAFETY: the signal is blocked until this handler returns. The previous action then
        // handles it.
        unsafe { libc::raise(signal) };
    }
}

/// Writes the pages out.
extern "C" fn on_request(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: returns the address of this thread's `errno`.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let saved = unsafe { *errno };
    write_pages();
    // SAFETY: as above.
    unsafe { *errno = saved };
}

const PATH_MAX: usize = 4096;
/// The largest length of the name behind the directory in bytes.
const MAX_SUFFIX: usize = 40;

/// Writes bytes into the file's name and returns the offset behind them.
fn append(offset: usize, bytes: &[u8]) -> usize {
    for (slot, byte) in FILE_NAME[offset..].iter().zip(bytes) {
        slot.store(*byte, Ordering::Relaxed);
    }
    offset + bytes.len()
}

/// Appends the process ID in digits.
fn append_pid(offset: usize) -> usize {
    // SAFETY: a system call without arguments.
    let pid = unsafe { libc::getpid() }.unsigned_abs();
    let mut unit = 10_u32.pow(pid.checked_ilog10().unwrap_or(0));
    let mut offset = offset;
    while unit > 0 {
        offset = append(offset, &[b'0' + (pid / unit % 10) as u8]);
        unit /= 10;
    }
    offset
}

fn write_pages() {
    let Some(&offset) = PID_OFFSET.get() else {
        return;
    };
    // Threads that do this at the same time write the same bytes.
    append(append_pid(offset), b".flight\0");
    let path = FILE_NAME.as_ptr().cast::<c_char>();
    // The file may exist from an earlier signal, or from an earlier process with the same ID.
    // SAFETY: the name ends with a zero.
    unsafe { libc::unlink(path) };
    // An object of another user is left alone: a pipe without a reader would block this thread.
    let new = libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
    let flags = libc::O_WRONLY | libc::O_NONBLOCK | libc::O_CLOEXEC | new;
    // SAFETY: the name ends with a zero.
    let file = unsafe { libc::open(path, flags, 0o600) };
    if file < 0 {
        return;
    }
    for (kind, slots) in PageKind::ALL.iter().zip(&PAGES) {
        for page in slots {
            let page = page.load(Ordering::Acquire);
            if !page.is_null() {
                // SAFETY: the kernel reads the mapped memory, or fails with an error if it is not
                // mapped.
                unsafe { libc::write(file, page.cast(), kind.words() * 8) };
            }
        }
    }
    // SAFETY: opened above.
    unsafe { libc::close(file) };
}
