//! `fabtests crowd`: many processes, each of which talks to all others.

use std::time::Duration;

use selvedge_bench::output;

use crate::crowd::{Census, gather, run_member};

/// Arguments of `fabtests crowd`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Processes
    #[arg(short = 'n', long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(2..=512))]
    processes: u16,
    /// Rounds of messages after the first
    #[arg(long, default_value_t = 20)]
    rounds: u32,
    /// Give up after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    timeout: u32,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Arguments of a process of the crowd.
#[derive(Clone, Debug, clap::Args)]
pub struct MemberArgs {
    number: usize,
    count: usize,
    rounds: u32,
}

/// Gathers a crowd and prints what it costs.
///
/// # Errors
/// As [`gather`].
pub fn run(args: &Args) -> anyhow::Result<()> {
    let timeout = Duration::from_secs(args.timeout.into());
    let census = gather(args.processes.into(), args.rounds, timeout)?;
    let text = match args.json {
        true => serde_json::to_string(&census)? + "\n",
        false => census.text(),
    };
    output::print(&text);
    Ok(())
}

/// Plays a process of the crowd.
///
/// # Errors
/// As the member.
pub fn member(args: &MemberArgs) -> anyhow::Result<()> {
    run_member(args.number, args.count, args.rounds)
}

impl Census {
    fn text(&self) -> String {
        let [before, after] = self.pss_kib.map(|kib| kib as f64 / 1024.0);
        let count = self.processes;
        let pairs = (count * (count - 1)) as f64;
        format!(
            "{count} processes, {} messages\n\
             everybody has met everybody after {:.0} ms\n\
             a round takes {:.2} ms, {:.2} us for each message\n\
             {before:.0} MiB before they met, {after:.0} MiB after; {:.0} KiB for each pair of peers\n\
             {} MiB of shared memory were made\n\
             {} descriptors in a process\n",
            self.messages,
            self.first_contact_ms,
            self.round_ms,
            self.round_ms * 1000.0 / pairs,
            (after - before) * 1024.0 / pairs * 2.0,
            self.shared_kib >> 10,
            self.descriptors,
        )
    }
}
