//! `fabtests shmem`: the operations of a SHMEM library between processes.

use selvedge_bench::output;

use crate::shmem::{self, Config, Totals};

/// Arguments of `fabtests shmem`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    config: Config,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Arguments of one process of `fabtests shmem`.
#[derive(Clone, Debug, clap::Args)]
pub struct ProcessArgs {
    number: usize,
    #[command(flatten)]
    config: Config,
}

/// Runs the processes and prints the totals.
///
/// # Errors
/// As [`shmem::run`].
pub fn run(args: &Args) -> anyhow::Result<()> {
    let totals = shmem::run(&args.config)?;
    let text = if args.json {
        serde_json::to_string(&totals)? + "\n"
    } else {
        totals.text(&args.config)
    };
    output::print(&text);
    Ok(())
}

/// Runs one process.
///
/// # Errors
/// As [`shmem::run_process`].
pub fn process(args: &ProcessArgs) -> anyhow::Result<()> {
    shmem::run_process(args.number, &args.config)
}

impl Totals {
    fn text(self, config: &Config) -> String {
        format!(
            "{} processes over {}: {} operations in {} epochs, every result as expected\n",
            config.processes, config.provider, self.operations, self.epochs
        )
    }
}
