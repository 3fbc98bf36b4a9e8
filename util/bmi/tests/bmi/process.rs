//! Real processes: this program again, in a role.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::{both, common, crowd, death, request};

/// What a child is to do, and with what.
const ROLE: &str = "BMI_TEST_ROLE";

/// Plays a role, with an argument.
type Role = fn(&str);

/// The roles: each speaks with its parent in lines.
const ROLES: &[(&str, Role)] = &[
    ("server", request::serve),
    ("client", request::ask),
    ("sender", death::sender),
    ("idler", death::idler),
    ("both", both::ask),
    ("asker", crowd::ask),
    ("early", death::early_client),
];

/// A process in a role. It is killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    lines: BufReader<ChildStdout>,
    orders: ChildStdin,
}

impl Process {
    pub(crate) fn start(role: &str, argument: &str) -> Self {
        Self::start_with(role, argument, &[])
    }

    /// As [`Self::start`], with these variables in its environment.
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
            orders: child.stdin.take().unwrap(),
            child,
        }
    }

    /// The next line that it says to its parent.
    pub(crate) fn says(&mut self) -> String {
        loop {
            let mut line = String::new();
            let read = self.lines.read_line(&mut line).unwrap();
            assert!(read > 0, "the process is gone");
            if let Some((_, said)) = line.trim_end().split_once(MARK) {
                return said.to_owned();
            }
        }
    }

    /// Gives it an order.
    pub(crate) fn order(&mut self, what: &str) {
        writeln!(self.orders, "{what}").unwrap();
    }

    /// Ends it as SIGKILL does.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end, which has to be a good one.
    pub(crate) fn ends_well(self) {
        self.ends_well_while(|| ());
    }

    /// As [`Self::ends_well`], and goes on with something meanwhile.
    pub(crate) fn ends_well_while(mut self, mut go_on: impl FnMut()) {
        let end = common::until("the end of a process", || {
            go_on();
            self.child.try_wait().unwrap()
        });
        assert!(end.success(), "{end}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Before each line that is for the parent: the test harness prints, too.
const MARK: &str = "\u{1}";

/// Says a line to the parent.
pub(crate) fn say(what: &str) {
    println!("{MARK}{what}");
}

/// The next order of the parent; nothing when it is gone.
pub(crate) fn next_order() -> Option<String> {
    let mut line = String::new();
    match std::io::stdin().read_line(&mut line) {
        Ok(1..) => Some(line.trim_end().to_owned()),
        _ => None,
    }
}

#[test]
#[ignore = "a role of other tests"]
fn role() {
    let Ok(text) = std::env::var(ROLE) else {
        return;
    };
    let (role, argument) = text.split_once(' ').unwrap();
    let (_, play) = ROLES.iter().find(|(name, _)| *name == role).unwrap();
    play(argument);
}
