//! `fabtests compare`: compares two reports, or two programs that run in turns.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use selvedge_bench::command::compare::{self, OutcomeArgs};
use selvedge_bench::comparison::Comparison;
use selvedge_bench::size::Sizes;

use crate::command::ab_run::{Contestant, RunConfig, run_in_turns};

/// Arguments of `fabtests compare`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Report A: output of `fabtests bench --json`
    #[arg(value_name = "A.json", required_unless_present = "program")]
    a: Option<PathBuf>,
    /// Report B: output of `fabtests bench --json`
    #[arg(value_name = "B.json", required_unless_present = "program")]
    b: Option<PathBuf>,
    /// Instead of two reports, run two programs of this upstream name in turns: this suite's as A,
    /// that of --against or --bin as B
    #[arg(long, value_name = "NAME", conflicts_with_all = ["a", "b"])]
    program: Option<String>,
    /// A's provider
    #[arg(short, long, default_value = "shm", requires = "program")]
    provider: String,
    /// B's provider [default: A's]
    #[arg(long, value_name = "PROVIDER", requires = "program")]
    against: Option<String>,
    /// B's program: a file, a folder that contains a file of the same name, or a name in PATH
    /// [default: this suite's]
    #[arg(long, value_name = "PATH", requires = "program")]
    bin: Option<PathBuf>,
    /// Message sizes
    #[arg(short = 'S', long, default_value = "64,4k,64k", requires = "program")]
    sizes: Sizes,
    /// Number of messages in a run
    #[arg(short = 'I', long, default_value_t = 2000, requires = "program",
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    iterations: u32,
    /// Number of runs of each program at each size
    #[arg(long, default_value_t = 6, requires = "program",
          value_parser = clap::value_parser!(u16).range(1..))]
    reps: u16,
    /// Fail if the runs take longer than this
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
    #[command(flatten)]
    outcome: OutcomeArgs,
}

/// Compares A with B, and prints a table for each benchmark.
///
/// # Errors
/// A report cannot be read, the two reports have no benchmark and size in common, or a program
/// fails.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let comparison = match (&args.program, &args.a, &args.b) {
        (Some(program), ..) => args.run_in_turns(program)?,
        (None, Some(a), Some(b)) => compare::read(a, b)?,
        _ => unreachable!("the command line parser requires two reports or a program"),
    };
    Ok(args.outcome.report(&comparison))
}

impl Args {
    fn run_in_turns(&self, program: &str) -> anyhow::Result<Comparison> {
        let a = Contestant {
            file: None,
            program: program.to_owned(),
            provider: self.provider.clone(),
        };
        let file = self
            .bin
            .as_deref()
            .map(|path| find_program(path, program))
            .transpose()?;
        let name = file.as_deref().and_then(Path::file_name);
        let b = Contestant {
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
        let config = RunConfig {
            sizes: self.sizes.as_slice().to_vec(),
            iterations: self.iterations as usize,
            reps: self.reps.into(),
            deadline: Instant::now() + Duration::from_secs(self.timeout),
        };
        run_in_turns(&a, &b, &config)
    }
}

/// Finds the file of a program: `program` in the folder `path`, the file `path`, or `path` in a
/// folder of the variable PATH.
fn find_program(path: &Path, program: &str) -> anyhow::Result<PathBuf> {
    let in_folder = path.join(program);
    let search_path = std::env::var_os("PATH").unwrap_or_default();
    let in_search_path = std::env::split_paths(&search_path).map(|folder| folder.join(path));
    let mut candidates = [in_folder, path.to_owned()]
        .into_iter()
        .chain(in_search_path);
    candidates
        .find(|path| path.is_file())
        .with_context(|| format!("no program {} was found", path.display()))
}
