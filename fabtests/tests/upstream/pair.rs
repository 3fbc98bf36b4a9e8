//! Runs the server and the client of a program as processes, with a timeout.

use std::io::Read as _;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The timeout of a process.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The output and the exit code of a process.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) text: String,
    pub(crate) errors: String,
}

impl Outcome {
    /// The rows of the table, without the heading.
    pub(crate) fn rows(&self) -> Vec<Vec<&str>> {
        let rows = self.text.lines().skip(1);
        rows.map(|row| row.split_whitespace().collect()).collect()
    }
}

/// Returns a `fabtests` command with these arguments.
pub(crate) fn command(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fabtests"));
    command.args(line.split_whitespace());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Serializes tests whose processes spin: with more spinning processes than cores, each message
/// takes a time slice.
pub(crate) fn exclusive() -> MutexGuard<'static, ()> {
    static EXCLUSIVE: Mutex<()> = Mutex::new(());
    EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs one process.
pub(crate) fn run_process(line: &str) -> Outcome {
    wait_for_outcome(ProcessGuard(command(line).spawn().unwrap()), line)
}

/// Runs a server and a client with the same options, under a unique name.
pub(crate) fn pair(line: &str) -> [Outcome; 2] {
    static PAIRS: AtomicUsize = AtomicUsize::new(0);
    let number = PAIRS.fetch_add(1, Ordering::Relaxed);
    pair_with(line, &format!("{}.{number}", std::process::id()), &[])
}

/// Runs a pair as [`pair`] does, with a given name and environment variables.
pub(crate) fn pair_with(line: &str, name: &str, variables: &[(&str, &str)]) -> [Outcome; 2] {
    let _guard = exclusive();
    let start = |line: &str| ProcessGuard::spawn(command(line).envs(variables.iter().copied()));
    let server = start(&format!("{line} -B {name}"));
    let client = start(&format!("{line} -P {name} 127.0.0.1"));
    let client = wait_for_outcome(client, line);
    [wait_for_outcome(server, line), client]
}

/// Runs a pair as [`pair`] does, with `-E=PORT` or another option for the out-of-band port.
pub(crate) fn pair_out_of_band(line: &str, option: &str) -> [Outcome; 2] {
    pair(&format!("{line} -{option}={}", free_port()))
}

/// Asserts that all processes succeed.
pub(crate) fn succeed(outcomes: &[Outcome]) {
    for outcome in outcomes {
        assert_eq!(outcome.code, Some(0), "{outcome:#?}");
    }
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A process. Dropping the value kills it.
pub(crate) struct ProcessGuard(Child);

impl Drop for ProcessGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl ProcessGuard {
    /// Starts a command.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    /// The process ID.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Waits until the process has ended.
    pub(crate) fn wait(self, line: &str) -> Outcome {
        wait_for_outcome(self, line)
    }
}

/// Starts a process.
pub(crate) fn start(line: &str) -> ProcessGuard {
    ProcessGuard::spawn(&mut command(line))
}

fn wait_for_outcome(mut process: ProcessGuard, line: &str) -> Outcome {
    let mut out = process.0.stdout.take().unwrap();
    let mut err = process.0.stderr.take().unwrap();
    let reader = std::thread::spawn(move || {
        let (mut text, mut errors) = (String::new(), String::new());
        out.read_to_string(&mut text).unwrap();
        err.read_to_string(&mut errors).unwrap();
        (text, errors)
    });
    let start = Instant::now();
    while process.0.try_wait().unwrap().is_none() {
        assert!(
            start.elapsed() < TIMEOUT,
            "{line}: still running after {TIMEOUT:?}"
        );
        sleep(Duration::from_millis(5));
    }
    let code = process.0.wait().unwrap().code();
    let (text, errors) = reader.join().unwrap();
    Outcome { code, text, errors }
}
