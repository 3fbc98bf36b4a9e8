//! Which MPI a launcher starts, over which libfabric and provider its ranks run, and the line that
//! runs them over Selvedge.
//!
//! Two ranks are started with the launcher and the user's options. They initialise MPI and report
//! their libraries; the MPI library prints what it selects. Nothing is concluded from file names or
//! defaults. The lines for Selvedge are run in the same way before they are printed.

mod attempt;
mod command;
mod components;
mod findings;
mod job;
mod launcher;
mod loader;
mod rank;
mod route;
mod selection;
mod symbols;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;

use self::attempt::Attempt;
use self::launcher::Launcher;
use self::route::{Installed, Route};
use self::selection::{Family, Selection};
use super::finding::{Finding, Severity};

pub use job::{Job, Plan, variables};
pub use rank::{RankArgs, run_rank};
pub use route::{MpiProvider, RouteKind};

/// The findings about a launcher.
#[derive(Debug, Default, Serialize)]
pub struct MpiDiagnosis {
    /// Whether ranks run.
    pub works: bool,
    /// Whether the ranks use a provider of Selvedge, with the line as it was given.
    pub uses_selvedge: bool,
    /// The version that the MPI library prints; empty if none was loaded.
    pub mpi: String,
    /// The libfabric of the ranks.
    pub libfabric: Option<PathBuf>,
    /// The provider that the ranks selected.
    pub provider: Option<String>,
    /// The findings, one by one.
    pub findings: Vec<Finding>,
}

/// The question: a launcher with its options, and what is examined with it.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The launcher and its options, without a program; `mpirun` if it is empty.
    pub line: &'a [String],
    /// An MPI program, whose MPI library is examined instead of the launcher's.
    pub program: Option<&'a Path>,
    /// The folder with Selvedge's libraries; beside this program if there is none.
    pub libraries: Option<&'a Path>,
}

/// Examines a launcher.
pub fn examine(question: Question<'_>) -> MpiDiagnosis {
    let mut diagnosis = MpiDiagnosis::default();
    let launcher = match Launcher::find(question.line) {
        Ok(launcher) => launcher,
        Err(error) => {
            diagnosis.findings.push(findings::no_launcher(&error));
            return diagnosis;
        }
    };
    diagnosis.findings.push(findings::launcher(&launcher));
    let library = match question.program {
        Some(program) => library_of(program),
        None => launcher
            .library()
            .context("name an MPI program with --program, whose library is then examined"),
    };
    let attempt = library.and_then(|library| Attempt::run(&launcher, &library, &Route::default()));
    let attempt = match attempt {
        Ok(attempt) => attempt,
        Err(error) => {
            diagnosis.findings.push(findings::no_library(&error));
            return diagnosis;
        }
    };
    diagnosis.describe(&launcher, &attempt);
    let library = attempt.ranks.first().and_then(|rank| rank.library.clone());
    if let Some(library) = library {
        let family = Family::of(&diagnosis.mpi);
        let installed = Installed::find(question.libraries);
        diagnosis.add_routes(&launcher, &library, family, &installed);
    }
    diagnosis
}

impl MpiDiagnosis {
    /// Adds the findings of the run with the user's own line.
    fn describe(&mut self, launcher: &Launcher, attempt: &Attempt) {
        self.findings.extend(findings::library(attempt));
        if let Some(rank) = attempt.ranks.first() {
            self.mpi.clone_from(&rank.library_version);
            let family = Family::of(&self.mpi);
            self.findings
                .extend(components::components(launcher, family, rank));
        }
        let Some(rank) = attempt.initialised() else {
            return;
        };
        self.works = attempt.is_success();
        let family = Family::of(&self.mpi);
        let selection = Selection::read(family, &attempt.output.text, rank);
        self.findings.push(findings::transport(&selection));
        self.findings
            .extend(components::components(launcher, family, rank));
        self.findings.push(findings::libfabric(rank, attempt));
        self.findings.extend(findings::providers(rank));
        self.findings.push(findings::provider(&selection, rank));
        self.uses_selvedge = findings::is_selvedge(&selection, rank);
        self.libfabric = rank.libfabric.as_ref().map(|it| it.path.clone());
        self.provider = selection.provider;
    }

    /// Runs the lines for Selvedge, and adds a finding for each.
    fn add_routes(
        &mut self,
        launcher: &Launcher,
        library: &Path,
        family: Family,
        installed: &Installed,
    ) {
        if launcher.is_openshmem() {
            return self.findings.push(components::openshmem(launcher));
        }
        let is_without_libfabric = |finding: &Finding| finding.severity == Severity::Slow;
        if self.findings.iter().any(is_without_libfabric) {
            return;
        }
        let routes = Route::all(launcher.kind, family, installed);
        if routes.is_empty() {
            self.findings.push(findings::not_installed());
        }
        for route in &routes {
            let attempt = Attempt::run(launcher, library, route);
            self.findings
                .push(findings::route(launcher, route, attempt));
        }
    }
}

/// The MPI library that the loader gives a program.
fn library_of(program: &Path) -> anyhow::Result<PathBuf> {
    let mut command = std::process::Command::new(program);
    command.env("LD_TRACE_LOADED_OBJECTS", "1");
    let output = command::run(command, launcher::SHORT);
    let output = output.with_context(|| format!("cannot start {}", program.display()))?;
    let is_mpi = |line: &&str| {
        let name = line.trim_start();
        name.starts_with("libmpi.so") || name.starts_with("libmpich.so")
    };
    let found = output.text.lines().find(is_mpi);
    let line = found.with_context(|| {
        format!(
            "{} loads no libmpi.so: name an MPI program",
            program.display()
        )
    })?;
    let path = line.split_once("=> ").map(|(_, rest)| rest);
    let path = path
        .and_then(|rest| rest.split_once(" ("))
        .map(|(path, _)| path);
    let path = path.filter(|path| path.starts_with('/'));
    let path = path.with_context(|| {
        format!(
            "the loader does not find {} of {}",
            line.trim(),
            program.display()
        )
    })?;
    Ok(PathBuf::from(path))
}
