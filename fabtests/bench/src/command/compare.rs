//! `compare`: the ratio of the times of two reports at each point.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::ensure;
use serde_json::json;

use crate::comparison::stored::Report;
use crate::comparison::{Change, Comparison, Versus, compare_reports};
use crate::measure::size;
use crate::measure::stats::geometric_mean;
use crate::output;
use crate::output::table::{self, figure};

/// Arguments of a command that compares two reports.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Report A of `bench --json`: before
    #[arg(value_name = "A.json")]
    a: PathBuf,
    /// Report B: after a change, or from another machine
    #[arg(value_name = "B.json")]
    b: PathBuf,
    #[command(flatten)]
    outcome: OutcomeArgs,
}

/// Arguments for a comparison's output and exit status.
#[derive(Clone, Debug, clap::Args)]
pub struct OutcomeArgs {
    /// Fail if a point of B certainly takes this many percent longer than in A
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    fail_above: Option<f64>,
    /// Print one JSON object, and nothing else
    #[arg(long)]
    json: bool,
}

/// Compares two reports and prints a table for each benchmark.
///
/// # Errors
/// When a report cannot be read, or the two have no point in common.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    Ok(args.outcome.report(&read(&args.a, &args.b)?))
}

/// Pairs the points of two report files.
///
/// # Errors
/// When a report cannot be read, or the two have no point in common.
pub fn read(a: &Path, b: &Path) -> anyhow::Result<Comparison> {
    let comparison = compare_reports(&Report::read(a)?, &Report::read(b)?);
    let (a, b) = (a.display(), b.display());
    ensure!(
        !comparison.points.is_empty(),
        "{a} and {b} have no benchmark and size in common"
    );
    Ok(Comparison {
        a: format!("{a}, {}", comparison.a),
        b: format!("{b}, {}", comparison.b),
        ..comparison
    })
}

impl OutcomeArgs {
    /// Prints a comparison; returns failure where a point is slower than allowed.
    pub fn report(&self, comparison: &Comparison) -> ExitCode {
        let factor = self.fail_above.map(|percent| 1.0 + percent / 100.0);
        let worse = |point: &&Versus| factor.is_some_and(|factor| point.is_worse_than(factor));
        let Comparison { a, b, points } = comparison;
        let worse: Vec<_> = points.iter().filter(worse).collect();
        let text = if self.json {
            let mean = mean_ratio(points);
            json!({ "a": a, "b": b, "points": points, "geometric_mean": mean }).to_string() + "\n"
        } else {
            format!("A: {a}\nB: {b}\n") + &format_tables(points) + &too_slow_lines(&worse)
        };
        output::print(&text);
        if worse.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

fn format_tables(points: &[Versus]) -> String {
    let mut text = String::new();
    for bench_points in points.chunk_by(|one, other| one.label == other.label) {
        let mut table = table::new(&["size", "A ns", "B ns", "B/A", "95 %", ""]);
        for point in bench_points {
            let [low, high] = point.ci;
            table.add_row([
                size::text(point.size),
                figure(point.a_ns),
                figure(point.b_ns),
                figure(point.ratio),
                format!("{} - {}", figure(low), figure(high)),
                change_text(point.change).to_owned(),
            ]);
        }
        let (label, mean) = (&bench_points[0].label, figure(mean_ratio(bench_points)));
        text +=
            &format!("\n{label}: the time of a message\n{table}\nB/A, geometric mean: {mean}\n");
    }
    text
}

/// The geometric mean of the points' ratios that are finite.
fn mean_ratio(points: &[Versus]) -> f64 {
    let ratios = points.iter().map(|point| point.ratio);
    geometric_mean(&ratios.filter(|ratio| ratio.is_finite()).collect::<Vec<_>>())
}

fn change_text(change: Change) -> &'static str {
    match change {
        Change::Faster => "faster",
        Change::Slower => "SLOWER",
        Change::Same => "",
    }
}

fn too_slow_lines(worse: &[&Versus]) -> String {
    let lines = worse.iter().map(|point| {
        format!(
            "too slow: {} of {} takes {} times as long\n",
            point.label,
            size::text(point.size),
            figure(point.ratio)
        )
    });
    lines.collect()
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(percent) if (0.0..=1000.0).contains(&percent) => Ok(percent),
        _ => Err(format!("{text:?} is not a number between 0 and 1000")),
    }
}
