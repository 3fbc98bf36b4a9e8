//! `fabtests doctor`: reports what this machine permits, the effect on speed, and remedies; with
//! `--mpi`, the route that messages of an MPI launcher take.

use std::path::PathBuf;
use std::process::ExitCode;

use selvedge_bench::output;

use crate::doctor::mpi::{self, MpiDiagnosis, Question};
use crate::doctor::{Diagnosis, Finding, Severity, examine, expose_number, read_number};

/// Arguments of `fabtests doctor`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Examine an MPI launcher instead: the library and the provider of its ranks, and the lines
    /// that run them over Selvedge. Give the launcher and its options last, without a program;
    /// `mpirun` if nothing is given. The code is 0 if ranks use Selvedge, 1 if they use something
    /// else, 3 if no rank runs
    #[arg(long, num_args = 0.., allow_hyphen_values = true, value_name = "LAUNCHER")]
    mpi: Option<Vec<String>>,
    /// With --mpi: examine the MPI library of this program, not the one of the launcher
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// With --mpi: the folder of Selvedge's libraries [default: beside this program]
    #[arg(long, value_name = "DIR")]
    libraries: Option<PathBuf>,
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
    if let Some(line) = &args.mpi {
        return run_mpi(args, line);
    }
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

fn run_mpi(args: &Args, line: &[String]) -> anyhow::Result<ExitCode> {
    let diagnosis = mpi::examine(Question {
        line,
        program: args.program.as_deref(),
        libraries: args.libraries.as_deref(),
    });
    let text = if args.json {
        serde_json::to_string(&diagnosis)? + "\n"
    } else {
        diagnosis.text()
    };
    output::print(&text);
    Ok(match (diagnosis.works, diagnosis.uses_selvedge) {
        (true, true) => ExitCode::SUCCESS,
        (true, false) => ExitCode::from(1),
        (false, _) => ExitCode::from(3),
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

impl MpiDiagnosis {
    fn text(&self) -> String {
        let findings: String = self.findings.iter().map(Finding::text).collect();
        let summary = match (self.works, self.uses_selvedge) {
            (true, true) => "Ranks of this launcher use Selvedge.",
            (true, false) => "Ranks of this launcher run, and do not use Selvedge.",
            (false, _) => "No rank of this launcher runs.",
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
        let evidence = self.evidence.iter();
        let evidence = evidence.map(|evidence| format!("      evidence: {evidence}\n"));
        format!(
            "{label}  {}: {}. {}.\n{}",
            self.name,
            capitalise(&self.found),
            capitalise(&self.meaning),
            evidence.chain(advice).collect::<String>()
        )
    }
}

/// Capitalises a text, unless it begins with the name of a call.
fn capitalise(text: &str) -> String {
    let first = text.split_whitespace().next().unwrap_or_default();
    if first.contains('_') || first.contains('/') {
        return text.to_owned();
    }
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + chars.as_str()
}
