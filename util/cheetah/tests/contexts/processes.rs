//! Functions that run a scenario and check the exit of its contexts.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Time limit of one run: longer than any scenario takes on a busy machine.
const WATCHDOG: Duration = Duration::from_secs(120);

/// The program with all scenarios.
pub(crate) const SCENARIOS: &str = env!("CARGO_BIN_EXE_cheetah-scenarios");
/// The launcher.
pub(crate) const LAUNCHER: &str = env!("CARGO_BIN_EXE_cheetahrun");

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs `scenario` with `contexts` forked contexts, over shared memory.
pub(crate) fn run(scenario: &str, contexts: usize, options: &[&str]) -> Output {
    let count = contexts.to_string();
    let mut command = Command::new(SCENARIOS);
    command
        .args([scenario, "-shmem", "-np", &count])
        .args(options);
    run_command(command)
}

/// Runs `scenario` as [`run`] does, and asserts that it succeeds in every context.
pub(crate) fn run_expecting_success(scenario: &str, contexts: usize) {
    run(scenario, contexts, &[]).assert_success(contexts);
}

/// Runs a command until it exits. Panics after [`WATCHDOG`].
pub(crate) fn run_command(command: Command) -> Output {
    finish(spawn(command))
}

/// Starts a command with captured output.
pub(crate) fn spawn(mut command: Command) -> Child {
    for name in [
        "CHEETAH_RANK",
        "CHEETAH_SIZE",
        "CHEETAH_FABRIC",
        "PMI_FD",
        "PMI_RANK",
    ] {
        if !command.get_envs().any(|(set, _)| set == name) {
            command.env_remove(name);
        }
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Waits until a command, and all processes that have its output open, have exited.
pub(crate) fn finish(mut child: Child) -> Output {
    let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let (closed_sender, closed_receiver) = mpsc::channel();
    let spawn_reader = |mut stream: Box<dyn Read + Send>, closed: mpsc::Sender<()>| {
        thread::spawn(move || {
            let mut text = Vec::new();
            stream.read_to_end(&mut text).unwrap();
            // The receiver is dropped when the watchdog has expired.
            let _ = closed.send(());
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let readers = [
        spawn_reader(Box::new(out), closed_sender.clone()),
        spawn_reader(Box::new(err), closed_sender),
    ];
    for _ in 0..2 {
        if closed_receiver.recv_timeout(WATCHDOG).is_err() {
            let _ = child.kill();
            panic!("the contexts have not ended after {WATCHDOG:?}");
        }
    }
    let code = child.wait().unwrap().code();
    let [out, err] = readers.map(|reader| reader.join().unwrap());
    Output { code, out, err }
}

impl Output {
    /// Asserts that every context has succeeded.
    pub(crate) fn assert_success(&self, contexts: usize) {
        let succeeded = self.out.matches("context succeeded").count();
        assert!(self.code == Some(0) && succeeded == contexts, "{self:#?}");
    }

    /// Asserts that the run has failed with an error text that contains `expected`.
    pub(crate) fn assert_failed(&self, expected: &str) {
        let is_failure = self.code.is_some_and(|code| code != 0);
        assert!(
            is_failure && self.err.contains(expected),
            "expected {expected:?}: {self:#?}"
        );
    }
}
