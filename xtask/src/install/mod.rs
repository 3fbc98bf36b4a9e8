//! `cargo xtask install`: installs the C library like a libfabric package: library, links, headers,
//! pkg-config file, tools with man pages and completions; the providers for another libfabric; and
//! the shared heap for `LD_PRELOAD`.

mod binary;
mod build;
mod c_library;
mod destination;
mod help;
mod pages;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::environment::workspace;

pub(crate) use binary::Symbols;
use build::build;
pub(crate) use c_library::{BMI, CHEETAH};
use destination::replace;
pub(crate) use destination::{Destination, copy_folder};

/// Options of the task.
#[derive(Debug)]
pub(crate) struct Install {
    pub(crate) destination: Destination,
    pub(crate) built: Option<PathBuf>,
    pub(crate) symbols: Symbols,
    /// The folder of the providers for another libfabric, relative to the prefix.
    pub(crate) providers: PathBuf,
    /// The beginning of the installed names of tools that libfabric has too.
    pub(crate) tool_prefix: &'static str,
}

/// The file name of the library, with a version number like libfabric's.
const LIBRARY: &str = "libfabric.so.1.99.0";
const LINKS: [&str; 2] = ["libfabric.so.1", "libfabric.so"];
/// The file names of the external providers, which are copies of one library.
const PROVIDERS: [&str; 2] = ["libselvedge_shm-fi.so", "libselvedge_tcp-fi.so"];
/// The shared heap for `LD_PRELOAD`.
const HEAP: &str = "libselvedge_heap.so";
/// The tools, and whether libfabric has a tool of the same name.
const TOOLS: [(&str, bool); 5] = [
    ("fi_info", true),
    ("fi_strerror", true),
    ("fi_top", false),
    ("fabtests", false),
    ("selvedge-run", false),
];
/// The folder of the headers, in the workspace.
const HEADERS: &str = "util/capi/fabric/include";
/// The version of the headers.
const VERSION: &str = "2.6.0";

impl Install {
    /// Installs the files. Returns a summary.
    pub(crate) fn run(&self) -> anyhow::Result<String> {
        let built = match &self.built {
            Some(dir) => dir.clone(),
            None => build(&[
                "selvedge-libfabric",
                "selvedge-provider",
                "selvedge-heap-c",
                "fabtests",
                "selvedge-top",
            ])?,
        };
        let (lib, bin) = (self.destination.lib(), self.destination.folder("bin"));
        let providers = self.destination.folder(&self.providers);
        let (pc, doc) = (
            lib.join("pkgconfig"),
            self.destination.folder("share/doc/selvedge"),
        );
        for dir in [&lib, &bin, &pc, &doc, &providers] {
            fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        }
        let install = |from: &str, to: &Path| self.symbols.install(&built.join(from), to);
        install("libfabric.so", &lib.join(LIBRARY))?;
        install("libselvedge_heap_c.so", &lib.join(HEAP))?;
        for name in PROVIDERS {
            install("libselvedge_fi.so", &providers.join(name))?;
        }
        for name in LINKS {
            link(&lib.join(name))?;
        }
        for (tool, has_libfabric_s_name) in TOOLS {
            let prefix = if has_libfabric_s_name {
                self.tool_prefix
            } else {
                ""
            };
            let name = format!("{prefix}{tool}");
            install(tool, &bin.join(&name))?;
            pages::write(&self.destination, &bin.join(&name), &name)?;
        }
        self.destination.copy_headers(Path::new(HEADERS))?;
        replace(&workspace().join("docs/CFACE.md"), &doc.join("CFACE.md"))?;
        fs::write(pc.join("libfabric.pc"), self.pc_file())?;
        Ok(self.report())
    }

    fn pc_file(&self) -> String {
        let description = "libfabric's interface, on Selvedge";
        self.destination
            .pc_file("libfabric", "fabric", description, VERSION)
    }

    fn report(&self) -> String {
        let lib = self.destination.lib();
        format!(
            "installed to {}\nto run a program on it: LD_LIBRARY_PATH={}\n\
             to build one for it:    PKG_CONFIG_PATH={}\n",
            self.destination.folder("").display(),
            lib.display(),
            lib.join("pkgconfig").display()
        )
    }
}

fn link(path: &Path) -> anyhow::Result<()> {
    if path.is_symlink() {
        fs::remove_file(path).with_context(|| format!("cannot replace {}", path.display()))?;
    }
    symlink(LIBRARY, path).with_context(|| format!("cannot create {}", path.display()))
}
