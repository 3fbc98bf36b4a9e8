//! The contestant over libfabric: a C program that is compiled on the machine with libfabric's
//! headers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, bail};

use crate::machine::cpu::Placement;
use crate::pair::Pair;

/// The compiled program. Dropping it removes its folder.
#[derive(Debug)]
pub struct Libfabric {
    folder: PathBuf,
    version: String,
    /// libfabric's provider; `None` for the one with the measured provider's name.
    provider: Option<String>,
}

impl Libfabric {
    /// Compiles the program, which will use libfabric's `provider`. `None` selects the provider
    /// with the name of the measured one.
    ///
    /// # Errors
    /// When there is no C compiler or no libfabric. The error names the packages to install.
    pub fn compile(provider: Option<String>) -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("fabtests-{}", std::process::id()));
        std::fs::create_dir(&folder)
            .with_context(|| format!("cannot create the folder {}", folder.display()))?;
        let mut program = Self {
            folder,
            version: "libfabric".to_owned(),
            provider,
        };
        program.build(PROGRAM_NAME, SOURCE, &["-lfabric"]).context(
            "cannot compile the program for libfabric: install a C compiler and libfabric's \
             headers (on Debian: apt-get install gcc libfabric-dev), or leave out --against",
        )?;
        program.version = program.loaded_version();
        Ok(program)
    }

    /// Starts the program twice, as the baseline of Selvedge's `provider`.
    ///
    /// # Errors
    /// As [`Pair::spawn`].
    pub fn start(
        &self,
        provider: &str,
        placement: Placement,
        deadline: Instant,
    ) -> anyhow::Result<Pair> {
        let provider = self.provider.as_deref().unwrap_or(provider);
        Pair::spawn(deadline, |side| {
            let core = placement
                .cores()
                .map_or_else(|| "-1".to_owned(), |cores| cores[side as usize].to_string());
            let mut command = Command::new(self.path(PROGRAM_NAME));
            command
                .env("FI_PROVIDER", provider)
                .arg(side.to_string())
                .arg(core)
                .arg(std::process::id().to_string())
                .arg(u8::from(placement.is_one_core()).to_string());
            command
        })
    }

    /// The library's name and version.
    pub fn version(&self) -> &str {
        &self.version
    }

    fn build(&self, name: &str, source: &str, libraries: &[&str]) -> anyhow::Result<()> {
        let file = self.path(&format!("{name}.c"));
        std::fs::write(&file, source)
            .with_context(|| format!("cannot write {}", file.display()))?;
        let output = Command::new("gcc")
            .args(["-O2", "-std=gnu11", "-o"])
            .args([self.path(name).as_path(), file.as_path()])
            .args(libraries)
            .output()
            .context("cannot run gcc")?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            let first: Vec<_> = errors.lines().take(4).collect();
            bail!("gcc failed:\n  {}", first.join("\n  "));
        }
        Ok(())
    }

    /// Name and version of the library that is loaded at run time, which may differ from the
    /// headers.
    fn loaded_version(&self) -> String {
        let version = self
            .build("version", VERSION_SOURCE, &["-lfabric"])
            .and_then(|()| {
                let output = Command::new(self.path("version")).output()?;
                Ok(String::from_utf8(output.stdout)?.trim().to_owned())
            });
        match version {
            Ok(version) => format!("libfabric {version}"),
            Err(_) => "libfabric".to_owned(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new(&self.folder).join(name)
    }
}

impl Drop for Libfabric {
    fn drop(&mut self) {
        // A folder that stays is in the system's folder for temporary files, which the system
        // empties later.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

const PROGRAM_NAME: &str = "ofi_bench";
const SOURCE: &str = include_str!("../../c/ofi_bench.c");
const VERSION_SOURCE: &str = "#include <stdio.h>\n#include <rdma/fabric.h>\n\
    int main(void) { unsigned v = fi_version();\n\
    printf(\"%u.%u\\n\", FI_MAJOR(v), FI_MINOR(v)); return 0; }\n";
