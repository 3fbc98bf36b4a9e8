//! `fi_top`: statistics of the endpoints of the user's processes.

mod calls;
mod dump;
mod groups;
mod json;
mod live;
mod options;
mod processes;
mod rates;
mod table;
mod times;
mod units;

use std::process::ExitCode;

use anyhow::bail;

use options::{Mode, Options};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fi_top: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    let options = Options::read()?;
    match &options.mode {
        Mode::Help => print!("{}", options::USAGE),
        Mode::Version => println!("fi_top {}", env!("CARGO_PKG_VERSION")),
        Mode::Live => live::run(&options)?,
        Mode::Once => print!("{}", table::measure(&options)?),
        Mode::Json => println!("{}", json::measure(&options)?),
        Mode::Latency => print!("{}", times::format_all(&options)?),
        Mode::Dump(pid) => {
            let all = processes::all()?;
            if !all.iter().any(|stats| stats.pid == *pid) {
                bail!("process {pid} has no endpoints, has ended, or belongs to another user");
            }
            print!("{}", dump::describe_process(all, *pid));
        }
        Mode::Flight(path) => print!(
            "{}",
            dump::describe_flight_record(&processes::read_flight_record(path)?)
        ),
    }
    Ok(())
}
