//! `fabtests run`: the tests of providers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use selvedge_bench::output;

use crate::suite::catalogue::{self, Wanted};
use crate::suite::report::{self, Lines};
use crate::suite::run::{self, Hosts, News, Outcome, Plan};
use crate::suite::{Entry, Manifest, Set};

/// Arguments of `fabtests run`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Which tests
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
    /// Whatever is random comes from this number [default: a new one]
    #[arg(long)]
    seed: Option<u64>,
    /// Give each test this many times as long
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor)]
    slowness: f64,
    /// List the tests, and run none
    #[arg(long)]
    list: bool,
    /// What is expected of each provider [default: the suite's own file, expectations.toml]
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// Print one JSON object, and nothing else
    #[arg(long)]
    json: bool,
    /// Write a report for systems of continuous integration
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write a page
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Run each test over providers with defects that it has to notice: it passes if it fails
    #[arg(long)]
    mutants: bool,
    /// Run each test with each call in turn made to fail when it is made for the Nth time, the first
    /// if N is not given: the test may fail, but not hang or crash
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
    /// Put the processes of each test on two hosts by turns: network namespaces with a cable in
    /// between, which takes root's rights, util-linux and iproute2
    #[arg(long)]
    two_hosts: bool,
    /// Run the tests of the runner
    #[arg(long, hide = true)]
    selftest: bool,
}

/// Runs tests, and shows how they fare.
///
/// # Errors
/// When there are none, or a report cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let manifest = match &args.manifest {
        Some(path) => Manifest::read(path)?,
        None => Manifest::built_in()?,
    };
    let wanted = args.wanted()?;
    let entries = match args.hook_faults {
        _ if args.selftest => catalogue::selftests(),
        _ if args.mutants => catalogue::mutants(&wanted),
        Some(nth) => catalogue::hook_faults(&wanted, nth),
        None => catalogue::entries(&wanted, &manifest),
    };
    ensure!(
        !entries.is_empty(),
        "no test is as you say; --list shows them all"
    );
    if args.list {
        let lines = entries.iter().map(|entry| entry.path() + "\n");
        output::print(&lines.collect::<String>());
        return Ok(ExitCode::SUCCESS);
    }
    let outcome = args.play(&entries, &manifest, wanted.seed)?;
    args.report(&outcome, wanted.seed)?;
    Ok(match outcome.is_good() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

impl Args {
    fn wanted(&self) -> anyhow::Result<Wanted> {
        let known = catalogue::providers();
        for name in &self.providers {
            let known_names = known.join(", ");
            let upper = name.rsplit(';').next().unwrap_or(name);
            ensure!(
                known.iter().any(|known| known == upper),
                "there is no provider {name:?}, but {known_names}"
            );
        }
        Ok(Wanted {
            set: self.set,
            providers: match self.providers.is_empty() {
                true => known,
                false => self.providers.clone(),
            },
            seed: self.seed.unwrap_or_else(new_seed),
            filters: self.filters.clone(),
            excludes: self.excludes.clone(),
        })
    }

    fn play(&self, entries: &[Entry], manifest: &Manifest, seed: u64) -> anyhow::Result<Outcome> {
        let hosts = self.two_hosts.then(Hosts::make).transpose()?;
        let plan = Plan {
            manifest,
            jobs: self.jobs.map_or_else(cores, usize::from),
            slowness: self.slowness,
            hosts: hosts.as_ref(),
        };
        if self.json {
            return Ok(run::run(entries, &plan, |_| ()));
        }
        let mut lines = Lines::new(entries.len(), &self.again(seed));
        let outcome = run::run(entries, &plan, |news: News<'_>| lines.show(&news));
        lines.finish();
        Ok(outcome)
    }

    fn report(&self, outcome: &Outcome, seed: u64) -> anyhow::Result<()> {
        let set = self.set_name();
        if let Some(path) = &self.junit {
            write(path, &report::junit(outcome))?;
        }
        if let Some(path) = &self.markdown {
            write(
                path,
                &report::markdown(outcome, &set, seed, &self.again(seed)),
            )?;
        }
        output::print(&match self.json {
            true => report::json(outcome, &set, seed).to_string() + "\n",
            false => report::summary(outcome),
        });
        Ok(())
    }

    /// What a test of this run is run again with, besides its path.
    fn again(&self, seed: u64) -> String {
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

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Five digits are enough to tell runs apart, and short to type.
fn new_seed() -> u64 {
    let now = std::time::UNIX_EPOCH.elapsed();
    now.map_or(1, |now| u64::from(now.subsec_nanos())) % 100_000
}

fn factor(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(factor) if (0.01..=1000.0).contains(&factor) => Ok(factor),
        _ => Err(format!("{text:?} is no number between 0.01 and 1000")),
    }
}
