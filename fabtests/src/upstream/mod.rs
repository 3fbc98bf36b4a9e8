//! Programs with the names of libfabric's fabtests. Their options, roles, exit codes and output
//! tables are upstream's, so that scripts can drive them; their checks are stricter.
//!
//! `fabtests fi_rdm_pingpong ...` runs a program, and so does a link to `fabtests` with the
//! program's name.

mod bench;
mod channel;
mod data;
pub mod entries;
mod functional;
mod multinode;
pub mod options;
mod programs;
mod setup;
mod uber;
mod unit;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use nix::sys::signal::{Signal, raise};
use selvedge_testkit::failure::exit_code;

use crate::suite::control::Control;
use options::Refusal;
use programs::{PROGRAMS, Program};

pub use programs::links::{LinksArgs, create_links, list_programs};

/// Runs a program of this suite if the command line names one, by the name of the executable or by
/// the first argument.
pub fn run_named(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut args = args.into_iter();
    let invoked = args.next()?;
    let name = Path::new(&invoked)
        .file_name()?
        .to_string_lossy()
        .into_owned();
    if let Some(program) = find_program(&name) {
        return Some(run(program, args));
    }
    let first = args.next()?;
    let program = find_program(&first.to_string_lossy())?;
    Some(run(program, args))
}

fn find_program(name: &str) -> Option<&'static Program> {
    PROGRAMS.iter().find(|program| program.name == name)
}

fn run(program: &Program, args: impl Iterator<Item = OsString>) -> ExitCode {
    let options = match options::parse(program.name, &program.option_set, args) {
        Ok(options) => options,
        Err(Refusal::Help) => {
            eprint!("{}", usage(program));
            return ExitCode::FAILURE;
        }
        Err(Refusal::Bad(error)) => {
            eprintln!("{}: {error:#}\n{}", program.name, usage(program));
            return ExitCode::FAILURE;
        }
    };
    // In a run of the suite, this process ends with its runner.
    let result = Control::find().and_then(|_| (program.run)(&options));
    let code = match &result {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{}: {error:#}", program.name);
            if options.stops_on_failure {
                stop_for_debugger();
            }
            exit_code(error)
        }
    };
    match options.expected_error {
        Some(expected) if expected.unsigned_abs() == u32::from(code) => ExitCode::SUCCESS,
        Some(_) if code == 0 => ExitCode::FAILURE,
        _ => ExitCode::from(code),
    }
}

/// Stops this process until a debugger or `SIGCONT` continues it.
fn stop_for_debugger() {
    eprintln!("process {} has stopped for a debugger", std::process::id());
    // If the process cannot stop, it exits as without the option.
    let _ = raise(Signal::SIGSTOP);
}

/// Returns the usage text of a program.
fn usage(program: &Program) -> String {
    let Program {
        name,
        about,
        option_set,
        ..
    } = program;
    let common = option_set.common.concat();
    let mut text = format!("{name}: {about}\n\n  {name} [OPTIONS]           the server\n");
    text += &format!(
        "  {name} [OPTIONS] SERVER    the client\n\noptions: -{common}{}\n",
        option_set.specific
    );
    for long in option_set.long {
        text += &format!("  --{long}\n");
    }
    text + "docs/FABTESTS-REFERENCE.md documents the options; an option with : takes a value\n"
}
