//! Runs a command with a time limit. A command that exceeds it is ended with all of its processes.

use std::io::{self, PipeReader, Read};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// The result of a command.
#[derive(Debug)]
pub(super) struct Output {
    /// The exit status; `None` for a command that exceeded the time limit.
    pub(super) status: Option<ExitStatus>,
    /// Output and error output, mixed as they were written.
    pub(super) text: String,
}

impl Output {
    /// Returns whether the command has succeeded.
    pub(super) fn is_success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Describes the end of the command.
    pub(super) fn end(&self) -> String {
        let Some(status) = self.status else {
            return "it exceeded the time limit and was ended".to_owned();
        };
        match (status.code(), status.signal()) {
            (Some(code), _) => format!("its exit code is {code}"),
            (None, signal) => format!("signal {} ended it", signal.unwrap_or(0)),
        }
    }
}

/// The most bytes of output that are kept.
const MAX_OUTPUT: usize = 8 << 20;

/// The time that the processes of an ended command have to exit.
const GRACE: Duration = Duration::from_secs(2);

/// The end of a command, or of its output.
enum Event {
    Exited(io::Result<ExitStatus>),
    Closed,
}

/// Runs a command without standard input.
///
/// # Errors
/// Those of the system, when the command cannot be started.
pub(super) fn run(mut command: Command, limit: Duration) -> io::Result<Output> {
    let (reader, writer) = io::pipe()?;
    command
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .process_group(0);
    let mut child = command.spawn()?;
    // The command holds the writing ends: the output ends with the last process that has them.
    drop(command);
    let group = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
    let text = Arc::new(Mutex::new(Vec::new()));
    let (events, receiver) = channel();
    let (copy, closed) = (Arc::clone(&text), events.clone());
    thread::spawn(move || collect(reader, &copy, &closed));
    thread::spawn(move || events.send(Event::Exited(child.wait())));
    let mut status = None;
    if !wait(&receiver, &mut status, limit) {
        // A launcher ends the processes that it has started when it is terminated.
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            let _ = killpg(group, signal);
            if wait(&receiver, &mut None, GRACE) {
                break;
            }
        }
    }
    let bytes = text.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(Output {
        status: status.transpose()?,
        text: String::from_utf8_lossy(&bytes).into_owned(),
    })
}

fn collect(mut reader: PipeReader, text: &Mutex<Vec<u8>>, events: &Sender<Event>) {
    let mut chunk = [0; 1 << 14];
    while let Ok(length @ 1..) = reader.read(&mut chunk) {
        let mut text = text.lock().unwrap_or_else(PoisonError::into_inner);
        if text.len() < MAX_OUTPUT {
            text.extend_from_slice(&chunk[..length]);
        }
    }
    // The receiver is gone if the command has been given up.
    let _ = events.send(Event::Closed);
}

/// Waits for the exit of the command and, a moment longer, for the end of its output. Returns
/// `false` when the command has not exited in time.
fn wait(
    events: &Receiver<Event>,
    status: &mut Option<io::Result<ExitStatus>>,
    limit: Duration,
) -> bool {
    let mut deadline = Instant::now() + limit;
    let (mut has_exited, mut is_closed) = (false, false);
    while !(has_exited && is_closed) {
        match events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Event::Exited(exited)) => {
                *status = Some(exited);
                has_exited = true;
                // A process that the command has left behind may hold the pipe open.
                deadline = deadline.min(Instant::now() + GRACE);
            }
            Ok(Event::Closed) => is_closed = true,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    has_exited
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_and_status_are_returned() {
        let output = run(shell("echo out; echo err >&2; exit 3"), GRACE * 10).unwrap();
        assert_eq!(output.text, "out\nerr\n");
        assert_eq!(output.status.unwrap().code(), Some(3));
        assert_eq!(output.end(), "its exit code is 3");
    }

    #[test]
    fn a_command_that_hangs_is_ended_with_its_children() {
        let limit = Duration::from_millis(300);
        let output = run(shell("sleep 1000 & echo $!; wait"), limit).unwrap();
        assert!(output.status.is_none() && !output.is_success());
        // The process is gone, or an exited one that its new parent has not collected yet.
        let stat = format!("/proc/{}/stat", output.text.trim());
        let runs = || std::fs::read_to_string(&stat).is_ok_and(|it| !it.contains(") Z "));
        let deadline = Instant::now() + GRACE * 10;
        while runs() {
            assert!(Instant::now() < deadline, "{stat} is a running process");
            thread::yield_now();
        }
    }
}
