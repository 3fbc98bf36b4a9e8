//! `Libraries`: the libraries of the system that packaged files need, read from their symbols.

/// The system's libraries that files need.
#[derive(Debug, Default)]
pub(super) struct Libraries {
    /// The newest version of glibc whose symbols are used.
    pub(super) glibc: Option<(u32, u32)>,
    needs_libgcc: bool,
}

impl Libraries {
    /// Adds the libraries that a library or program names in its table of versions.
    pub(super) fn add(&mut self, content: &[u8]) {
        if !content.starts_with(b"\x7fELF") {
            return;
        }
        for name in content.split(|&byte| byte == 0) {
            let name = std::str::from_utf8(name).unwrap_or_default();
            self.needs_libgcc |= name == "libgcc_s.so.1";
            let version = name
                .strip_prefix("GLIBC_")
                .and_then(|name| name.split_once('.'));
            if let Some((major, minor)) = version
                && let (Ok(major), Ok(minor)) = (major.parse(), minor.parse())
            {
                self.glibc = self.glibc.max(Some((major, minor)));
            }
        }
    }

    /// The line `Depends`; empty if the files need no library.
    pub(super) fn depends(&self) -> String {
        let glibc = self
            .glibc
            .map(|(major, minor)| format!("libc6 (>= {major}.{minor})"));
        let libgcc = self.needs_libgcc.then(|| "libgcc-s1".to_owned());
        let names: Vec<_> = [glibc, libgcc].into_iter().flatten().collect();
        if names.is_empty() {
            return String::new();
        }
        format!("Depends: {}\n", names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_of_glibc_is_required() {
        let mut libraries = Libraries::default();
        libraries.add(b"GLIBC_9.9\0");
        assert_eq!(libraries.depends(), "");
        libraries.add(b"\x7fELF\0GLIBC_2.34\0GLIBC_2.4\0GLIBC_PRIVATE\0");
        assert_eq!(libraries.depends(), "Depends: libc6 (>= 2.34)\n");
        libraries.add(b"\x7fELF\0libgcc_s.so.1\0");
        assert_eq!(libraries.depends(), "Depends: libc6 (>= 2.34), libgcc-s1\n");
    }
}
