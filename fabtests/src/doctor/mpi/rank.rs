//! The process that the doctor starts as an MPI rank: it initialises MPI and reports the libraries
//! and providers that it has then.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::symbols::{Libfabric, Library, Mpi};

/// Arguments of the process.
#[derive(Clone, Debug, clap::Args)]
pub struct RankArgs {
    /// The MPI library
    #[arg(long)]
    library: PathBuf,
    /// The folder of the reports
    #[arg(long)]
    reports: PathBuf,
}

/// A report of one rank. It is written before and after `MPI_Init`, which may end the process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct RankReport {
    /// The process.
    pub(super) pid: u32,
    /// `MPI_Get_library_version`.
    pub(super) library_version: String,
    /// Whether `MPI_Init` has returned.
    pub(super) is_initialised: bool,
    /// The number of ranks of `MPI_COMM_WORLD`.
    pub(super) world_size: Option<usize>,
    /// The file of the MPI library.
    pub(super) library: Option<PathBuf>,
    /// The libfabric of the process.
    pub(super) libfabric: Option<LoadedLibfabric>,
    /// The files that are mapped after `MPI_Init`.
    pub(super) files: Vec<PathBuf>,
    /// The variables of MPI, libfabric and the loader.
    pub(super) variables: BTreeMap<String, String>,
    /// The error that ended the rank.
    pub(super) error: Option<String>,
}

/// A libfabric in a process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct LoadedLibfabric {
    /// Its file.
    pub(super) path: PathBuf,
    /// Its version, as it prints it.
    pub(super) version: String,
    /// Its providers, in the order of fi_getinfo(3).
    pub(super) providers: Vec<String>,
}

impl LoadedLibfabric {
    /// Whether this is Selvedge's library, which says so in its version.
    pub(super) fn is_selvedge(&self) -> bool {
        self.version.contains("selvedge")
    }
}

/// Runs the process.
///
/// # Errors
/// The report cannot be written, or a function of MPI fails.
pub fn run_rank(args: &RankArgs) -> anyhow::Result<()> {
    let file = args
        .reports
        .join(format!("rank-{}.json", std::process::id()));
    let mut report = RankReport {
        pid: std::process::id(),
        variables: variables(),
        ..RankReport::default()
    };
    let result = examine(&args.library, &file, &mut report);
    report.error = result.as_ref().err().map(|error| format!("{error:#}"));
    write(&file, &report)?;
    result?.finalize()
}

fn examine(library: &Path, file: &Path, report: &mut RankReport) -> anyhow::Result<Mpi> {
    let mpi = Mpi(Library::load(library)?);
    report.library_version = mpi.version()?;
    report.library = library.canonicalize().ok();
    write(file, report)?;
    mpi.init()?;
    report.is_initialised = true;
    report.world_size = mpi.world_size().ok();
    report.files = mapped_files()?;
    let is_libfabric = |file: &&PathBuf| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libfabric.so") || name.starts_with("libfabric-")
    };
    if let Some(path) = report.files.iter().find(is_libfabric) {
        let libfabric = Libfabric(Library::find_loaded(path)?);
        report.libfabric = Some(LoadedLibfabric {
            path: path.clone(),
            version: libfabric.version()?,
            providers: libfabric.providers().unwrap_or_default(),
        });
    }
    Ok(mpi)
}

fn write(file: &Path, report: &RankReport) -> anyhow::Result<()> {
    // A reader sees the old report or the new one.
    let new = file.with_extension("new");
    fs::write(&new, serde_json::to_string(report)?)?;
    fs::rename(&new, file).with_context(|| format!("cannot write {}", file.display()))
}

/// The files that this process has mapped, each once.
fn mapped_files() -> anyhow::Result<Vec<PathBuf>> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let paths = maps.lines().filter_map(|line| {
        let path = &line[line.find('/')?..];
        (!path.ends_with(" (deleted)")).then(|| PathBuf::from(path))
    });
    let mut files: Vec<_> = paths.collect();
    files.sort();
    files.dedup();
    Ok(files)
}

fn variables() -> BTreeMap<String, String> {
    let prefixes = ["OMPI_MCA_", "MPIR_CVAR_", "I_MPI_", "FI_", "LD_"];
    let is_relevant = |name: &str| {
        prefixes.iter().any(|it| name.starts_with(it)) && !name.starts_with("LD_DEBUG")
    };
    let variables = env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok().filter(|name| is_relevant(name))?;
        Some((name, value.to_string_lossy().into_owned()))
    });
    variables.collect()
}
