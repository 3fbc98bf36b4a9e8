//! `Destination`: the folders of an installation, and the files that go there.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::environment::workspace;

/// The folders of an installation.
///
/// The files are written below a staging folder, as `make install` does with `DESTDIR`: packages
/// are made of that folder. The installed files name the folders without it.
#[derive(Debug)]
pub(crate) struct Destination {
    prefix: PathBuf,
    lib: PathBuf,
    include: PathBuf,
    staging: Option<PathBuf>,
}

impl Destination {
    /// An installation below `prefix`. A relative `lib`, the folder of the libraries, is below
    /// `prefix`; without one it is `prefix/lib`. The same holds for `include`, the folder of the
    /// headers.
    pub(crate) fn new(
        prefix: &Path,
        lib: Option<&Path>,
        include: Option<&Path>,
        staging: Option<OsString>,
    ) -> anyhow::Result<Self> {
        let prefix = std::path::absolute(prefix)?;
        let staging = staging.filter(|folder| !folder.is_empty());
        let staging = staging.map(std::path::absolute).transpose()?;
        let lib = prefix.join(lib.unwrap_or_else(|| Path::new("lib")));
        let include = prefix.join(include.unwrap_or_else(|| Path::new("include")));
        Ok(Self {
            prefix,
            lib,
            include,
            staging,
        })
    }

    /// The folder in which the files of the libraries are written.
    pub(crate) fn lib(&self) -> PathBuf {
        self.staged(&self.lib)
    }

    /// The folder in which the files of this folder below the prefix are written.
    pub(crate) fn folder(&self, name: impl AsRef<Path>) -> PathBuf {
        self.staged(&self.prefix.join(name))
    }

    fn staged(&self, path: &Path) -> PathBuf {
        match &self.staging {
            Some(staging) => staging.join(path.strip_prefix("/").unwrap_or(path)),
            None => path.to_owned(),
        }
    }

    /// Copies all headers of a folder of the workspace.
    pub(crate) fn copy_headers(&self, folder: &Path) -> anyhow::Result<()> {
        copy_folder(&workspace().join(folder), &self.staged(&self.include))
    }

    /// The pkg-config file of `lib{library}.so`.
    pub(crate) fn pc_file(
        &self,
        name: &str,
        library: &str,
        description: &str,
        version: &str,
    ) -> String {
        format!(
            "prefix={}\nlibdir={}\nincludedir={}\n\nName: {name}\n\
             Description: {description}\nVersion: {version}\n\
             Libs: -L${{libdir}} -l{library}\nCflags: -I${{includedir}}\n",
            self.prefix.display(),
            self.below_prefix(&self.lib),
            self.below_prefix(&self.include),
        )
    }

    /// A folder in the words of a pkg-config file.
    fn below_prefix(&self, folder: &Path) -> String {
        match folder.strip_prefix(&self.prefix) {
            Ok(below) => format!("${{prefix}}/{}", below.display()),
            Err(_) => folder.display().to_string(),
        }
    }
}

/// Copies a folder with the folders in it.
pub(crate) fn copy_folder(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    let entries = fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))?;
    for entry in entries {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy_folder(&from, &to)?;
        } else {
            replace(&from, &to)?;
        }
    }
    Ok(())
}

/// Replaces a file by a copy of another. Running programs keep the old file.
pub(crate) fn replace(from: &Path, to: &Path) -> anyhow::Result<()> {
    let temporary = to.with_extension("new");
    fs::copy(from, &temporary)
        .with_context(|| format!("cannot copy {} to {}", from.display(), temporary.display()))?;
    fs::rename(&temporary, to).with_context(|| format!("cannot create {}", to.display()))
}
