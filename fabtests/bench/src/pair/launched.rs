//! Pairs that a launcher starts, as `mpirun` does. Each process connects to a control socket of its
//! own, because the launcher passes on no descriptor of ours.

use std::collections::VecDeque;
use std::fs;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{Event, Member, Pair, Side, start_child};

impl Pair {
    /// Starts a launcher that starts two processes. `command` gets the path of a socket for each
    /// process, below `folder`. A process connects to its socket and executes [`super::Order`]s
    /// from there, until the socket is closed.
    ///
    /// # Errors
    /// When the launcher cannot be started or exits, or the deadline passes. The error contains the
    /// launcher's last output.
    pub fn launch(
        deadline: Instant,
        folder: &Path,
        command: impl FnOnce(&[PathBuf; 2]) -> Command,
    ) -> anyhow::Result<Self> {
        let sockets = ControlSockets::listen(folder)?;
        let command = command(&sockets.paths);
        let name = command.get_program().to_string_lossy().into_owned();
        let (sender, events) = channel();
        let mut launcher = start_child(Side::Active, command, Stdio::null(), &sender)?;
        let controls = match sockets.accept(&mut launcher, deadline) {
            Ok(controls) => controls,
            Err(error) => {
                // The launcher may have exited already.
                let _ = launcher.kill();
                let _ = launcher.wait();
                bail!("{name}: {error:#}; {}", printed(&events));
            }
        };
        let member = |side: Side, control| {
            let name = format!("the {side} process that {name} started");
            Member::new(side, name, control, &sender)
        };
        let [active, passive] = controls;
        Ok(Self {
            members: [
                member(Side::Active, active)?,
                member(Side::Passive, passive)?,
            ],
            children: vec![launcher],
            events,
            deadline,
        })
    }

    /// Closes the control sockets and waits until the children have exited, but not for ever: a
    /// launcher and libfabric remove their files when they exit.
    pub(super) fn wait_for_exit(&mut self) {
        for member in &self.members {
            // The process may have closed its end.
            let _ = member.control.shutdown(Shutdown::Both);
        }
        let deadline = Instant::now() + EXIT_TIMEOUT;
        let is_running = |child: &mut Child| matches!(child.try_wait(), Ok(None));
        while self.children.iter_mut().any(is_running) && Instant::now() < deadline {
            // Each event may be the end of a child.
            let interval = Duration::from_millis(u64::from(POLL_INTERVAL_MS));
            let _ = self.events.recv_timeout(interval);
        }
    }
}

/// The sockets that both processes connect to.
struct ControlSockets {
    listeners: [UnixListener; 2],
    paths: [PathBuf; 2],
}

impl ControlSockets {
    fn listen(folder: &Path) -> anyhow::Result<Self> {
        let paths = Side::BOTH.map(|side| folder.join(side.to_string()));
        let listen = |path: &PathBuf| {
            UnixListener::bind(path)
                .with_context(|| format!("cannot create the socket {}", path.display()))
        };
        Ok(Self {
            listeners: [listen(&paths[0])?, listen(&paths[1])?],
            paths,
        })
    }

    /// Waits until both processes have connected.
    fn accept(&self, launcher: &mut Child, deadline: Instant) -> anyhow::Result<[UnixStream; 2]> {
        let mut accept_one = |listener: &UnixListener| -> anyhow::Result<UnixStream> {
            loop {
                let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
                if poll(&mut fds, PollTimeout::from(POLL_INTERVAL_MS))
                    .context("cannot wait for a process")?
                    > 0
                {
                    return Ok(listener.accept()?.0);
                }
                if let Some(status) = launcher.try_wait()? {
                    bail!("exited before its processes were ready ({status})");
                }
                if Instant::now() > deadline {
                    bail!(
                        "deadline reached before the processes were ready: allow more time with --timeout"
                    );
                }
            }
        };
        let [active, passive] = &self.listeners;
        Ok([accept_one(active)?, accept_one(passive)?])
    }
}

impl Drop for ControlSockets {
    fn drop(&mut self) {
        for path in &self.paths {
            // A file that stays is in a folder for temporary files.
            let _ = fs::remove_file(path);
        }
    }
}

/// The last lines that a launcher has printed, which has exited.
fn printed(events: &Receiver<(Side, Event)>) -> String {
    let mut lines = VecDeque::new();
    wait_for_end(events, |line| lines.push_back(line));
    super::last_output(&lines)
}

/// Waits until the output of a launcher is closed, but not for ever. Passes each line to
/// `receive_line`.
fn wait_for_end(events: &Receiver<(Side, Event)>, mut receive_line: impl FnMut(String)) {
    let deadline = Instant::now() + EXIT_TIMEOUT;
    let remaining = || deadline.saturating_duration_since(Instant::now());
    while let Ok((_, event)) = events.recv_timeout(remaining()) {
        match event {
            Event::OutputClosed => return,
            Event::Printed(line) => receive_line(line),
            Event::Replied(_) | Event::Exited => {}
        }
    }
}

/// Milliseconds between two checks whether a child has exited.
const POLL_INTERVAL_MS: u8 = 100;
/// Time to wait for children that exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(3);
