//! `sighandler_test`: a process with an open endpoint dies of a signal as any other does.

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
use crate::upstream::channel::{Channel, Manners};
use crate::upstream::discover::{discover, hints};
use crate::upstream::ground;
use crate::upstream::options::{Letters, Options};

/// Its letters.
pub(in crate::upstream) const LETTERS: Letters = Letters {
    long: &["child"],
    ..super::letters("")
};

/// What the child says when its endpoint is open.
const OPEN: &str = "open";
/// How long a signal may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// The program; with `--child` the process that dies.
pub(in crate::upstream) fn sighandler_test(options: &Options) -> anyhow::Result<()> {
    if options.has("child") {
        return serve(options);
    }
    let mut child = Killed(start(options)?);
    let out = child.0.stdout.take().context("the child has no output")?;
    let said = BufReader::new(out).lines().next().transpose()?;
    if said.as_deref() != Some(OPEN) {
        let code = child.0.wait()?.code().unwrap_or(1);
        // Whatever the provider lacks is the child's exit code.
        return Err(selvedge::Error::new(
            selvedge::Errno::from_raw(code),
            "the child did not open its endpoint",
        )
        .into());
    }
    let signal = deadly()?;
    kill(Pid::from_raw(child.0.id().cast_signed()), signal)?;
    let start = Instant::now();
    let status = loop {
        match child.0.try_wait()? {
            Some(status) => break status,
            None if start.elapsed() > PATIENCE => bail!("the child does not die of {signal}"),
            None => sleep(Duration::from_millis(5)),
        }
    };
    match status.signal() {
        Some(number) if number == signal as i32 => Ok(()),
        _ => Err(wrong(format!("the child was to die of {signal}: {status}"))),
    }
}

/// SIGINT, unless it is ignored here, as in the background jobs of a shell, and so by the child, too.
fn deadly() -> anyhow::Result<Signal> {
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
    command.spawn().context("cannot start a child")
}

/// A server that waits for a client that never comes.
fn serve(options: &Options) -> anyhow::Result<()> {
    let info = discover(options, &hints(options, Caps::MSG, EpType::Rdm)?)?;
    let ground = ground::open(options, info)?;
    let mut channel = Channel::deaf(options, &ground, Manners::default(), None, None)?;
    channel.post_rest()?;
    println!("{OPEN}");
    channel.meet()
}

/// Does not outlive the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
