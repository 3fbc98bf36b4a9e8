//! The output of hooks: a file, or standard error.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

use nix::fcntl::OFlag;
use selvedge::{Errno, Error};

/// A file that several processes may write lines to.
#[derive(Clone, Debug)]
pub(crate) struct Output(Option<Arc<File>>);

impl Output {
    /// Opens the file of `FI_HOOK_FILE`, in whose name `%p` is replaced by the process ID; standard
    /// error if the name is empty.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn open(path: &str) -> Result<Self, Error> {
        if path.is_empty() {
            return Ok(Self(None));
        }
        let path = path.replace("%p", &std::process::id().to_string());
        let mut options = OpenOptions::new();
        // A pipe without a reader is an error: the open must not block.
        options.custom_flags(OFlag::O_NONBLOCK.bits());
        let file = options.create(true).append(true).open(&path);
        let file = file.map_err(|cause| {
            let errno = cause.raw_os_error().map_or(Errno::Io, Errno::from_raw);
            Error::new(errno, format!("cannot open FI_HOOK_FILE {path:?}: {cause}"))
        })?;
        Ok(Self(Some(Arc::new(file))))
    }

    /// Writes whole lines at once, so that lines of several processes do not mix. Ignores errors.
    pub(crate) fn write(&self, lines: &str) {
        let _ = match &self.0 {
            Some(file) => (&**file).write_all(lines.as_bytes()),
            None => std::io::stderr().write_all(lines.as_bytes()),
        };
    }
}

/// Escapes a text for a JSON string.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '"' | '\\' => escaped.extend(['\\', char]),
            char if char < ' ' => escaped += &format!("\\u{:04x}", u32::from(char)),
            char => escaped.push(char),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opening_a_pipe_without_a_reader_fails_at_once() {
        let path = std::env::temp_dir().join(format!("hook-{}", std::process::id()));
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let opened = Output::open(&path.to_string_lossy());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(
            opened.unwrap_err().errno(),
            Errno::from_raw(nix::libc::ENXIO)
        );
    }
}
