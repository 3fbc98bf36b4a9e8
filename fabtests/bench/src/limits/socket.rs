//! Stream sockets that both processes poll: the cost of the kernel's path.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;

use anyhow::Context as _;
use nix::fcntl::{FcntlArg, OFlag, fcntl};

use crate::machine::cpu::Idle;
use crate::measure::clock::Clock;
use crate::measure::timing::{Counts, Timing, round_trips, timed_as_whole};

/// A connected, non-blocking stream socket.
#[derive(Debug)]
pub struct Socket(File);

impl Socket {
    /// Takes a connected stream socket and makes it non-blocking.
    ///
    /// # Errors
    /// The system's error.
    pub fn new(fd: OwnedFd) -> anyhow::Result<Self> {
        fcntl(&fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))
            .context("cannot make a socket non-blocking")?;
        Ok(Self(File::from(fd)))
    }

    /// Measures round trips of messages with the length of `message`.
    pub(super) fn measure(
        &mut self,
        message: &mut [u8],
        idle: Idle,
        clock: Clock,
        counts: Counts,
    ) -> anyhow::Result<Timing> {
        round_trips(clock, counts, || {
            self.send(message, idle)?;
            self.receive(message, idle)
        })
    }

    pub(super) fn respond(
        &mut self,
        message: &mut [u8],
        idle: Idle,
        counts: Counts,
    ) -> anyhow::Result<()> {
        for _ in 0..counts.total() {
            self.receive(message, idle)?;
            self.send(message, idle)?;
        }
        Ok(())
    }

    /// Sends consecutive messages of `size` bytes out of `window` without waiting for replies. One
    /// reply at the end stops the clock.
    pub(super) fn measure_rate(
        &mut self,
        window: &[u8],
        size: usize,
        idle: Idle,
        clock: Clock,
        counts: Counts,
    ) -> anyhow::Result<Timing> {
        let mut outcome = Ok(());
        let timing = timed_as_whole(clock, counts, |count| {
            if outcome.is_ok() {
                outcome = self.send_all(window, size, count, idle);
            }
        });
        outcome.map(|()| timing)
    }

    pub(super) fn respond_rate(
        &mut self,
        window: &mut [u8],
        size: usize,
        idle: Idle,
        counts: Counts,
    ) -> anyhow::Result<()> {
        for count in [counts.warmup, counts.batch] {
            for number in 0..count {
                let start = number * size % window.len();
                self.receive(&mut window[start..start + size], idle)?;
            }
            self.send(&[0], idle)?;
        }
        Ok(())
    }

    fn send_all(
        &mut self,
        window: &[u8],
        size: usize,
        count: usize,
        idle: Idle,
    ) -> anyhow::Result<()> {
        for number in 0..count {
            let start = number * size % window.len();
            self.send(&window[start..start + size], idle)?;
        }
        self.receive(&mut [0], idle)
    }

    fn send(&mut self, message: &[u8], idle: Idle) -> anyhow::Result<()> {
        let mut sent = 0;
        while sent < message.len() {
            match self.0.write(&message[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => idle.wait_between_calls(),
                Err(error) => return Err(error).context("cannot write to a socket"),
            }
        }
        Ok(())
    }

    fn receive(&mut self, message: &mut [u8], idle: Idle) -> anyhow::Result<()> {
        let mut received = 0;
        while received < message.len() {
            match self.0.read(&mut message[received..]) {
                Ok(0) => anyhow::bail!("the other process closed its socket"),
                Ok(count) => received += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => idle.wait_between_calls(),
                Err(error) => return Err(error).context("cannot read from a socket"),
            }
        }
        Ok(())
    }
}
