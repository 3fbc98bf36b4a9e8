//! Two processes of a program, and the watchdog over them.

use std::io::Read as _;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long two processes may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a process has printed, and its exit code.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) text: String,
    pub(crate) errors: String,
}

impl Outcome {
    /// The rows of its table, without the heading.
    pub(crate) fn rows(&self) -> Vec<Vec<&str>> {
        let rows = self.text.lines().skip(1);
        rows.map(|row| row.split_whitespace().collect()).collect()
    }
}

/// The program, with a command line.
pub(crate) fn command(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fabtests"));
    command.args(line.split_whitespace());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Lets one test at a time have processes that spin: where more of them spin than there are cores,
/// each message takes a time slice.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs one process.
pub(crate) fn alone(line: &str) -> Outcome {
    outcome(Running(command(line).spawn().unwrap()), line)
}

/// Runs a server and a client with the same options, under a name that no other test has.
pub(crate) fn pair(line: &str) -> [Outcome; 2] {
    static PAIRS: AtomicUsize = AtomicUsize::new(0);
    let number = PAIRS.fetch_add(1, Ordering::Relaxed);
    pair_with(line, &format!("{}.{number}", std::process::id()), &[])
}

/// The same under a name, with variables in the environment.
pub(crate) fn pair_with(line: &str, name: &str, variables: &[(&str, &str)]) -> [Outcome; 2] {
    let _turn = turn();
    let start = |line: &str| Running::of(command(line).envs(variables.iter().copied()));
    let server = start(&format!("{line} -B {name}"));
    let client = start(&format!("{line} -P {name} 127.0.0.1"));
    let client = outcome(client, line);
    [outcome(server, line), client]
}

/// The same with `-E=PORT`, or the letter that is given, and a port that is free.
pub(crate) fn pair_beside(line: &str, letter: &str) -> [Outcome; 2] {
    pair(&format!("{line} -{letter}={}", free_port()))
}

/// Both processes succeed.
pub(crate) fn succeed(outcomes: &[Outcome]) {
    for outcome in outcomes {
        assert_eq!(outcome.code, Some(0), "{outcome:#?}");
    }
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Is killed if the test ends before it.
pub(crate) struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// Starts a command.
    pub(crate) fn of(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Waits for its end.
    pub(crate) fn end(self, line: &str) -> Outcome {
        outcome(self, line)
    }
}

/// Starts one process.
pub(crate) fn start(line: &str) -> Running {
    Running::of(&mut command(line))
}

fn outcome(mut running: Running, line: &str) -> Outcome {
    let mut out = running.0.stdout.take().unwrap();
    let mut err = running.0.stderr.take().unwrap();
    let read = std::thread::spawn(move || {
        let (mut text, mut errors) = (String::new(), String::new());
        out.read_to_string(&mut text).unwrap();
        err.read_to_string(&mut errors).unwrap();
        (text, errors)
    });
    let start = Instant::now();
    while running.0.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < PATIENCE, "{line}: still running");
        sleep(Duration::from_millis(5));
    }
    let code = running.0.wait().unwrap().code();
    let (text, errors) = read.join().unwrap();
    Outcome { code, text, errors }
}
