//! What a crash, or a signal of the user's choice, writes out: the sheets of the process, one behind
//! the other, in `selvedge-PID.flight`.
//!
//! A handler calls nothing but `getpid`, `unlink`, `open`, `write`, `close`, `sigaction` and `raise`, takes
//! no lock and makes no memory. It hands the address of each sheet to `write`, which answers with an error if the
//! sheet is gone meanwhile. None is installed unless the environment asks for it.

#![expect(unsafe_code, reason = "signal handlers, and what may be called there")]

use std::ffi::{c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering};

use selvedge::{Errno, Error};

use super::Settings;
use super::layout::PageKind;

/// Sheets of a kind that are written out: as many as were open at a time, up to this.
const MAX_PAGES: usize = 256;

type PageSlots = [AtomicPtr<AtomicU64>; MAX_PAGES];
/// By kind, in the order of [`PageKind::ALL`].
static PAGES: [PageSlots; PageKind::ALL.len()] =
    [const { [const { AtomicPtr::new(ptr::null_mut()) }; MAX_PAGES] }; PageKind::ALL.len()];
/// The file's name, up to where the process's number goes. It is not on the stack, which in a handler
/// may be as small as 8 KiB and have the processor's registers on it, too.
static FILE_NAME: [AtomicU8; PATH_MAX] = [const { AtomicU8::new(0) }; PATH_MAX];
/// Where that is; nowhere as long as nobody asks.
static PID_OFFSET: OnceLock<usize> = OnceLock::new();

/// The signals that mean a crash.
const CRASH_SIGNALS: [c_int; 5] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGABRT,
];

/// What was there before, by the number of the signal.
static PREVIOUS_ACTIONS: [OnceLock<libc::sigaction>; 65] = [const { OnceLock::new() }; 65];

/// Has a sheet written out by crashes, as long as there is room.
pub(super) fn register(kind: PageKind, words: &[AtomicU64]) -> Option<usize> {
    let page = words.as_ptr().cast_mut();
    PAGES[kind as usize].iter().position(|slot| {
        let free = ptr::null_mut();
        let taken = slot.compare_exchange(free, page, Ordering::Release, Ordering::Relaxed);
        taken.is_ok()
    })
}

/// Ends what [`register`] began.
pub(super) fn unregister(kind: PageKind, slot: usize) {
    PAGES[kind as usize][slot].store(ptr::null_mut(), Ordering::Relaxed);
}

/// Installs the handlers that are asked for, once in a process.
///
/// # Errors
/// [`Errno::Inval`] for a folder that no file name can be made of; the system's for a signal that it
/// does not let anybody catch.
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
            "FI_SIGHT_DIR is no name of a folder",
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

/// Whether the program has no handler of its own for a signal; that one would be missed.
fn has_no_handler(signal: c_int) -> bool {
    let own_handler = on_request as *const () as usize;
    let free = [libc::SIG_DFL, libc::SIG_IGN, own_handler];
    let has_no_handler = free.contains(&current_action(signal).sa_sigaction);
    if !has_no_handler {
        log::warn!(
            target: "selvedge::core::core",
            "FI_SIGHT_SIGNAL: the program catches signal {signal} itself; nothing is written then"
        );
    }
    has_no_handler
}

/// What a signal does at present.
fn current_action(signal: c_int) -> libc::sigaction {
    // SAFETY: a structure of integers and an optional function.
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: asks only, and writes to a structure of its own kind.
    unsafe { libc::sigaction(signal, ptr::null(), &raw mut old) };
    old
}

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// Installs a handler, unless one of ours is there.
fn install_handler(signal: c_int, handler: Handler) -> Result<(), Error> {
    let Some(previous) = usize::try_from(signal)
        .ok()
        .and_then(|at| PREVIOUS_ACTIONS.get(at))
    else {
        return Err(Error::new(
            Errno::Inval,
            format!("signal {signal} has no number"),
        ));
    };
    if previous.get().is_some() {
        return Ok(());
    }
    // SAFETY: a structure of integers and an optional function.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    now.sa_sigaction = handler as *const () as usize;
    // One handler inside of another would need twice the stack.
    // SAFETY: a set of our own.
    unsafe { libc::sigfillset(&raw mut now.sa_mask) };
    now.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    if previous.set(current_action(signal)).is_err() {
        return Ok(());
    }
    // SAFETY: the handler does only what a handler may, and lives as long as the process.
    let done = unsafe { libc::sigaction(signal, &raw const now, ptr::null_mut()) };
    match done {
        0 => Ok(()),
        _ => {
            let cause = std::io::Error::last_os_error();
            let errno = cause.raw_os_error().map_or(Errno::Inval, Errno::from_raw);
            Err(Error::new(errno, format!("signal {signal} cannot be caught")).because(cause))
        }
    }
}

/// Writes the sheets out, and lets whoever was there before have the signal.
extern "C" fn on_crash(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    write_pages();
    let Some(previous) = PREVIOUS_ACTIONS
        .get(signal as usize)
        .and_then(OnceLock::get)
    else {
        return;
    };
    // SAFETY: what was there before.
    unsafe { libc::sigaction(signal, previous, ptr::null_mut()) };
    // SAFETY: the kernel's, for this call.
    let code = unsafe { (*info).si_code };
    // A fault comes again when the instruction is tried again; what somebody sent does not.
    if code <= 0 {
        // SAFETY: blocked until the handler returns, and then as before.
        unsafe { libc::raise(signal) };
    }
}

/// Writes the sheets out.
extern "C" fn on_request(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: this thread's own number of its last error.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let saved = unsafe { *errno };
    write_pages();
    // SAFETY: as above.
    unsafe { *errno = saved };
}

const PATH_MAX: usize = 4096;
/// What stands behind the folder, at most.
const MAX_SUFFIX: usize = 40;

/// Puts bytes into the file's name; where the next ones go.
fn append(at: usize, bytes: &[u8]) -> usize {
    for (slot, byte) in FILE_NAME[at..].iter().zip(bytes) {
        slot.store(*byte, Ordering::Relaxed);
    }
    at + bytes.len()
}

/// The number of this process in digits.
fn append_pid(at: usize) -> usize {
    // SAFETY: a system call without arguments.
    let pid = unsafe { libc::getpid() }.unsigned_abs();
    let mut unit = 10_u32.pow(pid.checked_ilog10().unwrap_or(0));
    let mut at = at;
    while unit > 0 {
        at = append(at, &[b'0' + (pid / unit % 10) as u8]);
        unit /= 10;
    }
    at
}

fn write_pages() {
    let Some(&at) = PID_OFFSET.get() else {
        return;
    };
    // Threads that do so at the same time put the same bytes.
    append(append_pid(at), b".flight\0");
    let path = FILE_NAME.as_ptr().cast::<c_char>();
    // A file of an earlier signal, or of a process that had the number before.
    // SAFETY: the name ends with a zero.
    unsafe { libc::unlink(path) };
    // What another user has put there is left alone: a pipe that nobody reads would hold this up.
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
                // SAFETY: the kernel reads what is mapped there, or says that nothing is.
                unsafe { libc::write(file, page.cast(), kind.words() * 8) };
            }
        }
    }
    // SAFETY: opened above.
    unsafe { libc::close(file) };
}
