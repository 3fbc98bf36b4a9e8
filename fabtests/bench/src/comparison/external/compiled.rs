//! Contestants over libraries with a C interface: C programs that are compiled on the machine with
//! the libraries' headers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, bail};

use crate::machine::cpu::Placement;
use crate::pair::{Pair, Side};

/// A library that a contestant uses.
#[derive(Debug)]
struct Library {
    name: &'static str,
    compiler: &'static str,
    /// The file name and the text of the program.
    program: (&'static str, &'static str),
    /// A program that prints the version of the library that is loaded at run time.
    version: &'static str,
    /// Options of the linker.
    link: &'static [&'static str],
    /// The packages that the program needs, on Debian.
    packages: &'static str,
    /// The environment of the program, for the provider that is measured and the transport of the
    /// library.
    environment: fn(&str, Option<&str>) -> Vec<Variable>,
}

/// A variable of a program's environment.
type Variable = (&'static str, String);

/// A compiled program. Dropping it removes its folder.
#[derive(Debug)]
pub struct CompiledProgram {
    folder: PathBuf,
    library: &'static Library,
    version: String,
    /// The library's transport; `None` for the one that fits the measured provider.
    transport: Option<String>,
}

impl CompiledProgram {
    /// Compiles the program over libfabric, which will use libfabric's `provider`. `None` selects
    /// the provider with the name of the measured one.
    ///
    /// # Errors
    /// When there is no C compiler or no libfabric. The error names the packages to install.
    pub fn libfabric(provider: Option<String>) -> anyhow::Result<Self> {
        Self::compile(&LIBFABRIC, provider)
    }

    /// Compiles the program over UCX, which will use UCX's `transports` (`UCX_TLS`). `None` selects
    /// all transports through shared memory for shm, and TCP for other providers.
    ///
    /// # Errors
    /// When there is no C compiler or no UCX. The error names the packages to install.
    pub fn ucx(transports: Option<String>) -> anyhow::Result<Self> {
        Self::compile(&UCX, transports)
    }

    /// Compiles the program over MPI with `mpicc`.
    ///
    /// # Errors
    /// When there is no MPI. The error names the packages to install.
    pub(super) fn mpi() -> anyhow::Result<Self> {
        Self::compile(&MPI, None)
    }

    fn compile(library: &'static Library, transport: Option<String>) -> anyhow::Result<Self> {
        let name = format!("fabtests-{}-{}", library.name, std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder)
            .with_context(|| format!("cannot create the folder {}", folder.display()))?;
        let mut program = Self {
            folder,
            library,
            version: library.name.to_owned(),
            transport,
        };
        program.build_contestant().with_context(|| {
            format!(
                "cannot compile the program for {}: install a C compiler and its headers (on \
                 Debian: apt-get install {}), or leave out --against",
                library.name, library.packages
            )
        })?;
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
        let environment = (self.library.environment)(provider, self.transport.as_deref());
        Pair::spawn(deadline, |side| {
            let mut command = Command::new(self.program());
            command
                .envs(environment.iter().cloned())
                .args(Self::arguments(
                    side,
                    placement,
                    &std::process::id().to_string(),
                ));
            command
        })
    }

    /// The arguments of a process. `parent` is the ID of the parent, or the path of a control
    /// socket.
    pub(super) fn arguments(side: Side, placement: Placement, parent: &str) -> [String; 4] {
        let core = placement
            .cores()
            .map_or_else(|| "-1".to_owned(), |cores| cores[side as usize].to_string());
        let is_yielding = u8::from(placement.is_one_core());
        [
            side.to_string(),
            core,
            parent.to_owned(),
            is_yielding.to_string(),
        ]
    }

    /// The library's name and version.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The file of the program.
    pub(super) fn program(&self) -> PathBuf {
        self.path(PROGRAM_NAME)
    }

    /// The folder of the program.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    fn build_contestant(&self) -> anyhow::Result<()> {
        let (file, source) = self.library.program;
        self.write("contestant.h", CONTESTANT)?;
        self.write("loops.h", LOOPS)?;
        self.write("orders.h", ORDERS)?;
        self.build(PROGRAM_NAME, file, source)
    }

    fn build(&self, name: &str, file: &str, source: &str) -> anyhow::Result<()> {
        let file = self.write(file, source)?;
        let compiler = self.library.compiler;
        let output = Command::new(compiler)
            .args(["-O2", "-std=gnu11", "-o"])
            .args([self.path(name).as_path(), file.as_path()])
            .args(self.library.link)
            .output()
            .with_context(|| format!("cannot run {compiler}"))?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            let first: Vec<_> = errors.lines().take(4).collect();
            bail!("{compiler} failed:\n  {}", first.join("\n  "));
        }
        Ok(())
    }

    fn write(&self, file: &str, source: &str) -> anyhow::Result<PathBuf> {
        let path = self.path(file);
        std::fs::write(&path, source)
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// Name and version of the library that is loaded at run time, which may differ from the
    /// headers.
    fn loaded_version(&self) -> String {
        let version = self
            .build("version", "version.c", self.library.version)
            .and_then(|()| {
                let output = Command::new(self.path("version")).output()?;
                Ok(String::from_utf8(output.stdout)?.trim().to_owned())
            });
        match version {
            Ok(version) => format!("{} {version}", self.library.name),
            Err(_) => self.library.name.to_owned(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new(&self.folder).join(name)
    }
}

impl Drop for CompiledProgram {
    fn drop(&mut self) {
        // A folder that stays is in the system's folder for temporary files, which the system
        // empties later.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

const PROGRAM_NAME: &str = "contestant";
const CONTESTANT: &str = include_str!("../../../c/contestant.h");
const LOOPS: &str = include_str!("../../../c/loops.h");
const ORDERS: &str = include_str!("../../../c/orders.h");

static LIBFABRIC: Library = Library {
    name: "libfabric",
    compiler: "gcc",
    program: ("ofi_bench.c", include_str!("../../../c/ofi_bench.c")),
    version: "#include <stdio.h>\n#include <rdma/fabric.h>\n\
        int main(void) { unsigned v = fi_version();\n\
        printf(\"%u.%u\\n\", FI_MAJOR(v), FI_MINOR(v)); return 0; }\n",
    link: &["-lfabric"],
    packages: "gcc libfabric-dev",
    environment: |provider, transport| {
        vec![("FI_PROVIDER", transport.unwrap_or(provider).to_owned())]
    },
};

static UCX: Library = Library {
    name: "ucx",
    compiler: "gcc",
    program: ("ucx_bench.c", include_str!("../../../c/ucx_bench.c")),
    version: "#include <stdio.h>\n#include <ucp/api/ucp.h>\n\
        int main(void) { printf(\"%s\\n\", ucp_get_version_string()); return 0; }\n",
    link: &["-lucp", "-lucs"],
    packages: "gcc libucx-dev",
    environment: |provider, transport| {
        let fitting = if provider == "shm" {
            "sm,self"
        } else {
            "tcp,self"
        };
        vec![
            ("UCX_TLS", transport.unwrap_or(fitting).to_owned()),
            // Lines about unused or unknown variables would precede a process's last words.
            ("UCX_LOG_LEVEL", "error".to_owned()),
            ("BENCH_PROVIDER", transport.unwrap_or(provider).to_owned()),
        ]
    },
};

static MPI: Library = Library {
    name: "openmpi",
    compiler: "mpicc",
    program: ("mpi_bench.c", include_str!("../../../c/mpi_bench.c")),
    version: "#include <mpi.h>\n#include <stdio.h>\n\
        int main(void) { char text[MPI_MAX_LIBRARY_VERSION_STRING], version[16];\n\
        int length; MPI_Get_library_version(text, &length);\n\
        return sscanf(text, \"Open MPI v%15[0-9.]\", version) != 1 || puts(version) < 0; }\n",
    link: &[],
    packages: "gcc libopenmpi-dev openmpi-bin",
    environment: |_, _| Vec::new(),
};
