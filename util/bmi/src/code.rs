//! Error codes: BMI's own numbers, which differ from the operating system's.
//!
//! A code is a number with two or three bits set: one for errors, one for BMI, and a third for
//! codes without a system error number. Functions of the C API return the negative of a code.

use std::fmt;

use selvedge::Errno;

/// Result of a call: a value or a [`Code`].
pub type Result<T = (), E = Code> = std::result::Result<T, E>;

/// Set in every code.
const ERROR: i32 = 1 << 30;
/// Set in every code of BMI.
const BMI: i32 = 1 << 7;
/// Set in codes without a system error number.
const NON_SYSTEM: i32 = 1 << 29;

/// A BMI error code (`BMI_E*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Code(i32);

macro_rules! codes {
    (system { $($name:ident = $number:literal $errno:ident,)+ }
     bmi { $($bmi:ident = $bmi_number:literal $text:literal,)+ }) => {
        /// The codes, under C's names without the prefix `BMI_`.
        impl Code {
            $(#[doc = concat!("`BMI_", stringify!($name), "`.")]
            pub const $name: Self = Self($number | ERROR | BMI);)+
            $(#[doc = concat!("`BMI_", stringify!($bmi), "`: ", $text, ".")]
            pub const $bmi: Self = Self($bmi_number | ERROR | BMI | NON_SYSTEM);)+

            /// Every code in numerical order, the codes of system errors first.
            pub const ALL: &[Self] = &[$(Self::$name,)+ $(Self::$bmi),+];

            /// C's name of this code; `BMI_UNKNOWN` for a number that is no code.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => concat!("BMI_", stringify!($name)),)+
                    $(Self::$bmi => concat!("BMI_", stringify!($bmi)),)+
                    _ => "BMI_UNKNOWN",
                }
            }

            /// The system error number of this code, if it has one.
            pub fn system(self) -> Option<i32> {
                match self {
                    $(Self::$name => Some(libc::$errno),)+
                    _ => None,
                }
            }

            /// The code of a positive system error number; [`Self::EIO`] for a number without a
            /// code.
            pub fn of_system(errno: i32) -> Self {
                $(if errno == libc::$errno { return Self::$name; })+
                Self::EIO
            }

            /// A short description of this code.
            pub fn text(self) -> String {
                match self {
                    $(Self::$bmi => $text.to_owned(),)+
                    _ => match self.system() {
                        Some(errno) => nix::errno::Errno::from_raw(errno).desc().to_owned(),
                        None => format!("unknown error {}", self.0),
                    },
                }
            }
        }
    };
}

codes! {
    system {
        EPERM = 1 EPERM,
        ENOENT = 2 ENOENT,
        EINTR = 3 EINTR,
        EIO = 4 EIO,
        ENXIO = 5 ENXIO,
        EBADF = 6 EBADF,
        EAGAIN = 7 EAGAIN,
        ENOMEM = 8 ENOMEM,
        EFAULT = 9 EFAULT,
        EBUSY = 10 EBUSY,
        EEXIST = 11 EEXIST,
        ENODEV = 12 ENODEV,
        ENOTDIR = 13 ENOTDIR,
        EISDIR = 14 EISDIR,
        EINVAL = 15 EINVAL,
        EMFILE = 16 EMFILE,
        EFBIG = 17 EFBIG,
        ENOSPC = 18 ENOSPC,
        EROFS = 19 EROFS,
        EMLINK = 20 EMLINK,
        EPIPE = 21 EPIPE,
        EDEADLK = 22 EDEADLK,
        ENAMETOOLONG = 23 ENAMETOOLONG,
        ENOLCK = 24 ENOLCK,
        ENOSYS = 25 ENOSYS,
        ENOTEMPTY = 26 ENOTEMPTY,
        ELOOP = 27 ELOOP,
        EWOULDBLOCK = 28 EWOULDBLOCK,
        ENOMSG = 29 ENOMSG,
        EUNATCH = 30 EUNATCH,
        EBADR = 31 EBADR,
        EDEADLOCK = 32 EDEADLOCK,
        ENODATA = 33 ENODATA,
        ETIME = 34 ETIME,
        ENONET = 35 ENONET,
        EREMOTE = 36 EREMOTE,
        ECOMM = 37 ECOMM,
        EPROTO = 38 EPROTO,
        EBADMSG = 39 EBADMSG,
        EOVERFLOW = 40 EOVERFLOW,
        ERESTART = 41 ERESTART,
        EMSGSIZE = 42 EMSGSIZE,
        EPROTOTYPE = 43 EPROTOTYPE,
        ENOPROTOOPT = 44 ENOPROTOOPT,
        EPROTONOSUPPORT = 45 EPROTONOSUPPORT,
        EOPNOTSUPP = 46 EOPNOTSUPP,
        EADDRINUSE = 47 EADDRINUSE,
        EADDRNOTAVAIL = 48 EADDRNOTAVAIL,
        ENETDOWN = 49 ENETDOWN,
        ENETUNREACH = 50 ENETUNREACH,
        ENETRESET = 51 ENETRESET,
        ENOBUFS = 52 ENOBUFS,
        ETIMEDOUT = 53 ETIMEDOUT,
        ECONNREFUSED = 54 ECONNREFUSED,
        EHOSTDOWN = 55 EHOSTDOWN,
        EHOSTUNREACH = 56 EHOSTUNREACH,
        EALREADY = 57 EALREADY,
        EACCES = 58 EACCES,
        ECONNRESET = 59 ECONNRESET,
    }
    bmi {
        ECANCEL = 1 "operation cancelled",
        EDEVINIT = 2 "device initialization failed",
        EDETAIL = 3 "see the detailed error",
        EHOSTNTFD = 4 "host not found",
        EADDRNTFD = 5 "host has no address",
        ENORECVR = 6 "name service failed for good",
        ETRYAGAIN = 7 "name service failed, try again",
    }
}

impl Code {
    /// C's positive number.
    pub const fn as_raw(self) -> i32 {
        self.0
    }

    /// Makes a code from C's positive number without checking it.
    pub const fn from_raw(raw: i32) -> Self {
        Self(raw)
    }
}

/// Converts a fabric error into the nearest BMI code.
impl From<Errno> for Code {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::Canceled => Self::ECANCEL,
            // A broken stream is EPIPE, as for write(2).
            Errno::ConnReset | Errno::NotConn | Errno::ConnAborted | Errno::Shutdown => Self::EPIPE,
            Errno::Trunc | Errno::TooSmall => Self::EMSGSIZE,
            Errno::NoRx | Errno::Overrun | Errno::NoMr => Self::ENOBUFS,
            Errno::OpBadState => Self::ENETDOWN,
            Errno::BadFlags | Errno::Domain => Self::EINVAL,
            other if other.as_raw() < Errno::Other.as_raw() => Self::of_system(other.as_raw()),
            _ => Self::EIO,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text(), self.name())
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::error::Error for Code {}

/// A setup error: a code, and a message that names the object and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    code: Code,
    message: String,
}

impl Error {
    /// Makes an error from its code and a message.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// The code, which the C API returns.
    pub const fn code(&self) -> Code {
        self.code
    }

    /// The message without the code's text.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.message, self.code)
    }
}

impl std::error::Error for Error {}

impl From<Error> for Code {
    fn from(error: Error) -> Self {
        error.code
    }
}

impl From<selvedge::Error> for Error {
    fn from(error: selvedge::Error) -> Self {
        Self::new(error.errno().into(), error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_the_number_that_bmi_gave_it() {
        assert_eq!(Code::ALL.len(), 59 + 7);
        for (index, code) in Code::ALL.iter().enumerate() {
            let expected = match index {
                0..59 => (index as i32 + 1) | 0x4000_0080,
                _ => (index as i32 - 58) | 0x6000_0080,
            };
            assert_eq!(code.as_raw(), expected, "{code:?}");
        }
        assert_eq!(Code::ENOPROTOOPT.as_raw(), 0x4000_00ac);
        assert_eq!(Code::ECANCEL.as_raw(), 0x6000_0081);
    }

    #[test]
    fn codes_of_the_system_are_found_by_its_numbers() {
        for code in &Code::ALL[..59] {
            let system = code.system().unwrap();
            let found = Code::of_system(system);
            // Some system numbers have two names: the lookup finds the first.
            assert_eq!(found.system(), Some(system), "{code:?}");
            assert_ne!(code.text(), "");
        }
        assert_eq!(Code::of_system(100_000), Code::EIO);
        assert_eq!(
            Code::ECANCEL.to_string(),
            "operation cancelled (BMI_ECANCEL)"
        );
        assert_eq!(Code::from_raw(3).name(), "BMI_UNKNOWN");
    }

    #[test]
    fn a_disconnected_peer_is_a_broken_pipe() {
        assert_eq!(Code::from(Errno::ConnReset), Code::EPIPE);
        assert_eq!(Code::from(Errno::ConnRefused), Code::ECONNREFUSED);
        assert_eq!(Code::from(Errno::Trunc), Code::EMSGSIZE);
        assert_eq!(Code::from(Errno::Other), Code::EIO);
    }
}
