//! `cargo xtask install-bmi` and `install-cheetah`: C libraries with their own headers.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::environment::workspace;
use crate::install::{build, replace};

/// A C library and its files.
#[derive(Debug)]
pub(crate) struct CLibrary {
    name: &'static str,
    description: &'static str,
    packages: &'static [&'static str],
    /// The directory of the headers.
    include_dir: &'static str,
    headers: &'static [&'static str],
    programs: &'static [&'static str],
    /// The name of the page in docs/.
    page: &'static str,
}

pub(crate) const BMI: CLibrary = CLibrary {
    name: "bmi",
    description: "BMI, the Buffered Message Interface",
    packages: &["selvedge-bmi-c"],
    include_dir: "util/capi/bmi/include",
    headers: &[
        "bmi.h",
        "bmi-types.h",
        "gossip.h",
        "pvfs2.h",
        "pvfs2-types.h",
    ],
    programs: &[],
    page: "BMI.md",
};

pub(crate) const CHEETAH: CLibrary = CLibrary {
    name: "cheetah",
    description: "Cheetah, one-sided messaging",
    packages: &["selvedge-cheetah-c", "selvedge-cheetah"],
    include_dir: "util/capi/cheetah/include",
    headers: &["cheetah.h", "Cheetah/Cheetah.h", "Cheetah/Std.h"],
    programs: &["cheetahrun"],
    page: "CHEETAH.md",
};

impl CLibrary {
    /// Installs the library from the build directory `built`, or builds it. Returns instructions
    /// for its use.
    pub(crate) fn install(&self, prefix: &Path, built: Option<PathBuf>) -> anyhow::Result<String> {
        let built = match built {
            Some(dir) => dir,
            None => build(self.packages)?,
        };
        let prefix = std::path::absolute(prefix)?;
        let lib = prefix.join("lib");
        let library = format!("lib{}.so", self.name);
        copy_to(&built.join(&library), &lib.join(&library))?;
        for header in self.headers {
            let from = workspace().join(self.include_dir).join(header);
            copy_to(&from, &prefix.join("include").join(header))?;
        }
        for program in self.programs {
            copy_to(&built.join(program), &prefix.join("bin").join(program))?;
        }
        let page = workspace().join("docs").join(self.page);
        copy_to(&page, &prefix.join("share/doc/selvedge").join(self.page))?;
        let pc_file = lib.join("pkgconfig").join(format!("{}.pc", self.name));
        make_parent_dir(&pc_file)?;
        fs::write(&pc_file, self.pc_file(&prefix))?;
        Ok(format!(
            "installed to {0}\nto build a program: export PKG_CONFIG_PATH={1}\n\
             \x20                   cc program.c $(pkg-config --cflags --libs {2}) -Wl,-rpath,{3}\n",
            prefix.display(),
            lib.join("pkgconfig").display(),
            self.name,
            lib.display()
        ))
    }

    fn pc_file(&self, prefix: &Path) -> String {
        format!(
            "prefix={}\nlibdir=${{prefix}}/lib\nincludedir=${{prefix}}/include\n\nName: {1}\n\
             Description: {2}, on Selvedge\nVersion: {3}\n\
             Libs: -L${{libdir}} -l{1}\nCflags: -I${{includedir}}\n",
            prefix.display(),
            self.name,
            self.description,
            env!("CARGO_PKG_VERSION")
        )
    }
}

fn copy_to(from: &Path, to: &Path) -> anyhow::Result<()> {
    make_parent_dir(to)?;
    replace(from, to)
}

fn make_parent_dir(file: &Path) -> anyhow::Result<()> {
    let dir = file.parent().context("the path has no parent directory")?;
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))
}
