//! The contestants over MPI: two ranks of Open MPI, over Selvedge's `libfabric.so.1` with and
//! without the shared heap, and over Open MPI's own transports.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};

use super::CompiledProgram;
use crate::machine::cpu::Placement;
use crate::pair::{Pair, Side};

/// Two ranks whose messages take one route.
#[derive(Debug)]
pub struct Mpi {
    program: Rc<CompiledProgram>,
    route: Route,
    /// The folder of Selvedge's libraries; unused by Open MPI's own transports.
    libraries: PathBuf,
}

/// The route of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// `libfabric.so.1` of Selvedge.
    Selvedge,
    /// The same, in ranks that preload the shared heap.
    Heap,
    /// Open MPI's own transports.
    Own,
}

impl Mpi {
    /// Compiles the program over MPI. Returns all routes, or those of `names`, separated by commas.
    ///
    /// # Errors
    /// When there is no MPI, `LD_LIBRARY_PATH` does not lead to Selvedge's libraries, or a name is
    /// unknown. The error names the remedy.
    pub fn compile(names: Option<&str>) -> anyhow::Result<Vec<Self>> {
        let names = names.unwrap_or("selvedge,heap,own").split(',');
        let routes: Vec<_> = names.map(Route::parse).collect::<anyhow::Result<_>>()?;
        let libraries = if routes.iter().all(|route| *route == Route::Own) {
            PathBuf::new()
        } else {
            find_libraries()?
        };
        let program = Rc::new(CompiledProgram::mpi()?);
        let contestants = routes.into_iter().map(|route| Self {
            program: Rc::clone(&program),
            route,
            libraries: libraries.clone(),
        });
        Ok(contestants.collect())
    }

    /// Starts two ranks whose messages go over `provider`, or, over Open MPI's own transports, the
    /// one that corresponds to it.
    ///
    /// # Errors
    /// As [`Pair::launch`].
    pub fn start(
        &self,
        provider: &str,
        placement: Placement,
        deadline: Instant,
    ) -> anyhow::Result<Pair> {
        Pair::launch(deadline, self.program.folder(), |sockets| {
            let mut command = Command::new("mpirun");
            command
                .envs(ROOT_ENVIRONMENT)
                .env("BENCH_PROVIDER", provider)
                .args(["--bind-to", "none", "--oversubscribe"]);
            let yields = u8::from(placement.is_one_core()).to_string();
            set(&mut command, "mpi_yield_when_idle", &yields);
            self.select_route(&mut command, provider);
            for (side, socket) in Side::BOTH.into_iter().zip(sockets) {
                let socket = socket.to_string_lossy();
                self.export(&mut command);
                command
                    .args(["-n", "1"])
                    .arg(self.program.program())
                    .args(CompiledProgram::arguments(side, placement, &socket))
                    .args((side == Side::Active).then_some(":"));
            }
            command
        })
    }

    fn select_route(&self, command: &mut Command, provider: &str) {
        if self.route == Route::Own {
            let transports = if provider == "shm" {
                "^ofi"
            } else {
                "tcp,self"
            };
            set(command, "pml", "ob1");
            return set(command, "btl", transports);
        }
        set(command, "pml", "cm");
        set(command, "mtl", "ofi");
        set(command, "mtl_ofi_provider_include", provider);
        command.env("BENCH_LIBRARY", self.libraries.join("libfabric.so"));
        if self.route == Route::Heap {
            command.env("BENCH_HEAP", self.libraries.join(HEAP));
        }
    }

    /// The variables that one rank gets and `mpirun` does not.
    fn export(&self, command: &mut Command) {
        if self.route == Route::Heap {
            let heap = self.libraries.join(HEAP);
            command.args(["-x", &format!("LD_PRELOAD={}", heap.display())]);
        }
    }

    /// Name and version of the MPI.
    pub fn version(&self) -> &str {
        self.program.version()
    }

    /// The name of the route of messages.
    pub fn route(&self) -> String {
        self.route.to_string()
    }
}

impl Route {
    fn parse(name: &str) -> anyhow::Result<Self> {
        Ok(match name {
            "selvedge" => Self::Selvedge,
            "heap" => Self::Heap,
            "own" => Self::Own,
            _ => bail!("--baseline {name}: choose selvedge, heap or own"),
        })
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Selvedge => "over selvedge",
            Self::Heap => "over selvedge with the shared heap",
            Self::Own => "over its own transports",
        })
    }
}

/// Sets a parameter of Open MPI.
fn set(command: &mut Command, name: &str, value: &str) {
    command.args(["--mca", name, value]);
}

/// The folder in `LD_LIBRARY_PATH` that has Selvedge's libraries.
fn find_libraries() -> anyhow::Result<PathBuf> {
    let folders = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let has_libraries =
        |folder: &PathBuf| folder.join("libfabric.so.1").exists() && folder.join(HEAP).exists();
    let found = env::split_paths(&folders).find(has_libraries);
    let folder = found.context(
        "--against mpi: no folder of LD_LIBRARY_PATH has Selvedge's libfabric.so.1 and \
         libselvedge_heap.so: install them with `cargo xtask install --prefix ~/selvedge` and set \
         LD_LIBRARY_PATH=~/selvedge/lib, or choose --baseline own",
    )?;
    resolve(&folder)
}

/// The folder without symbolic links, as the kernel names it in lists of mapped files.
fn resolve(folder: &Path) -> anyhow::Result<PathBuf> {
    let resolved = folder.canonicalize();
    let resolved = resolved.with_context(|| format!("cannot resolve {}", folder.display()))?;
    ensure!(
        resolved.to_str().is_some(),
        "--against mpi: the path {} is not UTF-8: install the libraries elsewhere",
        resolved.display()
    );
    Ok(resolved)
}

/// Lets root start ranks, as in a container.
const ROOT_ENVIRONMENT: [(&str, &str); 2] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
];
const HEAP: &str = "libselvedge_heap.so";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_have_names() {
        assert_eq!(Route::parse("heap").unwrap(), Route::Heap);
        let error = Route::parse("ucx").unwrap_err().to_string();
        assert!(error.contains("choose selvedge, heap or own"), "{error}");
    }
}
