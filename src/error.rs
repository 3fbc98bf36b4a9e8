//! `Error`: an error of set-up functions, with a text.

use std::error::Error as StdError;

use crate::Errno;

/// An error of a function that opens, resolves or configures an object.
///
/// The text names the object and the value. The C interface returns [`Error::errno`]. In the `Display`
/// output, the text of the error number ends the first line.
#[derive(Debug, thiserror::Error)]
#[error("{}: {errno}{}", self.first_line(), self.other_lines())]
pub struct Error {
    errno: Errno,
    message: String,
    #[source]
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// Makes an error from its number and a text that names the object and the value.
    pub fn new(errno: Errno, message: impl Into<String>) -> Self {
        Self {
            errno,
            message: message.into(),
            source: None,
        }
    }

    /// Adds the error that caused this one.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The error number.
    pub const fn errno(&self) -> Errno {
        self.errno
    }

    /// The text, without the text of the error number.
    pub fn message(&self) -> &str {
        &self.message
    }

    fn first_line(&self) -> &str {
        self.message.lines().next().unwrap_or_default()
    }

    fn other_lines(&self) -> &str {
        self.message.find('\n').map_or("", |at| &self.message[at..])
    }
}

impl From<Error> for Errno {
    fn from(error: Error) -> Self {
        error.errno
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_s_text_ends_the_first_line() {
        let table = [
            ("no luck", "no luck: No data available"),
            (
                "no luck\nshm: a\ntcp: b",
                "no luck: No data available\nshm: a\ntcp: b",
            ),
            ("", ": No data available"),
        ];
        for (what, text) in table {
            assert_eq!(Error::new(Errno::NoData, what).to_string(), text);
        }
    }
}
