//! `fabtests compare`: two reports, or two programs in the same minutes, side by side.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use selvedge_bench::command::compare::{self, OutcomeArgs};
use selvedge_bench::comparison::Comparison;
use selvedge_bench::size::Sizes;

use crate::duel::{Fencer, Terms, duel};

/// Arguments of `fabtests compare`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// What `fabtests bench --json` has printed: before
    #[arg(value_name = "A.json", required_unless_present = "program")]
    a: Option<PathBuf>,
    /// What it has printed later, or elsewhere
    #[arg(value_name = "B.json", required_unless_present = "program")]
    b: Option<PathBuf>,
    /// Run this program of upstream's names in turns: ours as A, --against or --bin as B
    #[arg(long, value_name = "NAME", conflicts_with_all = ["a", "b"])]
    program: Option<String>,
    /// A's provider
    #[arg(short, long, default_value = "shm", requires = "program")]
    provider: String,
    /// B's provider [default: A's]
    #[arg(long, value_name = "PROVIDER", requires = "program")]
    against: Option<String>,
    /// B's program: a file, or a folder that has one of the same name; fi_pingpong is found in PATH
    /// [default: ours]
    #[arg(long, value_name = "PATH", requires = "program")]
    bin: Option<PathBuf>,
    /// Message sizes
    #[arg(short = 'S', long, default_value = "64,4k,64k", requires = "program")]
    sizes: Sizes,
    /// Messages of a run
    #[arg(short = 'I', long, default_value_t = 2000, requires = "program",
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    iterations: u32,
    /// Runs of each
    #[arg(long, default_value_t = 6, requires = "program",
          value_parser = clap::value_parser!(u16).range(1..))]
    reps: u16,
    /// Give up after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
    #[command(flatten)]
    outcome: OutcomeArgs,
}

/// Compares, and prints a table for each benchmark.
///
/// # Errors
/// When a report cannot be read, the two have no point in common, or a program fails.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let both = match (&args.program, &args.a, &args.b) {
        (Some(program), ..) => args.duel(program)?,
        (None, Some(a), Some(b)) => compare::read(a, b)?,
        _ => unreachable!("the command line has two files or a program"),
    };
    Ok(args.outcome.report(&both))
}

impl Args {
    fn duel(&self, program: &str) -> anyhow::Result<Comparison> {
        let a = Fencer {
            file: None,
            program: program.to_owned(),
            provider: self.provider.clone(),
        };
        let file = self
            .bin
            .as_deref()
            .map(|path| found(path, program))
            .transpose()?;
        let name = file.as_deref().and_then(Path::file_name);
        let b = Fencer {
            program: name.map_or_else(
                || program.to_owned(),
                |name| name.to_string_lossy().into_owned(),
            ),
            file,
            provider: self
                .against
                .clone()
                .unwrap_or_else(|| self.provider.clone()),
        };
        let terms = Terms {
            sizes: self.sizes.as_slice().to_vec(),
            iterations: self.iterations as usize,
            reps: self.reps.into(),
            deadline: Instant::now() + Duration::from_secs(self.timeout),
        };
        duel(&a, &b, &terms)
    }
}

/// A program's file: as it is named, in a folder, or where the shell would find it.
fn found(path: &Path, program: &str) -> anyhow::Result<PathBuf> {
    let in_folder = path.join(program);
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&folders).map(|folder| folder.join(path));
    let mut all = [in_folder, path.to_owned()].into_iter().chain(in_path);
    all.find(|path| path.is_file())
        .with_context(|| format!("there is no program {}", path.display()))
}
