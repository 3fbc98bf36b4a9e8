//! Errors with error numbers, which become exit codes.

use selvedge::{Errno, Error};

/// An error with an error number, which becomes the exit code.
pub fn failure(errno: Errno, text: impl Into<String>) -> anyhow::Error {
    Error::new(errno, text).into()
}

/// An error for a feature that the provider lacks: exit code 61, which scripts read as "not run".
pub fn unsupported(text: impl Into<String>) -> anyhow::Error {
    failure(Errno::NoData, text)
}

/// An error for wrong received or computed data.
pub fn wrong(text: impl Into<String>) -> anyhow::Error {
    failure(Errno::Io, text)
}

/// The error number of an error; [`Errno::Other`] if it has none.
pub fn errno(error: &anyhow::Error) -> Errno {
    let numbers = error.chain().filter_map(|cause| {
        let number = cause.downcast_ref::<Error>().map(Error::errno);
        let errno = || cause.downcast_ref::<Errno>().copied();
        let os_error = || {
            let os_error = cause.downcast_ref::<std::io::Error>()?.raw_os_error()?;
            Some(Errno::from_raw(os_error))
        };
        number.or_else(errno).or_else(os_error)
    });
    numbers.into_iter().next().unwrap_or(Errno::Other)
}

/// The exit code: the error number, or 1 if it is above 255.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    u8::try_from(errno(error).as_raw()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn the_exit_code_is_the_error_number_or_one() {
        assert_eq!(exit_code(&unsupported("x").context("y")), 61);
        assert_eq!(exit_code(&anyhow::Error::new(Errno::NoSys)), 38);
        assert_eq!(exit_code(&failure(Errno::Trunc, "x")), 1);
        assert_eq!(exit_code(&anyhow::anyhow!("x")), 1);
        let os_error = std::fs::read("/nowhere").context("x").unwrap_err();
        assert_eq!(exit_code(&os_error), 2);
    }
}
