//! `Files`: small text files of the kernel, read without an allocator.

use std::ffi::CStr;

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::read;

/// Reads files below a folder, which is the root folder except in tests.
pub(super) struct Files<'a> {
    root: &'a [u8],
    path: PathBuffer<'a>,
    text: &'a mut [u8],
}

impl<'a> Files<'a> {
    /// Uses `path` and `text` as memory: the longest path, and the longest text that is read.
    pub(super) fn new(root: &'a [u8], path: &'a mut [u8], text: &'a mut [u8]) -> Self {
        let path = PathBuffer::new(path);
        Self { root, path, text }
    }

    /// Reads a file whose path has several parts, up to the length of the memory for texts.
    /// Returns `None` if it cannot be read.
    pub(super) fn read(&mut self, parts: &[&[u8]]) -> Option<&[u8]> {
        self.path.truncate(0);
        self.path.push(self.root)?;
        for part in parts {
            self.path.push(part)?;
        }
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let file = open(self.path.as_c_str()?, flags, Mode::empty()).ok()?;
        let mut len = 0;
        // The kernel returns such files in parts of a page.
        while len < self.text.len() {
            match read(&file, &mut self.text[len..]).ok()? {
                0 => break,
                more => len += more,
            }
        }
        Some(&self.text[..len])
    }

    /// Reads the number that is the whole text of a file.
    pub(super) fn number(&mut self, parts: &[&[u8]]) -> Option<u64> {
        decimal(self.read(parts)?.trim_ascii())
    }
}

/// Parses a number of digits only.
pub(super) fn decimal(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Returns the number behind a name at the start of a line, between spaces.
pub(super) fn number_after(text: &[u8], name: &[u8]) -> Option<u64> {
    let mut lines = text.split(|byte| *byte == b'\n');
    let value = lines.find_map(|line| line.strip_prefix(name))?;
    let mut words = value.split(|byte| *byte == b' ');
    decimal(words.find(|word| !word.is_empty())?)
}

/// A path in memory of fixed size.
pub(super) struct PathBuffer<'a> {
    bytes: &'a mut [u8],
    len: usize,
}

impl<'a> PathBuffer<'a> {
    pub(super) fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, len: 0 }
    }

    /// Appends a part. Returns `None` without effect if there is no room.
    pub(super) fn push(&mut self, part: &[u8]) -> Option<()> {
        let end = self.len.checked_add(part.len())?;
        self.bytes.get_mut(self.len..end)?.copy_from_slice(part);
        self.len = end;
        Some(())
    }

    pub(super) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn as_c_str(&mut self) -> Option<&CStr> {
        *self.bytes.get_mut(self.len)? = 0;
        CStr::from_bytes_with_nul(&self.bytes[..=self.len]).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_the_name_at_the_start_of_their_line() {
        let text = b"MemTotal:  10 kB\nMemAvailable:   24576 kB\nX: -1\nY:\n";
        assert_eq!(number_after(text, b"MemAvailable:"), Some(24576));
        for absent in [b"Swap:".as_slice(), b"Available:", b"X:", b"Y:"] {
            assert_eq!(number_after(text, absent), None);
        }
    }

    #[test]
    fn a_path_that_is_too_long_is_not_opened() {
        let (mut path, mut text) = ([0; 8], [0; 8]);
        let mut files = Files::new(b"/", &mut path, &mut text);
        assert!(files.read(&[b"12345678"]).is_none());
        assert!(files.read(&[b"a\0b"]).is_none());
    }
}
