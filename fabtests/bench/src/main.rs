//! `selvedge-bench`: the benchmarks without the rest of `fabtests`, which takes longer to build.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use selvedge_bench::command::{bench, compare, limits, pingpong, plot};
use selvedge_bench::pair::role;

/// Measures Selvedge's providers on this machine
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Exchange messages between two processes through the fabric, and show latency and bandwidth
    /// beside the machine's limits
    Pingpong(pingpong::Args),
    /// Measure latency, bandwidth and message rate, against the limits and a baseline
    Bench(bench::Args),
    /// Compare two reports of `bench --json`: the ratio of their times at each size
    Compare(compare::Args),
    /// Draw reports of `bench --json`: latency and bandwidth against size, beside the limits
    Plot(plot::Args),
    /// Show what this machine can do between two processes, without any fabric
    Limits(limits::Args),
    #[command(hide = true)]
    Role(role::Args),
}

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("selvedge-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<ExitCode> {
    selvedge::log::init()?;
    match Cli::parse().command {
        Command::Pingpong(args) => pingpong::run(&args)?,
        Command::Bench(args) => bench::run(&args)?,
        Command::Compare(args) => return compare::run(&args),
        Command::Plot(args) => plot::run(&args)?,
        Command::Limits(args) => limits::run(&args)?,
        Command::Role(args) => role::run(&args, None)?,
    }
    Ok(ExitCode::SUCCESS)
}
