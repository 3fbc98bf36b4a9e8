//! Lays the C library out as a package of libfabric is: library, links, pkg-config, tools.
//!
//! Headers are libfabric's; none are installed, and `libfabric.pc` points to the user's.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::environment::workspace;

/// What is asked for.
#[derive(Debug)]
pub(crate) struct Install {
    pub(crate) prefix: PathBuf,
    pub(crate) built: Option<PathBuf>,
    pub(crate) headers: PathBuf,
}

/// The file behind the links, as the versions of libfabric number theirs.
const LIBRARY: &str = "libfabric.so.1.99.0";
const LINKS: [&str; 2] = ["libfabric.so.1", "libfabric.so"];
const TOOLS: [&str; 4] = ["fi_info", "fi_strerror", "fi_top", "fabtests"];
/// The version of libfabric whose interface it is.
const VERSION: &str = "2.6.0";

impl Install {
    /// Installs, and says what.
    pub(crate) fn run(&self) -> anyhow::Result<String> {
        let built = match &self.built {
            Some(folder) => folder.clone(),
            None => build(&["selvedge-fabric-c", "fabtests", "selvedge-top"])?,
        };
        let prefix = std::path::absolute(&self.prefix)?;
        let (lib, bin) = (prefix.join("lib"), prefix.join("bin"));
        let (pc, doc) = (lib.join("pkgconfig"), prefix.join("share/doc/selvedge"));
        for folder in [&lib, &bin, &pc, &doc] {
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot make {}", folder.display()))?;
        }
        put(&built.join("libfabric.so"), &lib.join(LIBRARY))?;
        for name in LINKS {
            link(&lib.join(name))?;
        }
        for tool in TOOLS {
            put(&built.join(tool), &bin.join(tool))?;
        }
        put(&workspace().join("docs/CFACE.md"), &doc.join("CFACE.md"))?;
        fs::write(pc.join("libfabric.pc"), self.description(&prefix))?;
        Ok(self.report(&prefix))
    }

    fn description(&self, prefix: &Path) -> String {
        format!(
            "prefix={}\nlibdir=${{prefix}}/lib\nincludedir={}\n\nName: libfabric\n\
             Description: libfabric's interface, on Selvedge\nVersion: {VERSION}\n\
             Libs: -L${{libdir}} -lfabric\nCflags: -I${{includedir}}\n",
            prefix.display(),
            self.headers.display()
        )
    }

    fn report(&self, prefix: &Path) -> String {
        let lib = prefix.join("lib");
        let mut text = format!(
            "installed to {}\nto run a program on it: LD_LIBRARY_PATH={}\n\
             to build one for it:    PKG_CONFIG_PATH={}\n",
            prefix.display(),
            lib.display(),
            lib.join("pkgconfig").display()
        );
        if !self.headers.join("rdma/fabric.h").exists() {
            text += &format!(
                "there is no rdma/fabric.h in {}: to build programs, install libfabric's headers \
                 (Debian: libfabric-dev), or say --headers\n",
                self.headers.display()
            );
        }
        text
    }
}

/// Builds what is installed; where it is.
pub(crate) fn build(packages: &[&str]) -> anyhow::Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--release"])
        .args(packages.iter().flat_map(|package| ["--package", package]))
        .current_dir(workspace())
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "it does not build");
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| workspace().join("target"));
    Ok(workspace().join(target).join("release"))
}

/// Copies a file to where a running program may still have the one before.
pub(crate) fn put(from: &Path, to: &Path) -> anyhow::Result<()> {
    let beside = to.with_extension("new");
    fs::copy(from, &beside)
        .with_context(|| format!("cannot copy {} to {}", from.display(), beside.display()))?;
    fs::rename(&beside, to).with_context(|| format!("cannot make {}", to.display()))
}

fn link(at: &Path) -> anyhow::Result<()> {
    if at.is_symlink() {
        fs::remove_file(at).with_context(|| format!("cannot replace {}", at.display()))?;
    }
    symlink(LIBRARY, at).with_context(|| format!("cannot make {}", at.display()))
}
