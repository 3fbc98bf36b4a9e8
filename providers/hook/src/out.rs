//! Where hooks write: a file, or standard error.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::Arc;

use selvedge::{Errno, Error};

/// A file that several processes may write lines to.
#[derive(Clone, Debug)]
pub(crate) struct Out(Option<Arc<File>>);

impl Out {
    /// Opens the file of `FI_HOOK_FILE`, in which `%p` is the process's number; standard error
    /// without one.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn open(path: &str) -> Result<Self, Error> {
        if path.is_empty() {
            return Ok(Self(None));
        }
        let path = path.replace("%p", &std::process::id().to_string());
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = file.map_err(|cause| {
            let errno = cause.raw_os_error().map_or(Errno::Io, Errno::from_raw);
            Error::new(errno, format!("cannot open FI_HOOK_FILE {path:?}: {cause}"))
        })?;
        Ok(Self(Some(Arc::new(file))))
    }

    /// Writes whole lines at once, so that those of several processes do not mix. Nothing can be
    /// done where that fails.
    pub(crate) fn write(&self, lines: &str) {
        let _ = match &self.0 {
            Some(file) => (&**file).write_all(lines.as_bytes()),
            None => std::io::stderr().write_all(lines.as_bytes()),
        };
    }
}

/// A text as it stands in a JSON string.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '"' | '\\' => escaped.extend(['\\', letter]),
            letter if letter < ' ' => escaped += &format!("\\u{:04x}", u32::from(letter)),
            letter => escaped.push(letter),
        }
    }
    escaped
}
