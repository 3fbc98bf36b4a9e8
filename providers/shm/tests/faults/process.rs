//! Processes: peer processes, which serve requests of a test line by line; processes that run one
//! test alone; and the watchdog of both.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Time after which the process of an unfinished test is aborted.
const TEST_TIMEOUT: Duration = Duration::from_secs(300);

/// The environment variable of a process that runs one test alone.
const ALONE: &str = "FAULTS_ALONE";

/// Aborts the process if the test does not end.
pub(crate) struct Watchdog(
    #[expect(dead_code, reason = "dropping it disarms the watchdog")] Sender<()>,
);

impl Watchdog {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = channel();
        let name = std::thread::current().name().unwrap_or("?").to_owned();
        std::thread::spawn(move || {
            if receiver.recv_timeout(TEST_TIMEOUT)
                == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
            {
                eprintln!("{name}: has not ended after {TEST_TIMEOUT:?}");
                std::process::abort();
            }
        });
        Self(sender)
    }
}

/// Runs a test in a separate process, whose descriptors, mappings and limits are not shared with
/// other tests. A test calls this function once, and passes its body.
pub(crate) fn alone(test: impl FnOnce()) {
    alone_with(&[], test);
}

/// As [`alone`], with these environment variables.
pub(crate) fn alone_with(environment: &[(&str, &str)], test: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        let _watchdog = Watchdog::new();
        return test();
    }
    let name = std::thread::current().name().unwrap().to_owned();
    let output = test_binary_command(&[&name, "--exact"])
        .env(ALONE, "1")
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    print!("{text}");
    for skip in errors.lines().filter(|line| line.starts_with("skipped: ")) {
        let _ = writeln!(std::io::stderr(), "{skip}");
    }
    assert!(
        output.status.success(),
        "{}\n{text}\n{errors}",
        output.status
    );
}

/// The command that starts this test binary again.
fn test_binary_command(args: &[&str]) -> Command {
    // This path exists even if the file was replaced.
    let mut command = Command::new("/proc/self/exe");
    command.args(args).args(ALONE_WITH_OUTPUT);
    command
}

/// Arguments of a test that runs alone, with its output.
const ALONE_WITH_OUTPUT: [&str; 2] = ["--nocapture", "--test-threads=1"];
/// Arguments of a peer process.
const PEER_PROCESS: [&str; 3] = ["peer_process", "--exact", "--ignored"];

/// Another process with an endpoint, which serves requests. Dropping it kills the process.
pub(crate) struct PeerProcess {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl PeerProcess {
    pub(crate) fn start() -> Self {
        Self::run(test_binary_command(&PEER_PROCESS))
    }

    /// Starts a peer process by a command that takes a program and its arguments at the end.
    pub(crate) fn start_by(mut command: Command) -> Self {
        command.arg(std::env::current_exe().unwrap());
        command.args(PEER_PROCESS).args(ALONE_WITH_OUTPUT);
        Self::run(command)
    }

    fn run(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    /// Starts a peer process with an endpoint of this name.
    pub(crate) fn named(name: &str) -> Self {
        let mut peer_process = Self::start();
        peer_process.request(&format!("open {name}"));
        peer_process
    }

    /// Sends a request without waiting for the response.
    pub(crate) fn send_request(&mut self, request: &str) {
        writeln!(self.input, "{request}").unwrap();
    }

    /// Waits for the response to a request.
    pub(crate) fn response(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(
                self.output.read_line(&mut line).unwrap() > 0,
                "the peer process has ended"
            );
            if let Some(response) = line.strip_prefix('@') {
                return response.trim_end().to_owned();
            }
        }
    }

    /// Sends a request and waits for its response.
    pub(crate) fn request(&mut self, request: &str) -> String {
        self.send_request(request);
        self.response()
    }

    /// As [`Self::request`]; `None` if the process ends before it responds.
    pub(crate) fn try_request(&mut self, request: &str) -> Option<String> {
        writeln!(self.input, "{request}").ok()?;
        let mut line = String::new();
        while self.output.read_line(&mut line).ok()? > 0 {
            if let Some(response) = line.strip_prefix('@') {
                return Some(response.trim_end().to_owned());
            }
            line.clear();
        }
        None
    }

    /// Kills the process, and waits for its end.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }
}

impl Drop for PeerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
