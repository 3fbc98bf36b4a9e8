//! `Facility`: the destination of gossip's messages. `Stamp`: the prefix of each message.

#![expect(unsafe_code, reason = "the C library's streams, log and calendar")]

use std::ffi::{CStr, CString, OsStr, c_int};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use log::Level;

/// The destination of messages.
#[derive(Debug)]
pub(crate) enum Facility {
    Stderr,
    Stdout,
    File(File),
    /// The system's log. The priority is that of debug messages (syslog(3)).
    Syslog(c_int),
}

impl Facility {
    /// Opens a file in a writing mode of fopen(3).
    ///
    /// # Errors
    /// An error number of the system.
    pub(crate) fn open(name: &CStr, mode: &CStr) -> Result<Self, c_int> {
        let mut options = OpenOptions::new();
        let mode = mode.to_bytes();
        match (mode.first(), mode.contains(&b'+')) {
            (Some(b'w'), _) => options.write(true).create(true).truncate(true),
            (Some(b'a'), _) => options.append(true).create(true),
            (Some(b'r'), true) => options.write(true),
            _ => return Err(libc::EINVAL),
        };
        let opened = options.open(OsStr::from_bytes(name.to_bytes()));
        opened
            .map(Self::File)
            .map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
    }

    fn print(&mut self, prefix: u8, stamp: Stamp, text: &[u8]) {
        let line = |stamp| [format_stamp(prefix, stamp).as_bytes(), text].concat();
        let printed = match self {
            Self::Stderr => io::stderr().write_all(&line(stamp)),
            Self::Stdout => print_to_stdout(&line(stamp)),
            Self::File(file) => file.write_all(&line(stamp)),
            // The system's log adds its own stamps.
            Self::Syslog(priority) => {
                print_to_syslog(priority_of(prefix, *priority), &line(Stamp::None));
                Ok(())
            }
        };
        // A message that cannot be printed is lost, as with fprintf(3).
        drop(printed);
    }
}

static FACILITY: Mutex<(Facility, Stamp)> = Mutex::new((Facility::Stderr, Stamp::Usec));

/// Sets the facility of all messages from now on.
pub(crate) fn set(facility: Facility) {
    FACILITY.lock().unwrap_or_else(PoisonError::into_inner).0 = facility;
}

/// Sets the stamp of all messages from now on.
pub(crate) fn set_stamp(stamp: Stamp) {
    FACILITY.lock().unwrap_or_else(PoisonError::into_inner).1 = stamp;
}

/// Prints a message with its prefix: `E` for errors, `D` for debugging.
pub(crate) fn print(prefix: u8, text: &[u8]) {
    let mut facility = FACILITY.lock().unwrap_or_else(PoisonError::into_inner);
    let (facility, stamp) = &mut *facility;
    facility.print(prefix, *stamp, text);
}

/// Prints a message of the library's log.
pub(crate) fn print_logged(level: Level, text: &str) {
    let prefix = match level {
        Level::Error | Level::Warn => b'E',
        Level::Info | Level::Debug | Level::Trace => b'D',
    };
    print(prefix, format!("{text}\n").as_bytes());
}

/// Prints a debug message of the library.
pub(crate) fn print_debug(text: fmt::Arguments<'_>) {
    print(b'D', format!("bmi: {text}\n").as_bytes());
}

/// The stamp in front of a message (`enum gossip_logstamp`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stamp {
    None,
    Usec,
    DateTime,
    Thread,
}

impl Stamp {
    pub(crate) const fn from_raw(raw: c_int) -> Option<Self> {
        match raw {
            0 => Some(Self::None),
            1 => Some(Self::Usec),
            2 => Some(Self::DateTime),
            3 => Some(Self::Thread),
            _ => None,
        }
    }
}

fn format_stamp(prefix: u8, stamp: Stamp) -> String {
    let prefix = char::from(prefix);
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let usec = since.subsec_micros();
    let time = local_time(since.as_secs() as libc::time_t);
    let (hour, minute, second) = (time.tm_hour, time.tm_min, time.tm_sec);
    match stamp {
        Stamp::None => format!("[{prefix}] "),
        Stamp::Usec => format!("[{prefix} {hour:02}:{minute:02}:{second:02}.{usec:06}] "),
        Stamp::DateTime => {
            let (month, day, year) = (time.tm_mon + 1, time.tm_mday, time.tm_year + 1900);
            format!("[{prefix} {month:02}/{day:02}/{year} {hour:02}:{minute:02}:{second:02}] ")
        }
        Stamp::Thread => {
            // SAFETY: the function has no arguments and no side effects.
            let thread = unsafe { libc::pthread_self() };
            format!("[{prefix} {hour:02}:{minute:02}:{second:02}.{usec:06} ({thread})] ")
        }
    }
}

fn local_time(seconds: libc::time_t) -> libc::tm {
    // SAFETY: every member of `tm` is a number or a pointer, which may be zero.
    let mut time: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to local variables, which localtime_r(3) does not keep.
    unsafe { libc::localtime_r(&raw const seconds, &raw mut time) };
    time
}

/// Prints to the C library's stream, so that the application's own output keeps its order.
fn print_to_stdout(line: &[u8]) -> io::Result<()> {
    // SAFETY: the C library has initialised the variable before any code of this library runs.
    let stream = unsafe { stdout };
    // SAFETY: `line` may be read for its length during the call.
    let written = unsafe { libc::fwrite(line.as_ptr().cast(), 1, line.len(), stream) };
    // SAFETY: as for `stdout`.
    let flushed = unsafe { libc::fflush(stream) };
    if written == line.len() && flushed == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

unsafe extern "C" {
    static stdout: *mut libc::FILE;
}

/// The priority of a message for syslog(3): `LOG_ERR` for errors. The facility is that of
/// `priority`, or `LOG_DAEMON` if it has none.
const fn priority_of(prefix: u8, priority: c_int) -> c_int {
    let facility = match priority & libc::LOG_FACMASK {
        0 => libc::LOG_DAEMON,
        facility => facility,
    };
    match prefix {
        b'E' => facility | libc::LOG_ERR,
        _ => facility | (priority & libc::LOG_PRIMASK),
    }
}

fn print_to_syslog(priority: c_int, line: &[u8]) {
    let text = line.split(|&byte| byte == 0).next().unwrap_or_default();
    let Ok(text) = CString::new(text) else {
        return;
    };
    // SAFETY: the format takes one text, which ends with a zero byte.
    unsafe { libc::syslog(priority, c"%s".as_ptr(), text.as_ptr()) };
}
