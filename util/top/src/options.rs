//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use lexopt::prelude::{Long, Short, Value, ValueExt};

/// The output of the program.
#[derive(Debug)]
pub(crate) enum Mode {
    Live,
    Once,
    Json,
    /// The text that describes the waiting endpoints of the process with this id.
    Dump(u32),
    /// The contents of the flight record in this file.
    Flight(PathBuf),
    Latency,
    Help,
    Version,
}

/// The command-line options.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) mode: Mode,
    /// The time between two snapshots.
    pub(crate) interval: Duration,
    /// The ids of the processes to show; empty for all.
    pub(crate) pids: Vec<u32>,
}

impl Options {
    pub(crate) fn read() -> anyhow::Result<Self> {
        let mut parser = lexopt::Parser::from_env();
        let mut options = Self {
            mode: Mode::Live,
            interval: Duration::from_secs(1),
            pids: Vec::new(),
        };
        while let Some(argument) = parser.next()? {
            match argument {
                Short('h') | Long("help") => options.mode = Mode::Help,
                Short('V') | Long("version") => options.mode = Mode::Version,
                Short('1') | Long("once") => options.mode = Mode::Once,
                Long("latency") => options.mode = Mode::Latency,
                Long("json") => options.mode = Mode::Json,
                Long("dump") => options.mode = Mode::Dump(pid(&parser.value()?.string()?)?),
                Long("flight") => options.mode = Mode::Flight(parser.value()?.into()),
                Short('i') | Long("interval") => {
                    options.interval = interval(&parser.value()?.string()?)?;
                }
                Short('p') | Long("pid") => options.pids.push(pid(&parser.value()?.string()?)?),
                Value(value) => options.pids.push(pid(&value.string()?)?),
                other => return Err(other.unexpected().into()),
            }
        }
        Ok(options)
    }

    /// Returns whether the options select a process.
    pub(crate) fn shows(&self, pid: u32) -> bool {
        self.pids.is_empty() || self.pids.contains(&pid)
    }
}

fn pid(text: &str) -> anyhow::Result<u32> {
    text.parse()
        .with_context(|| format!("{text:?} is no process id"))
}

fn interval(text: &str) -> anyhow::Result<Duration> {
    let seconds: f64 = text
        .parse()
        .with_context(|| format!("{text:?} is no time in seconds"))?;
    if !(0.05..=3600.0).contains(&seconds) {
        bail!("an interval of {text} seconds: expected one from 0.05 to 3600");
    }
    Ok(Duration::from_secs_f64(seconds))
}

pub(crate) const USAGE: &str = "\
Usage: fi_top [OPTIONS] [PID]..

Shows every endpoint of your processes: rates, queues, protocols, peers.

  -1, --once          prints one table, with the rates of one interval, and ends
      --json          prints the same as JSON
      --dump PID      describes what the endpoints of a process wait for
      --latency       prints latencies by operation and size (FI_HOOK=perf)
      --flight FILE   prints a flight record, written at a crash or a signal
  -i, --interval S    seconds between two snapshots [1]
  -p, --pid PID       only this process; more than once for several
  -h, --help          prints this text
  -V, --version       prints the version

Keys: q ends, up and down choose an endpoint, l shows how long remote operations
took, p stops the view.
";
