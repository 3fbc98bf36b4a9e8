//! `fabtests scale`: the scale test of many processes, each of which exchanges messages with all
//! others.

use std::time::Duration;

use selvedge_bench::output;

use crate::scale::{ScaleReport, measure, run_process};

/// Arguments of `fabtests scale`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Processes
    #[arg(short = 'n', long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(2..=512))]
    processes: u16,
    /// Rounds of messages after the first
    #[arg(long, default_value_t = 20)]
    rounds: u32,
    /// End with an error after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    timeout: u32,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Arguments of one process of the scale test.
#[derive(Clone, Debug, clap::Args)]
pub struct ProcessArgs {
    number: usize,
    count: usize,
    rounds: u32,
}

/// Runs the scale test and prints its report.
///
/// # Errors
/// As [`measure`].
pub fn run(args: &Args) -> anyhow::Result<()> {
    let timeout = Duration::from_secs(args.timeout.into());
    let report = measure(args.processes.into(), args.rounds, timeout)?;
    let text = if args.json {
        serde_json::to_string(&report)? + "\n"
    } else {
        report.text()
    };
    output::print(&text);
    Ok(())
}

/// Runs one process of the scale test.
///
/// # Errors
/// The error of the process.
pub fn process(args: &ProcessArgs) -> anyhow::Result<()> {
    run_process(args.number, args.count, args.rounds)
}

impl ScaleReport {
    fn text(&self) -> String {
        let [before, after] = self.pss_kib.map(|kib| kib as f64 / 1024.0);
        let count = self.processes;
        let pairs = (count * (count - 1)) as f64;
        format!(
            "{count} processes, {} messages\n\
             all pairs are connected after {:.0} ms\n\
             a round takes {:.2} ms, {:.2} us for each message\n\
             {before:.0} MiB before the first contact, {after:.0} MiB after; {:.0} KiB for each pair of peers\n\
             {} MiB of shared memory were created\n\
             {} descriptors in a process\n",
            self.messages,
            self.first_exchange_ms,
            self.round_ms,
            self.round_ms * 1000.0 / pairs,
            (after - before) * 1024.0 / pairs * 2.0,
            self.shared_kib >> 10,
            self.descriptors,
        )
    }
}
