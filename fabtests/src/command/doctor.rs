//! `fabtests doctor`: what this machine allows, what that means for speed, and what to do.

use std::process::ExitCode;

use selvedge_bench::output;

use crate::doctor::{Diagnosis, Finding, Verdict, examine, offer, read_offer};

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
    part: Part,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Part {
    /// Say where a number stands
    Offer,
    /// Read a number out of another process
    Read { pid: i32, addr: usize },
}

/// Examines the machine and prints; the code says how shm works: 0 at full speed, 1 slower than it
/// could, 3 not at all.
///
/// # Errors
/// When the findings cannot be written as JSON.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let diagnosis = examine();
    let text = match args.json {
        true => serde_json::to_string(&diagnosis)? + "\n",
        false => diagnosis.text(),
    };
    output::print(&text);
    Ok(match (diagnosis.full_speed, diagnosis.works) {
        (true, _) => ExitCode::SUCCESS,
        (false, true) => ExitCode::from(1),
        (false, false) => ExitCode::from(3),
    })
}

/// Plays one of the processes that the doctor starts.
///
/// # Errors
/// As the part.
pub fn attach(args: &AttachArgs) -> anyhow::Result<()> {
    match args.part {
        Part::Offer => offer(),
        Part::Read { pid, addr } => read_offer(pid, addr),
    }
}

impl Diagnosis {
    fn text(&self) -> String {
        let findings: String = self.findings.iter().map(Finding::text).collect();
        let verdict = match (self.full_speed, self.works) {
            (true, _) => "shm works at full speed here.",
            (false, true) => "shm works here, and could be faster.",
            (false, false) => "shm does not work here.",
        };
        format!("{findings}\n{verdict}\n")
    }
}

impl Finding {
    fn text(&self) -> String {
        let mark = match self.verdict {
            Verdict::Good => "good",
            Verdict::Note => "note",
            Verdict::Slow => "slow",
            Verdict::Broken => "BAD ",
        };
        let advice = self
            .advice
            .iter()
            .map(|advice| format!("      -> {advice}\n"));
        format!(
            "{mark}  {}: {}. {}.\n{}",
            self.name,
            sentence(&self.found),
            sentence(&self.meaning),
            advice.collect::<String>()
        )
    }
}

/// With a capital letter, unless it begins with the name of a call.
fn sentence(text: &str) -> String {
    let first = text.split_whitespace().next().unwrap_or_default();
    match first.contains('_') || first.contains('/') {
        true => text.to_owned(),
        false => text[..1].to_uppercase() + &text[1..],
    }
}
