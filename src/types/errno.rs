//! Error numbers of the data path: libfabric's values and texts (fi_errno(3)).
//!
//! Data-path functions return [`Errno`], which is a number. Set-up functions return
//! [`crate::Error`], which has a text.

use std::fmt;

/// The result of a data-path call: nothing, a count, or an [`Errno`].
pub type Result<T = (), E = Errno> = std::result::Result<T, E>;

macro_rules! errnos {
    ($($variant:ident = $value:expr, $text:literal;)+) => {
        /// An error number of fi_errno(3).
        ///
        /// Values below 256 are those of the operating system; values from 256 are libfabric's. A
        /// system error without a variant becomes [`Errno::Other`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(i32)]
        #[non_exhaustive]
        pub enum Errno {
            $(#[doc = $text] $variant = $value,)+
        }

        impl Errno {
            /// Every error number, in the order of their declaration.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the variant of a positive error number, or `None` for a number without a
            /// variant.
            pub const fn try_from_raw(raw: i32) -> Option<Self> {
                $(if raw == Self::$variant as i32 { return Some(Self::$variant); })+
                None
            }

            /// Returns the text of fi_strerror(3).
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}

errnos! {
    Perm = libc::EPERM, "Operation not permitted";
    NoEnt = libc::ENOENT, "No such file or directory";
    Intr = libc::EINTR, "Interrupted system call";
    Io = libc::EIO, "Input/output error";
    TooBig = libc::E2BIG, "Argument list too long";
    BadF = libc::EBADF, "Bad file descriptor";
    Again = libc::EAGAIN, "Resource temporarily unavailable";
    NoMem = libc::ENOMEM, "Cannot allocate memory";
    Acces = libc::EACCES, "Permission denied";
    Fault = libc::EFAULT, "Bad address";
    Busy = libc::EBUSY, "Device or resource busy";
    Exist = libc::EEXIST, "File exists";
    NoDev = libc::ENODEV, "No such device";
    Inval = libc::EINVAL, "Invalid argument";
    NFile = libc::ENFILE, "Too many open files in system";
    MFile = libc::EMFILE, "Too many open files";
    NoSpc = libc::ENOSPC, "No space left on device";
    Pipe = libc::EPIPE, "Broken pipe";
    NameTooLong = libc::ENAMETOOLONG, "File name too long";
    NoSys = libc::ENOSYS, "Function not implemented";
    NoMsg = libc::ENOMSG, "No message of desired type";
    NoData = libc::ENODATA, "No data available";
    Proto = libc::EPROTO, "Protocol error";
    Overflow = libc::EOVERFLOW, "Value too large for defined data type";
    MsgSize = libc::EMSGSIZE, "Message too long";
    NoProtoOpt = libc::ENOPROTOOPT, "Protocol not available";
    OpNotSupp = libc::EOPNOTSUPP, "Operation not supported";
    AddrInUse = libc::EADDRINUSE, "Address already in use";
    AddrNotAvail = libc::EADDRNOTAVAIL, "Cannot assign requested address";
    NetDown = libc::ENETDOWN, "Network is down";
    NetUnreach = libc::ENETUNREACH, "Network is unreachable";
    ConnAborted = libc::ECONNABORTED, "Software caused connection abort";
    ConnReset = libc::ECONNRESET, "Connection reset by peer";
    NoBufs = libc::ENOBUFS, "No buffer space available";
    IsConn = libc::EISCONN, "Transport endpoint is already connected";
    NotConn = libc::ENOTCONN, "Transport endpoint is not connected";
    Shutdown = libc::ESHUTDOWN, "Cannot send after transport endpoint shutdown";
    TimedOut = libc::ETIMEDOUT, "Connection timed out";
    ConnRefused = libc::ECONNREFUSED, "Connection refused";
    HostDown = libc::EHOSTDOWN, "Host is down";
    HostUnreach = libc::EHOSTUNREACH, "No route to host";
    Already = libc::EALREADY, "Operation already in progress";
    InProgress = libc::EINPROGRESS, "Operation now in progress";
    RemoteIo = libc::EREMOTEIO, "Remote I/O error";
    Canceled = libc::ECANCELED, "Operation canceled";
    KeyRejected = libc::EKEYREJECTED, "Key was rejected by service";
    Other = 256, "Unspecified error";
    TooSmall = 257, "Provided buffer is too small";
    OpBadState = 258, "Operation not permitted in current state";
    Avail = 259, "Error available";
    BadFlags = 260, "Flags not supported";
    NoEq = 261, "Missing or unavailable event queue";
    Domain = 262, "Invalid resource domain";
    NoCq = 263, "Missing or unavailable completion queue";
    Crc = 264, "CRC error";
    Trunc = 265, "Truncation error";
    NoKey = 266, "Required key not available";
    NoAv = 267, "Missing or unavailable address vector";
    Overrun = 268, "Queue has been overrun";
    NoRx = 269, "Receiver not ready, no receive buffers available";
    NoMr = 270, "Memory registration limit exceeded";
    FirewallAddr = 271, "Host address unreachable due to firewall";
}

impl Errno {
    /// Returns the variant of a positive error number, or [`Errno::Other`] for a number without a
    /// variant.
    pub const fn from_raw(raw: i32) -> Self {
        match Self::try_from_raw(raw) {
            Some(errno) => errno,
            None => Self::Other,
        }
    }

    /// Returns the positive number, as in `fi_cq_err_entry.err`.
    pub const fn as_raw(self) -> i32 {
        self as i32
    }

    /// Returns the error of this thread's last failed system call.
    pub fn last_os() -> Self {
        Self::from_raw(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for Errno {}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        error.raw_os_error().map_or(Self::Other, Self::from_raw)
    }
}

const _: () = assert!(size_of::<Result>() == 4);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_number_round_trips() {
        for &errno in Errno::ALL {
            assert_eq!(Errno::from_raw(errno.as_raw()), errno);
        }
    }

    #[test]
    fn an_unnamed_number_becomes_other() {
        assert_eq!(Errno::from_raw(libc::EXDEV), Errno::Other);
        assert_eq!(Errno::from_raw(9999), Errno::Other);
    }

    #[test]
    fn texts_of_system_errors_equal_those_of_the_c_library() {
        for &errno in Errno::ALL.iter().filter(|errno| errno.as_raw() < 256) {
            let system = std::io::Error::from_raw_os_error(errno.as_raw()).to_string();
            assert!(system.starts_with(errno.text()), "{errno:?}: {system}");
        }
    }
}
