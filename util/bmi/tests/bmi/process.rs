//! Child processes: this test program, restarted in a role.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::{common, many_clients, peer_failure, request_pattern, two_methods};

/// Environment variable with the role and its argument.
const ROLE: &str = "BMI_TEST_ROLE";

/// The function of a role.
type Role = fn(&str);

/// The roles. A role exchanges lines of text with its parent.
const ROLES: &[(&str, Role)] = &[
    ("server", request_pattern::serve),
    ("client", request_pattern::client),
    ("sender", peer_failure::sender),
    ("idle-server", peer_failure::idle_server),
    ("both", two_methods::client),
    ("requester", many_clients::client),
    ("early", peer_failure::early_client),
];

/// A child process in a role. Dropping this value kills the process.
pub(crate) struct Process {
    child: Child,
    lines: BufReader<ChildStdout>,
    commands: ChildStdin,
}

impl Process {
    pub(crate) fn start(role: &str, argument: &str) -> Self {
        Self::start_with(role, argument, &[])
    }

    /// As [`Self::start`], with additional environment variables.
    pub(crate) fn start_with(role: &str, argument: &str, env: &[(&str, &str)]) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "process::role", "--ignored", "--nocapture", "-q"])
            .env(ROLE, format!("{role} {argument}"))
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            lines: BufReader::new(child.stdout.take().unwrap()),
            commands: child.stdin.take().unwrap(),
            child,
        }
    }

    /// Reads the next line that the child reports.
    pub(crate) fn read_line(&mut self) -> String {
        loop {
            let mut line = String::new();
            let read = self.lines.read_line(&mut line).unwrap();
            assert!(read > 0, "the process has ended");
            if let Some((_, text)) = line.trim_end().split_once(MARK) {
                return text.to_owned();
            }
        }
    }

    /// Sends a command line to the child.
    pub(crate) fn send_command(&mut self, text: &str) {
        writeln!(self.commands, "{text}").unwrap();
    }

    /// Kills the child with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for the child's exit, which must be successful.
    pub(crate) fn expect_success(self) {
        self.expect_success_while(|| ());
    }

    /// As [`Self::expect_success`], and calls `meanwhile` while it waits.
    pub(crate) fn expect_success_while(mut self, mut meanwhile: impl FnMut()) {
        let status = common::until("the end of a process", || {
            meanwhile();
            self.child.try_wait().unwrap()
        });
        assert!(status.success(), "{status}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The child may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Prefix of lines for the parent. Lines of the test harness do not have the prefix.
const MARK: &str = "\u{1}";

/// Reports a line to the parent.
pub(crate) fn report_line(text: &str) {
    println!("{MARK}{text}");
}

/// The next command of the parent; `None` when the parent has closed the pipe.
pub(crate) fn next_command() -> Option<String> {
    let mut line = String::new();
    match std::io::stdin().read_line(&mut line) {
        Ok(1..) => Some(line.trim_end().to_owned()),
        _ => None,
    }
}

#[test]
#[ignore = "other tests run it in child processes"]
fn role() {
    let Ok(text) = std::env::var(ROLE) else {
        return;
    };
    let (role, argument) = text.split_once(' ').unwrap();
    let (_, run_role) = ROLES.iter().find(|(name, _)| *name == role).unwrap();
    run_role(argument);
}
