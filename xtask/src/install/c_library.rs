//! `cargo xtask install-bmi` and `install-cheetah`: C libraries with their own headers.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::binary::Symbols;
use super::build::build;
use super::destination::{Destination, replace};
use super::pages;
use crate::environment::workspace;

/// A C library and its files.
#[derive(Debug)]
pub(crate) struct CLibrary {
    name: &'static str,
    description: &'static str,
    packages: &'static [&'static str],
    /// The directory of the headers.
    include_dir: &'static str,
    programs: &'static [&'static str],
    /// The name of the page in docs/.
    page: &'static str,
}

pub(crate) const BMI: CLibrary = CLibrary {
    name: "bmi",
    description: "BMI, the Buffered Message Interface",
    packages: &["selvedge-bmi-c"],
    include_dir: "util/capi/bmi/include",
    programs: &[],
    page: "BMI.md",
};

pub(crate) const CHEETAH: CLibrary = CLibrary {
    name: "cheetah",
    description: "Cheetah, one-sided messaging",
    packages: &["selvedge-cheetah-c", "selvedge-cheetah"],
    include_dir: "util/capi/cheetah/include",
    programs: &["cheetahrun"],
    page: "CHEETAH.md",
};

impl CLibrary {
    /// Installs the library from the build directory `built`, or builds it. Returns instructions
    /// for its use.
    pub(crate) fn install(
        &self,
        destination: &Destination,
        built: Option<PathBuf>,
        symbols: Symbols,
    ) -> anyhow::Result<String> {
        let built = match built {
            Some(dir) => dir,
            None => build(self.packages)?,
        };
        let lib = destination.lib();
        let library = format!("lib{}.so", self.name);
        let file = lib.join(&library);
        make_parent_dir(&file)?;
        symbols.install(&built.join(&library), &file)?;
        destination.copy_headers(Path::new(self.include_dir))?;
        for program in self.programs {
            let file = destination.folder("bin").join(program);
            make_parent_dir(&file)?;
            symbols.install(&built.join(program), &file)?;
            pages::write(destination, &file, program)?;
        }
        let page = destination.folder("share/doc/selvedge").join(self.page);
        make_parent_dir(&page)?;
        replace(&workspace().join("docs").join(self.page), &page)?;
        let pc_file = lib.join("pkgconfig").join(format!("{}.pc", self.name));
        make_parent_dir(&pc_file)?;
        let version = env!("CARGO_PKG_VERSION");
        let description = format!("{}, on Selvedge", self.description);
        let text = destination.pc_file(self.name, self.name, &description, version);
        fs::write(&pc_file, text)?;
        Ok(format!(
            "installed to {0}\nto build a program: export PKG_CONFIG_PATH={1}\n\
             \x20                   cc program.c $(pkg-config --cflags --libs {2}) -Wl,-rpath,{3}\n",
            destination.folder("").display(),
            lib.join("pkgconfig").display(),
            self.name,
            lib.display()
        ))
    }
}

fn make_parent_dir(file: &Path) -> anyhow::Result<()> {
    let dir = file.parent().context("the path has no parent directory")?;
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))
}
