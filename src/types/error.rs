//! `Error`: an error of set-up functions, with a text.

use std::error::Error as StdError;

use crate::Errno;

/// An error of a function that opens, resolves or configures an object.
///
/// The text names the object and the value. The C interface returns [`Error::errno`]. In the
/// `Display` output, the first line ends with the text of the error number.
#[derive(Debug, thiserror::Error)]
#[error("{}: {errno}{}", self.first_line(), self.other_lines())]
pub struct Error {
    errno: Errno,
    message: String,
    #[source]
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// Creates an error from its number and a text that names the object and the value.
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

    /// Returns the error number.
    pub const fn errno(&self) -> Errno {
        self.errno
    }

    /// Returns the text, without the text of the error number.
    pub fn message(&self) -> &str {
        &self.message
    }

    fn first_line(&self) -> &str {
        self.message.lines().next().unwrap_or_default()
    }

    fn other_lines(&self) -> &str {
        let end = self.message.find('\n');
        end.map_or("", |end| &self.message[end..])
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
    fn the_first_line_ends_with_the_text_of_the_error_number() {
        let table = [
            ("no match", "no match: No data available"),
            (
                "no match\nshm: a\ntcp: b",
                "no match: No data available\nshm: a\ntcp: b",
            ),
            ("", ": No data available"),
        ];
        for (message, text) in table {
            assert_eq!(Error::new(Errno::NoData, message).to_string(), text);
        }
    }
}
