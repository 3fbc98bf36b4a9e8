//! `fabtests`: one program for the suite's tools and benchmarks.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use fabtests::bmi::requests;
use fabtests::campaign::part;
use fabtests::command::{bmi, campaign, compare, crowd, doctor, run, shmem};
use fabtests::suite::{conformance, misbehave};
use fabtests::upstream;
use selvedge_bench::command::{bench, limits, pingpong, plot};
use selvedge_bench::pair::role;

/// Measures and validates Selvedge's providers on this machine
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Test providers: does each keep what it promises? The code is 0 if all tests pass or are
    /// skipped as expected
    Run(run::Args),
    /// Have two processes talk through the fabric, and show latency and bandwidth beside the
    /// machine's limits
    Pingpong(pingpong::Args),
    /// Measure latency, bandwidth and message rate, against the limits and against others
    Bench(bench::Args),
    /// Lay two reports of `bench --json` side by side: what one takes over what the other takes
    Compare(compare::Args),
    /// Draw reports of `bench --json`: latency and bandwidth against size, beside the limits
    Plot(plot::Args),
    /// Show what this machine can do between two processes, without any fabric
    Limits(limits::Args),
    /// Say what this machine allows, what that means for speed, and what to do; the code is 0 if
    /// shm works at full speed, 1 if it could be faster, 3 if it does not work
    Doctor(doctor::Args),
    /// Have many processes talk to each other, all to all, and show what meeting costs in time and
    /// memory
    Crowd(crowd::Args),
    /// Have processes access each other's memory as a SHMEM library does, and check every result
    Shmem(shmem::Args),
    #[command(hide = true)]
    ShmemProcess(shmem::ProcessArgs),
    /// List the programs under upstream's names, which `fabtests NAME ...` runs
    Programs,
    /// Link to this program under the names of all of them
    Links(upstream::LinksArgs),
    /// Kill, stop, attack and starve processes on purpose, and count who survives
    Campaign(campaign::Args),
    #[command(hide = true)]
    Conform(conformance::Args),
    #[command(hide = true)]
    Misbehave(misbehave::Args),
    /// Have many processes send requests to one server over BMI, and show how many are served, and
    /// whether all of them are
    Bmi(bmi::Args),
    #[command(hide = true)]
    BmiClient(requests::ClientArgs),
    #[command(hide = true)]
    Role(role::Args),
    #[command(hide = true)]
    Member(crowd::MemberArgs),
    #[command(hide = true)]
    Attach(doctor::AttachArgs),
    #[command(hide = true)]
    Actor(part::Args),
}

fn main() -> ExitCode {
    if let Err(error) = selvedge::log::init() {
        eprintln!("fabtests: {error}");
        return ExitCode::FAILURE;
    }
    if let Some(code) = upstream::called(std::env::args_os()) {
        return code;
    }
    let result = match Cli::parse().command {
        Command::Pingpong(args) => pingpong::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Plot(args) => plot::run(&args),
        Command::Limits(args) => limits::run(&args),
        Command::Programs => upstream::list(),
        Command::Links(args) => upstream::links(&args),
        Command::Campaign(args) => campaign::run(&args),
        Command::Conform(args) => conformance::run(&args),
        Command::Misbehave(args) => misbehave::run(&args),
        Command::Bmi(args) => bmi::run(&args),
        Command::BmiClient(args) => requests::client(&args),
        Command::Role(args) => role::run(&args, Some(fabtests::bmi::open)),
        Command::Crowd(args) => crowd::run(&args),
        Command::Shmem(args) => shmem::run(&args),
        Command::ShmemProcess(args) => shmem::process(&args),
        Command::Member(args) => crowd::member(&args),
        Command::Attach(args) => doctor::attach(&args),
        Command::Actor(args) => part::run(&args),
        Command::Run(args) => return or_complain(run::run(&args)),
        Command::Compare(args) => return or_complain(compare::run(&args)),
        Command::Doctor(args) => return or_complain(doctor::run(&args)),
    };
    or_complain(result.map(|()| ExitCode::SUCCESS))
}

fn or_complain(result: anyhow::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("fabtests: {error:#}");
            ExitCode::FAILURE
        }
    }
}
