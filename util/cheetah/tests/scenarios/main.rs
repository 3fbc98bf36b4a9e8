//! The scenarios of the tests: `cheetah-scenarios SCENARIO [-shmem] [-np N] ...`. A context that
//! fails prints the error and exits with 1.

mod basics;
mod calls;
mod errors;
mod exchange;
mod matching;
mod remote;

use std::process::ExitCode;

use selvedge_cheetah::{Controller, Result};

/// Function of a scenario. It gets the command-line arguments that follow the scenario's name.
type Scenario = fn(&Controller, &[String]) -> Result;

fn scenarios() -> impl Iterator<Item = (&'static str, Scenario)> {
    let all = [
        basics::SCENARIOS,
        calls::SCENARIOS,
        matching::SCENARIOS,
        remote::SCENARIOS,
        errors::SCENARIOS,
    ];
    all.into_iter().flatten().copied()
}

/// Logger that prints the errors of the library.
struct ErrorLog;

impl log::Log for ErrorLog {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() == log::Level::Error
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            // One write per line: other contexts write to the same stream.
            let line = format!("logged: {}\n", record.args());
            eprint!("{line}");
        }
    }

    fn flush(&self) {}
}

fn main() -> ExitCode {
    log::set_logger(&ErrorLog).expect("the first logger");
    log::set_max_level(log::LevelFilter::Error);
    let mut args: Vec<String> = std::env::args().collect();
    match run(&mut args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &mut Vec<String>) -> Result {
    if args.iter().any(|arg| arg == "--chatty") {
        // Without an end of line the text stays in the buffer, and a fork would copy it.
        print!("before the fork ");
    }
    let controller = Controller::from_args(args)?;
    let name = args.get(1).cloned().unwrap_or_default();
    let scenario = scenarios().find(|scenario| scenario.0 == name);
    let (_, scenario) = scenario.unwrap_or_else(|| panic!("no scenario {name:?}"));
    scenario(&controller, &args[2..])?;
    if args.iter().any(|arg| arg == "--drop") {
        drop(controller);
    } else if controller.is_valid() {
        controller.finalize()?;
    }
    println!("context succeeded");
    Ok(())
}
