//! `Plan`: the command that runs an MPI job over Selvedge, and the reason for its route.
//!
//! Two ranks that the launcher starts show whether a route works, unless the user names the route.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::slice;

use anyhow::{Context as _, bail, ensure};

use super::attempt::Attempt;
use super::launcher::{Kind, Launcher};
use super::route::{Installed, MpiProvider, Route, RouteKind, shell_line};
use super::selection::Family;

/// A job, as its user gives it.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// The launcher, by its path or its name in `PATH`.
    pub launcher: &'a str,
    /// The options of the launcher, the program and its arguments.
    pub arguments: &'a [String],
    /// The route; without one, the plugin or else the library, whichever two ranks run over.
    pub route: Option<RouteKind>,
    /// The provider that carries the messages.
    pub provider: MpiProvider,
    /// The folder with Selvedge's libraries; beside this program if there is none.
    pub libraries: Option<&'a Path>,
}

/// The command of a job over Selvedge.
#[derive(Debug)]
pub struct Plan {
    environment: Vec<(String, OsString)>,
    launcher: PathBuf,
    arguments: Vec<String>,
    /// One line: the launcher, the route with its settings, and why it was taken.
    pub reason: String,
    /// The names that the user's line sets, and the route does not set for that reason.
    pub kept: Vec<String>,
}

impl Plan {
    /// Selects the route of a job.
    ///
    /// # Errors
    /// The program is not there or no launcher, Selvedge's libraries are not there, or no route
    /// works with this launcher.
    pub fn make(job: &Job<'_>) -> anyhow::Result<Self> {
        let launcher = Launcher::find(slice::from_ref(&job.launcher.to_owned()))?;
        ensure!(
            launcher.kind != Kind::Unknown,
            "{} is no launcher of MPI programs that is recognised: its --version prints {:?}; name \
             mpiexec, mpirun or srun",
            launcher.path.display(),
            launcher.version
        );
        ensure!(
            !launcher.is_openshmem(),
            "{} starts OpenSHMEM programs of Open MPI, which do not use libfabric",
            launcher.path.display()
        );
        let installed = Installed::find(job.libraries);
        let (route, reason) = match job.route {
            Some(kind) => {
                let route = route(kind, job.provider, &installed, launcher.kind)?;
                (route, "named by --route, not tried".to_owned())
            }
            None => select_route(&launcher, job.provider, &installed)?,
        };
        let (mut arguments, kept) = route.options_beside(job.arguments);
        arguments.extend_from_slice(job.arguments);
        Ok(Self {
            reason: format!(
                "{} ({}): {}: {}; {reason}",
                launcher.path.display(),
                launcher.version,
                route.name,
                route.settings().join(" ")
            ),
            kept: kept.into_iter().map(str::to_owned).collect(),
            environment: route.environment,
            launcher: launcher.path,
            arguments,
        })
    }

    /// The command as the shell reads it.
    pub fn line(&self) -> String {
        shell_line(&self.environment, &self.launcher, &self.arguments)
    }

    /// Replaces this process by the launcher. Returns the reason if that is impossible.
    pub fn exec(&self) -> io::Error {
        let variables = self.environment.iter().map(|(name, value)| (name, value));
        let mut command = Command::new(&self.launcher);
        command.envs(variables).args(&self.arguments).exec()
    }
}

/// The variables that lead the ranks of every MPI library over a route, for launchers that pass
/// their environment on.
///
/// # Errors
/// The files of the route are not there.
pub fn variables(
    kind: RouteKind,
    provider: MpiProvider,
    libraries: Option<&Path>,
) -> anyhow::Result<Vec<(String, OsString)>> {
    let route = route(kind, provider, &Installed::find(libraries), Kind::Slurm)?;
    Ok(route.environment)
}

/// The route of a kind, with the settings of all MPI libraries that the launcher may start.
fn route(
    kind: RouteKind,
    provider: MpiProvider,
    installed: &Installed,
    launcher: Kind,
) -> anyhow::Result<Route> {
    let families: &[_] = match launcher {
        Kind::OpenMpi => &[Family::OpenMpi],
        Kind::Hydra | Kind::IntelMpi | Kind::MvapichRsh => &[Family::Mpich, Family::IntelMpi],
        Kind::Slurm | Kind::Unknown => &[Family::OpenMpi, Family::Mpich, Family::IntelMpi],
    };
    let route = Route::new(kind, provider, installed, launcher, families);
    route.with_context(|| {
        format!(
            "the files of Selvedge for the route {} lie neither beside this program nor in a \
             folder that --libraries names: name the folder with libfabric.so.1 with --libraries",
            kind.name()
        )
    })
}

/// The first route over which two ranks run, and what they reported.
fn select_route(
    launcher: &Launcher,
    provider: MpiProvider,
    installed: &Installed,
) -> anyhow::Result<(Route, String)> {
    ensure!(
        launcher.kind != Kind::Slurm,
        "{} belongs to no MPI library, so no route can be tried with it: name one with --route",
        launcher.path.display()
    );
    let library = launcher.library();
    let library = library.context("no route can be tried; --route names one without a try")?;
    let mut failures = Vec::new();
    for kind in [RouteKind::Plugin, RouteKind::Library] {
        let route = route(kind, provider, installed, launcher.kind)?;
        let attempt = Attempt::run(launcher, &library, &route)?;
        match attempt.selection_of(&route) {
            Ok(selection) => {
                let evidence = selection.evidence.join(" | ");
                return Ok((route, format!("two ranks ran over it: {evidence}")));
            }
            Err(reason) => failures.push(format!("{}: {reason}", route.name)),
        }
    }
    bail!(
        "no route leads ranks of {} to Selvedge ({}): `fabtests doctor --mpi {}` examines them",
        launcher.path.display(),
        failures.join("; "),
        launcher.path.display()
    )
}
