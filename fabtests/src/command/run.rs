//! `fabtests run`: the conformance tests of providers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use selvedge_bench::output;

use crate::suite::catalogue;
use crate::suite::report::{self, Lines};
use crate::suite::run::{self, Hosts, Plan, RunEvent, RunResult};
use crate::suite::{Entry, Manifest, Selection, Set};

/// Arguments of `fabtests run`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The set of tests
    #[arg(value_enum, default_value_t)]
    set: Set,
    /// Test this provider; may be given more than once [default: all that are built in]
    #[arg(short, long = "provider", value_name = "NAME")]
    providers: Vec<String>,
    /// Tests that run at the same time [default: one for each core]
    #[arg(short, long, value_name = "N")]
    jobs: Option<u16>,
    /// Only tests whose path contains this; may be given more than once
    #[arg(short, long = "filter", value_name = "TEXT")]
    filters: Vec<String>,
    /// No tests whose path contains this; may be given more than once
    #[arg(short = 'x', long = "exclude", value_name = "TEXT")]
    excludes: Vec<String>,
    /// Seed of all random numbers [default: a new one]
    #[arg(long)]
    seed: Option<u64>,
    /// Multiply the time that each test may take
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = parse_factor)]
    slowness: f64,
    /// List the tests, and run none
    #[arg(long)]
    list: bool,
    /// The expectations for each provider [default: the suite's own file, expectations.toml]
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// Print one JSON object, and nothing else
    #[arg(long)]
    json: bool,
    /// Write a JUnit report
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write a Markdown report
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Run each test over providers with defects that it must detect: it passes if it fails
    #[arg(long)]
    mutants: bool,
    /// Run each test repeatedly; in each run one call fails when it is made for the Nth time, the
    /// first if N is not given. The test may fail, but not hang or crash
    #[arg(
        long,
        value_name = "N",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        value_parser = clap::value_parser!(u32).range(1..),
        conflicts_with = "mutants"
    )]
    hook_faults: Option<u32>,
    /// Place the processes of each test alternately on two hosts: network namespaces with a virtual
    /// cable, which needs root, util-linux and iproute2
    #[arg(long)]
    two_hosts: bool,
    /// Run the tests of the runner
    #[arg(long, hide = true)]
    selftest: bool,
}

/// Runs tests and prints the results.
///
/// # Errors
/// No test is selected, or a report cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let manifest = match &args.manifest {
        Some(path) => Manifest::read(path)?,
        None => Manifest::built_in()?,
    };
    let selection = args.selection()?;
    let entries = match args.hook_faults {
        _ if args.selftest => catalogue::selftests(),
        _ if args.mutants => catalogue::mutants(&selection),
        Some(nth) => catalogue::hook_faults(&selection, nth),
        None => catalogue::entries(&selection, &manifest),
    };
    ensure!(
        !entries.is_empty(),
        "no test matches the options; --list prints all paths"
    );
    if args.list {
        let lines = entries.iter().map(|entry| entry.path() + "\n");
        output::print(&lines.collect::<String>());
        return Ok(ExitCode::SUCCESS);
    }
    let result = args.run_tests(&entries, &manifest, selection.seed)?;
    args.report(&result, selection.seed)?;
    Ok(if result.is_success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

impl Args {
    fn selection(&self) -> anyhow::Result<Selection> {
        let providers = catalogue::providers();
        for name in &self.providers {
            let names = providers.join(", ");
            let upper = name.rsplit(';').next().unwrap_or(name);
            ensure!(
                providers.iter().any(|provider| provider == upper),
                "there is no provider {name:?}; the providers are {names}"
            );
        }
        Ok(Selection {
            set: self.set,
            providers: if self.providers.is_empty() {
                providers
            } else {
                self.providers.clone()
            },
            seed: self.seed.unwrap_or_else(new_seed),
            filters: self.filters.clone(),
            excludes: self.excludes.clone(),
        })
    }

    fn run_tests(
        &self,
        entries: &[Entry],
        manifest: &Manifest,
        seed: u64,
    ) -> anyhow::Result<RunResult> {
        let hosts = self.two_hosts.then(Hosts::create).transpose()?;
        let plan = Plan {
            manifest,
            jobs: self.jobs.map_or_else(core_count, usize::from),
            slowness: self.slowness,
            hosts: hosts.as_ref(),
        };
        if self.json {
            return Ok(run::run(entries, &plan, |_| ()));
        }
        let mut lines = Lines::new(entries.len(), &self.rerun_options(seed));
        let result = run::run(entries, &plan, |event: RunEvent<'_>| lines.show(&event));
        lines.finish();
        Ok(result)
    }

    fn report(&self, result: &RunResult, seed: u64) -> anyhow::Result<()> {
        let set = self.set_name();
        if let Some(path) = &self.junit {
            write(path, &report::junit(result))?;
        }
        if let Some(path) = &self.markdown {
            write(
                path,
                &report::markdown(result, &set, seed, &self.rerun_options(seed)),
            )?;
        }
        output::print(&if self.json {
            report::json(result, &set, seed).to_string() + "\n"
        } else {
            report::summary(result)
        });
        Ok(())
    }

    /// Returns the options that run a test of this run again, in addition to its path.
    fn rerun_options(&self, seed: u64) -> String {
        let mut options = format!(" {} --seed {seed}", self.set_name());
        for (is_set, option) in [
            (self.mutants, " --mutants"),
            (self.two_hosts, " --two-hosts"),
            (self.selftest, " --selftest"),
        ] {
            if is_set {
                options += option;
            }
        }
        if let Some(nth) = self.hook_faults {
            options += &format!(" --hook-faults={nth}");
        }
        options
    }

    fn set_name(&self) -> String {
        let set = clap::ValueEnum::to_possible_value(&self.set);
        set.map_or_else(String::new, |set| set.get_name().to_owned())
    }
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Five digits distinguish runs and are short to type.
fn new_seed() -> u64 {
    let now = std::time::UNIX_EPOCH.elapsed();
    now.map_or(1, |now| u64::from(now.subsec_nanos())) % 100_000
}

fn parse_factor(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(factor) if (0.01..=1000.0).contains(&factor) => Ok(factor),
        _ => Err(format!("{text:?} is not a number between 0.01 and 1000")),
    }
}
