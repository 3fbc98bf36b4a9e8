//! `fabtests doctor`: reports what this machine permits, the effect on speed, and remedies.

use std::process::ExitCode;

use selvedge_bench::output;

use crate::doctor::{Diagnosis, Finding, Severity, examine, expose_number, read_number};

/// Arguments of `fabtests doctor`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Arguments of the processes that the doctor starts.
#[derive(Clone, Debug, clap::Args)]
pub struct AttachArgs {
    #[command(subcommand)]
    role: HelperRole,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum HelperRole {
    /// Print the address of a number
    Expose,
    /// Read the number in another process
    Read { pid: i32, addr: usize },
}

/// Examines the machine and prints the findings. The exit code is 0 when shm works at full speed, 1
/// when it could be faster, 3 when it does not work.
///
/// # Errors
/// The findings cannot be written as JSON.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let diagnosis = examine();
    let text = if args.json {
        serde_json::to_string(&diagnosis)? + "\n"
    } else {
        diagnosis.text()
    };
    output::print(&text);
    Ok(match (diagnosis.full_speed, diagnosis.works) {
        (true, _) => ExitCode::SUCCESS,
        (false, true) => ExitCode::from(1),
        (false, false) => ExitCode::from(3),
    })
}

/// Runs one of the processes that the doctor starts.
///
/// # Errors
/// The error of the process.
pub fn attach(args: &AttachArgs) -> anyhow::Result<()> {
    match args.role {
        HelperRole::Expose => expose_number(),
        HelperRole::Read { pid, addr } => read_number(pid, addr),
    }
}

impl Diagnosis {
    fn text(&self) -> String {
        let findings: String = self.findings.iter().map(Finding::text).collect();
        let summary = match (self.full_speed, self.works) {
            (true, _) => "shm works at full speed on this machine.",
            (false, true) => "shm works on this machine, and could be faster.",
            (false, false) => "shm does not work on this machine.",
        };
        format!("{findings}\n{summary}\n")
    }
}

impl Finding {
    fn text(&self) -> String {
        let label = match self.severity {
            Severity::Good => "good",
            Severity::Note => "note",
            Severity::Slow => "slow",
            Severity::Broken => "BAD ",
        };
        let advice = self
            .advice
            .iter()
            .map(|advice| format!("      -> {advice}\n"));
        format!(
            "{label}  {}: {}. {}.\n{}",
            self.name,
            capitalise(&self.found),
            capitalise(&self.meaning),
            advice.collect::<String>()
        )
    }
}

/// Capitalises a text, unless it begins with the name of a call.
fn capitalise(text: &str) -> String {
    let first = text.split_whitespace().next().unwrap_or_default();
    if first.contains('_') || first.contains('/') {
        text.to_owned()
    } else {
        text[..1].to_uppercase() + &text[1..]
    }
}
