//! `sighandler_test`: a process with an open endpoint is terminated by a signal like any other
//! process.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use selvedge::Caps;
use selvedge::info::EpType;
use selvedge_testkit::failure::wrong;

use crate::suite::control::RUNNER;
use crate::upstream::channel::{Channel, ChannelConfig};
use crate::upstream::options::{OptionSet, Options};
use crate::upstream::setup::discover::{discover, hints};
use crate::upstream::setup::domain;

/// The options of the program.
pub(in crate::upstream) const OPTIONS: OptionSet = OptionSet {
    long: &["child"],
    ..super::option_set("")
};

/// The line that the child prints when its endpoint is open.
const OPEN: &str = "open";
/// The time in which a signal must terminate the child.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs the program; with `--child`, the process that is terminated.
pub(in crate::upstream) fn sighandler_test(options: &Options) -> anyhow::Result<()> {
    if options.has("child") {
        return serve(options);
    }
    let mut child = ChildGuard(start(options)?);
    let out = child.0.stdout.take().context("the child has no output")?;
    let line = BufReader::new(out).lines().next().transpose()?;
    if line.as_deref() != Some(OPEN) {
        let code = child.0.wait()?.code().unwrap_or(1);
        // The child's exit code is the error of an unsupported provider.
        return Err(selvedge::Error::new(
            selvedge::Errno::from_raw(code),
            "the child did not open its endpoint",
        )
        .into());
    }
    let signal = terminating_signal()?;
    kill(Pid::from_raw(child.0.id().cast_signed()), signal)?;
    let start = Instant::now();
    let status = loop {
        match child.0.try_wait()? {
            Some(status) => break status,
            None if start.elapsed() > TERMINATION_TIMEOUT => {
                bail!("{signal} has not terminated the child in time")
            }
            None => sleep(Duration::from_millis(5)),
        }
    };
    match status.signal() {
        Some(number) if number == signal as i32 => Ok(()),
        _ => Err(wrong(format!(
            "the child ended with {status}, expected {signal}"
        ))),
    }
}

/// Returns SIGINT, or SIGTERM if this process and therefore the child ignores SIGINT, as background
/// jobs of a shell do.
fn terminating_signal() -> anyhow::Result<Signal> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let ignored = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .context("/proc/self/status has no SigIgn")?;
    let ignored = u64::from_str_radix(ignored.trim(), 16)?;
    Ok(match ignored >> (Signal::SIGINT as u32 - 1) & 1 {
        0 => Signal::SIGINT,
        _ => Signal::SIGTERM,
    })
}

fn start(options: &Options) -> anyhow::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command
        .args(&options.command_line)
        .arg("--child")
        .env_remove(RUNNER)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command.spawn().context("cannot start the child process")
}

/// Runs a server that waits for a client that never connects.
fn serve(options: &Options) -> anyhow::Result<()> {
    let info = discover(options, &hints(options, Caps::MSG, EpType::Rdm)?)?;
    let domain = domain::open(options, info)?;
    let mut channel =
        Channel::without_receive(options, &domain, ChannelConfig::default(), None, None)?;
    channel.prepost()?;
    println!("{OPEN}");
    channel.handshake()
}

/// A child that is killed when the value is dropped.
struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
