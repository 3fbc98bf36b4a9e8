//! `fabtests`: one program for the suite's tools and benchmarks.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use fabtests::bmi::requests;
use fabtests::campaign as campaigns;
use fabtests::command::{bmi, campaign, compare, doctor, run, scale, shmem};
use fabtests::doctor::mpi::{RankArgs, run_rank};
use fabtests::suite::conformance;
use fabtests::suite::run::selftest;
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
    /// Test providers: does each keep its promises? The code is 0 if all tests pass or are skipped
    /// as expected
    Run(run::Args),
    /// Measure round trips between two processes, and the machine's limits
    Pingpong(pingpong::Args),
    /// Measure latency, bandwidth and message rate, with the limits and other contestants
    Bench(bench::Args),
    /// Compare two reports of `bench --json`, or two programs
    Compare(compare::Args),
    /// Draw reports of `bench --json`: latency and bandwidth against size, with the limits
    Plot(plot::Args),
    /// Measure what this machine can do between two processes, without any fabric
    Limits(limits::Args),
    /// Examine what this machine permits, with the effect on speed and remedies; the code is 0 if
    /// shm works at full speed, 1 if it could be faster, 3 if it does not work
    Doctor(doctor::Args),
    /// Run the scale test: many processes exchange messages, all to all; show what connecting costs
    /// in time and memory
    #[command(alias = "crowd")]
    Scale(scale::Args),
    /// Access memory between processes as a SHMEM library does, and check every result
    Shmem(shmem::Args),
    #[command(hide = true)]
    ShmemProcess(shmem::ProcessArgs),
    /// List the programs with upstream's names, which `fabtests NAME ...` runs
    Programs,
    /// Create links to this program with all of these names
    Links(upstream::LinksArgs),
    /// Kill, stop and attack processes, and count the attempts that harmed no other process
    Campaign(campaign::Args),
    #[command(hide = true)]
    Conform(conformance::Args),
    #[command(hide = true)]
    SelftestProcess(selftest::Args),
    /// Send requests from many processes to one server over BMI, and show how many are served, and
    /// whether all processes are served
    Bmi(bmi::Args),
    #[command(hide = true)]
    BmiClient(requests::ClientArgs),
    #[command(hide = true)]
    Role(role::Args),
    #[command(hide = true)]
    ScaleProcess(scale::ProcessArgs),
    #[command(hide = true)]
    Attach(doctor::AttachArgs),
    #[command(hide = true)]
    MpiRank(RankArgs),
    #[command(hide = true)]
    CampaignProcess(campaigns::ProcessArgs),
}

fn main() -> ExitCode {
    if let Err(error) = selvedge::log::init() {
        eprintln!("fabtests: {error}");
        return ExitCode::FAILURE;
    }
    if let Some(code) = upstream::run_named(std::env::args_os()) {
        return code;
    }
    let result = match Cli::parse().command {
        Command::Pingpong(args) => pingpong::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Plot(args) => plot::run(&args),
        Command::Limits(args) => limits::run(&args),
        Command::Programs => upstream::list_programs(),
        Command::Links(args) => upstream::create_links(&args),
        Command::Campaign(args) => campaign::run(&args),
        Command::Conform(args) => conformance::run(&args),
        Command::SelftestProcess(args) => selftest::run(&args),
        Command::Bmi(args) => bmi::run(&args),
        Command::BmiClient(args) => requests::run_client(&args),
        Command::Role(args) => role::run(&args, Some(fabtests::bmi::open)),
        Command::Scale(args) => scale::run(&args),
        Command::Shmem(args) => shmem::run(&args),
        Command::ShmemProcess(args) => shmem::process(&args),
        Command::ScaleProcess(args) => scale::process(&args),
        Command::Attach(args) => doctor::attach(&args),
        Command::MpiRank(args) => run_rank(&args),
        Command::CampaignProcess(args) => campaigns::run_process(&args),
        Command::Run(args) => return or_report(run::run(&args)),
        Command::Compare(args) => return or_report(compare::run(&args)),
        Command::Doctor(args) => return or_report(doctor::run(&args)),
    };
    or_report(result.map(|()| ExitCode::SUCCESS))
}

fn or_report(result: anyhow::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("fabtests: {error:#}");
            ExitCode::FAILURE
        }
    }
}
