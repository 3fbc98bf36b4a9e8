//! What a crash, or a signal of the user's choice, writes out: the pages of the process, one behind
//! the other, in `selvedge-PID.flight`.
//!
//! A handler calls nothing but `getpid`, `open`, `write`, `close`, `sigaction` and `raise`, takes no lock and
//! makes no memory. It hands the address of each page to `write`, which answers with an error if the
//! page is gone meanwhile. None is installed unless the environment asks for it.

#![expect(unsafe_code, reason = "signal handlers, and what may be called there")]

use std::ffi::{CString, c_char, c_int, c_void};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use selvedge::{Errno, Error};

use super::Settings;
use super::layout::WORDS;

/// Endpoints whose pages are written out: as many as were open at a time, up to this.
const MOST: usize = 256;

static PAGES: [AtomicPtr<AtomicU64>; MOST] = [const { AtomicPtr::new(ptr::null_mut()) }; MOST];
static FOLDER: OnceLock<CString> = OnceLock::new();

/// The signals that mean a crash.
const CRASHES: [c_int; 5] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGABRT,
];

/// What was there before, by the number of the signal.
static BEFORE: [OnceLock<libc::sigaction>; 65] = [const { OnceLock::new() }; 65];

/// Has the page written out by crashes, as long as there is room.
pub(super) fn enlist(words: &[AtomicU64; WORDS]) -> Option<usize> {
    let page = words.as_ptr().cast_mut();
    PAGES.iter().position(|place| {
        let free = ptr::null_mut();
        let taken = place.compare_exchange(free, page, Ordering::Release, Ordering::Relaxed);
        taken.is_ok()
    })
}

/// Ends what [`enlist`] began.
pub(super) fn discharge(place: usize) {
    PAGES[place].store(ptr::null_mut(), Ordering::Relaxed);
}

/// Installs the handlers that are asked for, once in a process.
///
/// # Errors
/// [`Errno::Inval`] for a folder that no file name can be made of; the system's for a signal that it
/// does not let anybody catch.
pub fn install(settings: &Settings) -> Result<(), Error> {
    let crashes = CRASHES.iter().filter(|_| settings.crash);
    let chosen = settings.signal.map(|signal| signal as c_int);
    if !settings.crash && chosen.is_none() {
        return Ok(());
    }
    let folder = CString::new(settings.dir.as_os_str().as_bytes())
        .ok()
        .filter(|folder| folder.as_bytes().len() < PATH_MAX - TAIL)
        .ok_or_else(|| Error::new(Errno::Inval, "FI_SIGHT_DIR is no name of a folder"))?;
    FOLDER.get_or_init(|| folder);
    for &signal in crashes {
        catch(signal, in_crash)?;
    }
    match chosen {
        Some(signal) if is_free(signal) => catch(signal, on_request),
        _ => Ok(()),
    }
}

/// Whether the program has no handler of its own for a signal; that one would be missed.
fn is_free(signal: c_int) -> bool {
    let here = on_request as *const () as usize;
    let free = [libc::SIG_DFL, libc::SIG_IGN, here];
    let is_free = free.contains(&current(signal).sa_sigaction);
    if !is_free {
        log::warn!(
            target: "selvedge::core::core",
            "FI_SIGHT_SIGNAL: the program catches signal {signal} itself; nothing is written then"
        );
    }
    is_free
}

/// What a signal does at present.
fn current(signal: c_int) -> libc::sigaction {
    // SAFETY: a structure of integers and an optional function.
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: asks only, and writes to a structure of its own kind.
    unsafe { libc::sigaction(signal, ptr::null(), &raw mut old) };
    old
}

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// Installs a handler, unless one of ours is there.
fn catch(signal: c_int, handler: Handler) -> Result<(), Error> {
    let Some(before) = usize::try_from(signal).ok().and_then(|at| BEFORE.get(at)) else {
        return Err(Error::new(
            Errno::Inval,
            format!("signal {signal} has no number"),
        ));
    };
    if before.get().is_some() {
        return Ok(());
    }
    // SAFETY: a structure of integers and an optional function.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    now.sa_sigaction = handler as *const () as usize;
    now.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    if before.set(current(signal)).is_err() {
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

/// Writes the pages out, and lets whoever was there before have the signal.
extern "C" fn in_crash(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    write_out();
    let Some(before) = BEFORE.get(signal as usize).and_then(OnceLock::get) else {
        return;
    };
    // SAFETY: what was there before.
    unsafe { libc::sigaction(signal, before, ptr::null_mut()) };
    // SAFETY: the kernel's, for this call.
    let code = unsafe { (*info).si_code };
    // A fault comes again when the instruction is tried again; what somebody sent does not.
    if code <= 0 {
        // SAFETY: blocked until the handler returns, and then as before.
        unsafe { libc::raise(signal) };
    }
}

/// Writes the pages out.
extern "C" fn on_request(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: this thread's own number of its last error.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let kept = unsafe { *errno };
    write_out();
    // SAFETY: as above.
    unsafe { *errno = kept };
}

const PATH_MAX: usize = 4096;
/// What stands behind the folder, at most.
const TAIL: usize = 40;

fn write_out() {
    let Some(folder) = FOLDER.get() else {
        return;
    };
    let mut path = [0_u8; PATH_MAX];
    let mut rest = &mut path[..PATH_MAX - 1];
    // SAFETY: a system call without arguments.
    let pid = unsafe { libc::getpid() };
    // Numbers and bytes are formatted into `path` without making memory.
    let named = rest
        .write_all(folder.as_bytes())
        .and_then(|()| write!(rest, "/selvedge-{pid}.flight"));
    if named.is_err() {
        return;
    }
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: `path` ends with a zero.
    let file = unsafe { libc::open(path.as_ptr().cast::<c_char>(), flags, 0o600) };
    if file < 0 {
        return;
    }
    for page in &PAGES {
        let page = page.load(Ordering::Acquire);
        if !page.is_null() {
            // SAFETY: the kernel reads what is mapped there, or says that nothing is.
            unsafe { libc::write(file, page.cast(), WORDS * 8) };
        }
    }
    // SAFETY: opened above.
    unsafe { libc::close(file) };
}
