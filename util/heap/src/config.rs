//! The parameters of the heap, from environment variables.
//!
//! The heap reads them inside the first large allocation of the process, so reading them allocates
//! nothing. A value that cannot be read is reported on standard error and replaced by the default.

use std::ffi::CStr;

use crate::{limits, system};

/// The parameters in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// The smallest allocation that the heap serves, in bytes.
    pub(crate) threshold: usize,
    /// The largest allocation that the heap serves, in bytes.
    pub(crate) largest: usize,
    /// The maximum number of committed bytes.
    pub(crate) limit: usize,
    /// The maximum number of committed bytes in empty arenas that are kept for reuse.
    pub(crate) retained: usize,
}

/// A parameter: its name, and the bounds of its value.
struct Spec {
    name: &'static CStr,
    min: usize,
    max: usize,
}

/// Below one page, most of an arena would be unused.
const THRESHOLD: Spec = Spec {
    name: c"FI_HEAP_THRESHOLD",
    min: 4 << 10,
    max: 1 << 30,
};
/// A peer maps no file of more than 4 GiB (the shm provider's limit), and an arena is half as
/// large again as its first allocation.
const LARGEST: Spec = Spec {
    name: c"FI_HEAP_LARGEST",
    min: 0,
    max: 2 << 30,
};
const LIMIT: Spec = Spec {
    name: c"FI_HEAP_LIMIT",
    min: 0,
    max: 1 << 46,
};
const RETAINED: Spec = Spec {
    name: c"FI_HEAP_RETAINED",
    min: 0,
    max: 1 << 46,
};

impl Config {
    /// The default threshold: below it, a copy through the sender's pool or by the kernel costs
    /// about as much as a copy from mapped memory.
    pub(crate) const DEFAULT_THRESHOLD: usize = 64 << 10;
    /// The default of the largest allocation. The heap commits every page at once, and programs
    /// that allocate more often touch only a part of it.
    const DEFAULT_LARGEST: usize = 256 << 20;
    const DEFAULT_RETAINED: usize = 64 << 20;

    /// Reads the environment.
    pub(crate) fn read() -> Self {
        let memory = limits::memory().map_or(0, |memory| memory.total);
        Self {
            threshold: THRESHOLD.read(Self::DEFAULT_THRESHOLD),
            largest: LARGEST.read(Self::DEFAULT_LARGEST),
            limit: LIMIT.read(memory / 4),
            retained: RETAINED.read(Self::DEFAULT_RETAINED),
        }
    }
}

impl Spec {
    /// Reads the parameter, or reports its value and returns the default.
    fn read(&self, default: usize) -> usize {
        let Some(text) = system::environment_variable(self.name) else {
            return default;
        };
        match self.parse(text) {
            Some(value) => value,
            None => {
                self.report(text, default);
                default
            }
        }
    }

    fn parse(&self, text: &[u8]) -> Option<usize> {
        size(text).filter(|size| (self.min..=self.max).contains(size))
    }

    /// Writes the error text for a value that cannot be read.
    fn report(&self, text: &[u8], default: usize) {
        let mut number = [0; 20];
        let mut numbers = [[0; 20]; 2];
        let [min, max] = &mut numbers;
        system::print_error(&[
            self.name.to_bytes(),
            b"=",
            text,
            b": expected a size from ",
            decimal(self.min, min),
            b" to ",
            decimal(self.max, max),
            b", such as 65536, 64k or 1m; the heap uses ",
            decimal(default, &mut number),
        ]);
    }
}

/// Parses a number of bytes with an optional suffix `k`, `m` or `g`.
fn size(text: &[u8]) -> Option<usize> {
    let (digits, shift) = match text.split_last()? {
        (b'k' | b'K', digits) => (digits, 10),
        (b'm' | b'M', digits) => (digits, 20),
        (b'g' | b'G', digits) => (digits, 30),
        _ => (text, 0),
    };
    if digits.is_empty() {
        return None;
    }
    let mut value = 0_usize;
    for digit in digits {
        let digit = digit.is_ascii_digit().then(|| digit - b'0')?;
        value = value.checked_mul(10)?.checked_add(usize::from(digit))?;
    }
    value.checked_mul(1 << shift)
}

/// Writes a number to the end of `buffer`, and returns its digits.
fn decimal(mut number: usize, buffer: &mut [u8; 20]) -> &[u8] {
    let mut start = buffer.len();
    loop {
        start -= 1;
        buffer[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &buffer[start..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_digits_and_one_suffix() {
        let table: [(&[u8], Option<usize>); 12] = [
            (b"65536", Some(65536)),
            (b"64k", Some(65536)),
            (b"1m", Some(1 << 20)),
            (b"1G", Some(1 << 30)),
            (b"0", Some(0)),
            (b"", None),
            (b"k", None),
            (b"-1", None),
            (b"1kk", None),
            (b"banana", None),
            (b"99999999999999999999", None),
            (b"99999999999999g", None),
        ];
        for (text, expected) in table {
            assert_eq!(size(text), expected, "{text:?}");
        }
    }

    #[test]
    fn values_outside_the_bounds_are_refused() {
        assert_eq!(THRESHOLD.parse(b"64k"), Some(64 << 10));
        assert_eq!(THRESHOLD.parse(b"100"), None);
        assert_eq!(LARGEST.parse(b"3g"), None);
    }

    #[test]
    fn numbers_in_error_texts_are_decimal() {
        let mut buffer = [0; 20];
        assert_eq!(decimal(0, &mut buffer), b"0");
        assert_eq!(decimal(65536, &mut buffer), b"65536");
        assert_eq!(decimal(usize::MAX, &mut buffer), b"18446744073709551615");
    }
}
