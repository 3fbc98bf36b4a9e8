//! `fabtests compare`: two reports, or two programs in the same minutes, side by side.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::json;

use crate::comparison::stored::Report;
use crate::comparison::{Comparison, Fencer, Judgement, Terms, Versus, duel, versus};
use crate::output;
use crate::size::{self, Sizes};
use crate::stats::geometric_mean;
use crate::table::{self, figure};

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
    /// Fail if anything in B certainly takes this many percent longer than in A
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    fail_above: Option<f64>,
    /// Print one JSON object, and nothing else
    #[arg(long)]
    json: bool,
}

/// Compares, and prints a table for each benchmark.
///
/// # Errors
/// When a report cannot be read, or the two have no point in common.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let both = match (&args.program, &args.a, &args.b) {
        (Some(program), ..) => args.duel(program)?,
        (None, Some(a), Some(b)) => read(a, b)?,
        _ => unreachable!("the command line has two files or a program"),
    };
    let factor = args.fail_above.map(|percent| 1.0 + percent / 100.0);
    let worse = |point: &&Versus| factor.is_some_and(|factor| point.is_worse_than(factor));
    let Comparison { a, b, points } = &both;
    let worse: Vec<_> = points.iter().filter(worse).collect();
    let text = match args.json {
        true => {
            let mean = mean(points);
            json!({ "a": a, "b": b, "points": points, "geometric_mean": mean }).to_string() + "\n"
        }
        false => format!("A: {a}\nB: {b}\n") + &tables(points) + &complaints(&worse),
    };
    output::print(&text);
    Ok(match worse.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn read(a: &Path, b: &Path) -> anyhow::Result<Comparison> {
    let both = versus(&Report::read(a)?, &Report::read(b)?);
    let (a, b) = (a.display(), b.display());
    ensure!(
        !both.points.is_empty(),
        "{a} and {b} have no benchmark and size in common"
    );
    Ok(Comparison {
        a: format!("{a}, {}", both.a),
        b: format!("{b}, {}", both.b),
        ..both
    })
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

fn tables(all: &[Versus]) -> String {
    let mut text = String::new();
    for part in all.chunk_by(|one, other| one.what == other.what) {
        let mut table = table::new(&["size", "A ns", "B ns", "B/A", "95 %", ""]);
        for point in part {
            let [low, high] = point.ci;
            table.add_row([
                size::text(point.size),
                figure(point.a_ns),
                figure(point.b_ns),
                figure(point.ratio),
                format!("{} - {}", figure(low), figure(high)),
                word(point.judgement).to_owned(),
            ]);
        }
        let (what, mean) = (&part[0].what, figure(mean(part)));
        text += &format!("\n{what}: the time of a message\n{table}\nB/A, geometric mean: {mean}\n");
    }
    text
}

fn mean(points: &[Versus]) -> f64 {
    let ratios = points.iter().map(|point| point.ratio);
    geometric_mean(&ratios.filter(|ratio| ratio.is_finite()).collect::<Vec<_>>())
}

fn word(judgement: Judgement) -> &'static str {
    match judgement {
        Judgement::Faster => "faster",
        Judgement::Slower => "SLOWER",
        Judgement::Same => "",
    }
}

fn complaints(worse: &[&Versus]) -> String {
    let lines = worse.iter().map(|point| {
        format!(
            "too slow: {} of {} takes {} times as long\n",
            point.what,
            size::text(point.size),
            figure(point.ratio)
        )
    });
    lines.collect()
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(percent) if (0.0..=1000.0).contains(&percent) => Ok(percent),
        _ => Err(format!("{text:?} is no number between 0 and 1000")),
    }
}
