//! `selvedge-run`: runs an MPI job over Selvedge, with the launcher of its MPI library.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use clap::Parser as _;
use fabtests::doctor::mpi::{Job, MpiProvider, Plan, RankArgs, RouteKind, run_rank, variables};
use lexopt::prelude::{Long, Short, Value, ValueExt as _};
use selvedge_bench::output;

fn main() -> ExitCode {
    let result = match std::env::args().nth(1).as_deref() {
        Some(RANK) => Rank::try_parse_from(std::env::args_os().skip(1))
            .map_err(anyhow::Error::from)
            .and_then(|rank| run_rank(&rank.args)),
        _ => Options::read().and_then(|options| options.run()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("selvedge-run: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The first argument of the ranks with which routes are tried.
const RANK: &str = "mpi-rank";

/// Such a rank.
#[derive(Debug, clap::Parser)]
struct Rank {
    #[command(flatten)]
    args: RankArgs,
}

/// The command line.
#[derive(Debug, Default)]
struct Options {
    mode: Mode,
    route: Option<RouteKind>,
    provider: MpiProvider,
    libraries: Option<PathBuf>,
    is_verbose: bool,
    launcher: Option<String>,
    arguments: Vec<String>,
}

/// The result that the user asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Run,
    /// Print the command.
    Print,
    /// Print the variables of a route.
    Environment,
    Help,
    Version,
}

impl Options {
    fn read() -> anyhow::Result<Self> {
        let mut options = Self::default();
        let mut parser = lexopt::Parser::from_env();
        while let Some(argument) = parser.next()? {
            match argument {
                Long("route") => options.route = Some(parser.value()?.parse()?),
                Long("provider") => options.provider = parser.value()?.parse()?,
                Long("libraries") => options.libraries = Some(parser.value()?.into()),
                Long("print") => options.mode = Mode::Print,
                Long("environment") => options.mode = Mode::Environment,
                Short('v') | Long("verbose") => options.is_verbose = true,
                Short('h') | Long("help") => options.mode = Mode::Help,
                Short('V') | Long("version") => options.mode = Mode::Version,
                Value(launcher) => {
                    options.launcher = Some(launcher.string()?);
                    let rest = parser.raw_args()?.map(|argument| argument.string());
                    options.arguments = rest.collect::<Result<_, _>>()?;
                }
                other => bail!("{}: {HINT}", other.unexpected()),
            }
        }
        Ok(options)
    }

    fn run(&self) -> anyhow::Result<()> {
        match self.mode {
            Mode::Help => output::print(USAGE),
            Mode::Version => {
                output::print(concat!("selvedge-run ", env!("CARGO_PKG_VERSION"), "\n"));
            }
            Mode::Environment => output::print(&self.environment()?),
            Mode::Print => {
                let plan = self.plan()?;
                eprintln!("selvedge-run: {}", plan.reason);
                output::print(&(plan.line() + "\n"));
            }
            Mode::Run => {
                let plan = self.plan()?;
                if self.is_verbose {
                    eprintln!("selvedge-run: {}", plan.reason);
                }
                return Err(plan.exec()).with_context(|| format!("cannot run {}", plan.line()));
            }
        }
        Ok(())
    }

    /// The plan of the job. Prints which settings of the job's own line it leaves alone.
    fn plan(&self) -> anyhow::Result<Plan> {
        let launcher = self.launcher.as_deref();
        let plan = Plan::make(&Job {
            launcher: launcher.with_context(|| format!("no launcher is given: {HINT}"))?,
            arguments: &self.arguments,
            route: self.route,
            provider: self.provider,
            libraries: self.libraries.as_deref(),
        })?;
        if !plan.kept.is_empty() {
            let names = plan.kept.join(", ");
            eprintln!("selvedge-run: the launcher's options set {names}, and are left as they are");
        }
        Ok(plan)
    }

    fn environment(&self) -> anyhow::Result<String> {
        let Some(route) = self.route else {
            bail!("--environment tries no route: name one with --route");
        };
        ensure!(
            self.launcher.is_none(),
            "--environment prints variables and starts no launcher: remove --environment or {}",
            self.launcher.as_deref().unwrap_or_default()
        );
        let mut text = String::new();
        for (name, value) in variables(route, self.provider, self.libraries.as_deref())? {
            let value = value.to_string_lossy();
            writeln!(text, "{name}={value}").expect("writing to a string succeeds");
        }
        Ok(text)
    }
}

const HINT: &str = "selvedge-run --help explains the command line";

const USAGE: &str = "\
Usage: selvedge-run [OPTIONS] <LAUNCHER> [ARGUMENT]..
       selvedge-run --environment --route ROUTE [OPTIONS]

Runs an MPI job over Selvedge, with the launcher of its MPI library.

The first form runs `LAUNCHER ARGUMENT..`, an ordinary line such as `mpiexec -n 4 ./program`, with
the settings that lead its ranks to Selvedge. Settings of the line itself are left as they are.

      --route ROUTE      plugin (Selvedge's providers, in the libfabric that the MPI library
                         loads anyway), library (Selvedge's libfabric.so.1 instead of that),
                         or heap (the library, and the shared heap). Without this option, two
                         ranks try plugin and then library, and the first one that works is taken
      --provider NAME    shm inside a host, or tcp between hosts [shm]
      --libraries DIR    the folder of Selvedge's libraries [beside this program]
      --print            prints the command instead of running it, and on standard error the reason
      --environment      prints the variables of a route, for launchers that pass their
                         environment on
  -v, --verbose          prints on standard error what is set, and why
  -h, --help             prints this text
  -V, --version          prints the version

The exit code is that of the launcher, or 1 if it was not started.
";
