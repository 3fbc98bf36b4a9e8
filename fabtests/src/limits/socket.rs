//! Sockets between the processes, both ends polling: what the kernel's path costs.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;

use anyhow::Context as _;
use nix::fcntl::{FcntlArg, OFlag, fcntl};

use crate::clock::Clock;
use crate::cpu::Idle;
use crate::timing::{Counts, Timing, round_trips};

/// One end of a connected stream socket.
#[derive(Debug)]
pub struct Socket(File);

impl Socket {
    /// Takes a connected stream socket and makes it non-blocking.
    ///
    /// # Errors
    /// The system's.
    pub fn new(fd: OwnedFd) -> anyhow::Result<Self> {
        fcntl(&fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).context("cannot poll a socket")?;
        Ok(Self(File::from(fd)))
    }

    pub(super) fn measure(
        &mut self,
        idle: Idle,
        clock: Clock,
        counts: Counts,
    ) -> anyhow::Result<Timing> {
        round_trips(clock, counts, || {
            self.send()?;
            self.receive(idle)
        })
    }

    pub(super) fn answer(&mut self, idle: Idle, counts: Counts) -> anyhow::Result<()> {
        for _ in 0..counts.total() {
            self.receive(idle)?;
            self.send()?;
        }
        Ok(())
    }

    fn send(&mut self) -> anyhow::Result<()> {
        // One message at a time is on the way: there is always room for it.
        self.0
            .write_all(&[1; MESSAGE])
            .context("cannot write to a socket")
    }

    fn receive(&mut self, idle: Idle) -> anyhow::Result<()> {
        let mut message = [0; MESSAGE];
        let mut got = 0;
        while got < MESSAGE {
            match self.0.read(&mut message[got..]) {
                Ok(0) => anyhow::bail!("the other process closed its socket"),
                Ok(more) => got += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => idle.rest(),
                Err(error) => return Err(error).context("cannot read from a socket"),
            }
        }
        Ok(())
    }
}

const MESSAGE: usize = 8;
