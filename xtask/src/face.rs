//! Lays out the C libraries that have headers of their own: BMI and Cheetah.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::environment::workspace;
use crate::install::{build, put};

/// A library, and what comes with it.
#[derive(Debug)]
pub(crate) struct Face {
    name: &'static str,
    says: &'static str,
    packages: &'static [&'static str],
    /// Where its headers are.
    folder: &'static str,
    headers: &'static [&'static str],
    programs: &'static [&'static str],
    page: &'static str,
}

pub(crate) const BMI: Face = Face {
    name: "bmi",
    says: "BMI, the Buffered Message Interface",
    packages: &["selvedge-bmi-c"],
    folder: "util/capi/bmi/include",
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

pub(crate) const CHEETAH: Face = Face {
    name: "cheetah",
    says: "Cheetah, one-sided messaging",
    packages: &["selvedge-cheetah-c", "selvedge-cheetah"],
    folder: "util/capi/cheetah/include",
    headers: &["cheetah.h", "Cheetah/Cheetah.h", "Cheetah/Std.h"],
    programs: &["cheetahrun"],
    page: "CHEETAH.md",
};

impl Face {
    /// Installs it, and says how it is used.
    pub(crate) fn install(&self, prefix: &Path, built: Option<PathBuf>) -> anyhow::Result<String> {
        let built = match built {
            Some(folder) => folder,
            None => build(self.packages)?,
        };
        let prefix = std::path::absolute(prefix)?;
        let lib = prefix.join("lib");
        let library = format!("lib{}.so", self.name);
        place(&built.join(&library), &lib.join(&library))?;
        for header in self.headers {
            let from = workspace().join(self.folder).join(header);
            place(&from, &prefix.join("include").join(header))?;
        }
        for program in self.programs {
            place(&built.join(program), &prefix.join("bin").join(program))?;
        }
        let page = workspace().join("docs").join(self.page);
        place(&page, &prefix.join("share/doc/selvedge").join(self.page))?;
        let description = lib.join("pkgconfig").join(format!("{}.pc", self.name));
        make_folder_of(&description)?;
        fs::write(&description, self.description(&prefix))?;
        Ok(format!(
            "installed to {0}\nto build a program: export PKG_CONFIG_PATH={1}\n\
             \x20                   cc program.c $(pkg-config --cflags --libs {2}) -Wl,-rpath,{3}\n",
            prefix.display(),
            lib.join("pkgconfig").display(),
            self.name,
            lib.display()
        ))
    }

    fn description(&self, prefix: &Path) -> String {
        format!(
            "prefix={}\nlibdir=${{prefix}}/lib\nincludedir=${{prefix}}/include\n\nName: {1}\n\
             Description: {2}, on Selvedge\nVersion: {3}\n\
             Libs: -L${{libdir}} -l{1}\nCflags: -I${{includedir}}\n",
            prefix.display(),
            self.name,
            self.says,
            env!("CARGO_PKG_VERSION")
        )
    }
}

fn place(from: &Path, to: &Path) -> anyhow::Result<()> {
    make_folder_of(to)?;
    put(from, to)
}

fn make_folder_of(file: &Path) -> anyhow::Result<()> {
    let folder = file.parent().context("a file lies in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}
