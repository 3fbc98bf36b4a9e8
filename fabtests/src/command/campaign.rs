//! `fabtests campaign`: injected faults, and the number of attempts that harmed no other process.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use selvedge_bench::table;

use crate::campaign::{self, Campaign, Plan, Report};

/// Arguments of `fabtests campaign`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The campaign
    #[arg(value_enum)]
    campaign: Campaign,
    /// Attempts of each row [default: a few, which take seconds]
    #[arg(long, value_name = "N")]
    rounds: Option<u64>,
    /// In kill and stop, try every instruction instead of random points
    #[arg(long, conflicts_with_all = ["rounds", "duration"])]
    all: bool,
    /// Repeat each row for this time: 30s, 10m, 8h
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration, conflicts_with = "rounds")]
    duration: Option<Duration>,
    /// The rows to run, separated by commas, as the report names them [default: all]
    #[arg(long, value_name = "ROWS", value_delimiter = ',')]
    only: Vec<String>,
    /// Seed of the random numbers, to repeat a campaign [default: the time]
    #[arg(long)]
    seed: Option<u64>,
    /// Print one JSON object, described in docs/FABTESTS-REFERENCE.md
    #[arg(long)]
    json: bool,
}

/// Runs a campaign and prints its report.
///
/// # Errors
/// The campaign cannot be run, or an attempt failed.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(1, |now| now.as_secs());
    let seed = args.seed.unwrap_or(now);
    let plan = Plan {
        seed,
        rounds: args.rounds,
        all: args.all,
        duration: args.duration,
        only: args.only.clone(),
    };
    let report = campaign::run(args.campaign, &plan)?;
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print(&report);
    }
    let (attempted, survived) = (report.attempted(), report.survived());
    ensure!(
        report.is_success(),
        "{survived} of {attempted} attempts harmed no other process; repeat with --seed {seed}"
    );
    Ok(())
}

fn print(report: &Report) {
    let mut table = table::new(&[report.campaign, "attempted", "survived", "figures"]);
    for row in &report.rows {
        let figures = row.figures.iter();
        let figures: Vec<_> = figures
            .map(|(name, value)| format!("{name} {}", table::figure(*value)))
            .collect();
        let counts = [row.attempted, row.survived].map(|count| count.to_string());
        let [attempted, survived] = counts;
        table.add_row([row.name.clone(), attempted, survived, figures.join(", ")]);
    }
    println!("{table}");
    for row in &report.rows {
        for failure in &row.failures {
            println!("{}: {failure}", row.name);
        }
    }
    for skipped in &report.skipped {
        println!("skipped: {skipped}");
    }
    println!(
        "{}: {} attempted, {} survived in {:.0} s, seed {}",
        report.campaign,
        report.attempted(),
        report.survived(),
        report.seconds,
        report.seed
    );
}

/// Parses a number with the unit `s`, `m` or `h`.
fn parse_duration(text: &str) -> anyhow::Result<Duration> {
    let units = [("s", 1), ("m", 60), ("h", 3600)];
    let split = |(unit, seconds)| Some((text.strip_suffix(unit)?, seconds));
    let found = units.into_iter().find_map(split);
    let (number, seconds) = found.context("a time needs a unit, as in 30s, 10m or 8h")?;
    let number: u64 = number.parse()?;
    Ok(Duration::from_secs(number.saturating_mul(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_needs_a_unit() {
        assert_eq!(parse_duration("90s").unwrap(), Duration::from_secs(90));
        assert_eq!(parse_duration("10m").unwrap(), Duration::from_secs(600));
        assert_eq!(parse_duration("8h").unwrap(), Duration::from_secs(28800));
        assert!(parse_duration("10").is_err());
        assert!(parse_duration("m").is_err());
    }
}
