//! Runs the commands as processes, one measurement at a time.

use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

/// Serializes the tests: two measurements that spin on the same cores take a time slice for each
/// message.
pub(crate) fn exclusive() -> MutexGuard<'static, ()> {
    static EXCLUSIVE: Mutex<()> = Mutex::new(());
    EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a command that must succeed, and parses its standard output.
pub(crate) fn run_json(args: &[&str]) -> Value {
    serde_json::from_slice(&run(args).stdout).unwrap()
}

/// Runs a command that must succeed.
pub(crate) fn run(args: &[&str]) -> Output {
    let output = fabtests(args).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {stderr}");
    output
}

/// Runs a command that must fail, and returns its standard error.
pub(crate) fn run_failing(args: &[&str]) -> String {
    let output = fabtests(args).output().unwrap();
    assert!(!output.status.success(), "{args:?} succeeds");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the command with a timeout, so that no test hangs.
pub(crate) fn fabtests(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fabtests"));
    command.args(args);
    if !args.contains(&"--timeout") {
        command.args(["--timeout", "120"]);
    }
    command
}
