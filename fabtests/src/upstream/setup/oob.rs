//! The out-of-band connection (`-b`, `-E`): addresses and barriers over TCP.
//!
//! An address is a block of 1024 bytes and a barrier is one byte, in both directions, as in
//! upstream's programs.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd as _;
use std::thread::{sleep, yield_now};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use selvedge::Errno;
use selvedge_testkit::failure::failure;

use super::domain;
use crate::upstream::options::{OUT_OF_BAND_PORT, Options};

/// The length of a block that holds an address, in bytes.
const BLOCK: usize = 1024;
/// The time for which a client tries to reach a server that does not listen yet.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The time between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(20);

/// An out-of-band connection.
#[derive(Debug)]
pub(in crate::upstream) struct OutOfBandChannel(TcpStream);

/// A listening socket of a server that accepts successive clients.
#[derive(Debug)]
pub(in crate::upstream) struct Listener(TcpListener);

impl Listener {
    /// Wraps a socket that listens already.
    pub(in crate::upstream) fn wrap(listener: TcpListener) -> Self {
        Self(listener)
    }

    /// Listens on a port.
    ///
    /// # Errors
    /// The system's error.
    pub(in crate::upstream) fn open(host: Option<&str>, port: u16) -> anyhow::Result<Self> {
        let host = host.unwrap_or("0.0.0.0");
        let listener = TcpListener::bind((host, port));
        Ok(Self(listener.with_context(|| {
            format!("cannot listen on {host}:{port}")
        })?))
    }

    /// Waits for the next client without a time limit. `timeout` limits each later read and write.
    ///
    /// # Errors
    /// The system's error.
    pub(in crate::upstream) fn accept(
        &self,
        timeout: Duration,
    ) -> anyhow::Result<OutOfBandChannel> {
        let (stream, _) = self.0.accept().context("cannot accept a connection")?;
        OutOfBandChannel::wrap(stream, timeout)
    }
}

impl Listener {
    /// Waits until one more process of a job connects. Writes a notice to standard error if the
    /// wait exceeds `LONG`. `number` processes are missing, as the notice and the error say.
    ///
    /// # Errors
    /// [`Errno::TimedOut`] if no process connects within `timeout`; the system's error.
    pub(in crate::upstream) fn accept_within(
        &self,
        timeout: Duration,
        number: usize,
    ) -> anyhow::Result<OutOfBandChannel> {
        let at = self.0.local_addr()?;
        if !self.is_pending(LONG.min(timeout))? {
            eprintln!("waiting for {number} more processes of the job to connect to {at}");
            if !self.is_pending(timeout.saturating_sub(LONG))? {
                let message =
                    format!("{number} processes of the job have not connected to {at} in time");
                return Err(failure(Errno::TimedOut, message));
            }
        }
        self.accept(timeout)
    }

    fn is_pending(&self, time: Duration) -> anyhow::Result<bool> {
        let time = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        Ok(poll(&mut fds, time)? > 0)
    }
}

/// The time after which a waiting process writes a notice.
const LONG: Duration = Duration::from_secs(1);

impl OutOfBandChannel {
    /// Receives `len` bytes from the peer `who`. If the wait exceeds `LONG`, writes a notice with
    /// `who` to standard error.
    ///
    /// # Errors
    /// As [`Self::receive`].
    pub(in crate::upstream) fn receive_from(
        &mut self,
        who: &str,
        len: usize,
    ) -> anyhow::Result<Vec<u8>> {
        let time = PollTimeout::try_from(LONG).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, time)? == 0 {
            eprintln!("waiting for {who}");
        }
        self.receive(len)
    }

    /// Establishes the connection to the peer: the server listens, and the client connects.
    ///
    /// # Errors
    /// The peer is unreachable, or the system's error.
    pub(in crate::upstream) fn establish(options: &Options) -> anyhow::Result<Self> {
        let port = options.out_of_band.map_or(OUT_OF_BAND_PORT, |oob| oob.port);
        Self::establish_at(options, port)
    }

    /// As [`Self::establish`], on `port`.
    ///
    /// # Errors
    /// As [`Self::establish`].
    pub(in crate::upstream) fn establish_at(options: &Options, port: u16) -> anyhow::Result<Self> {
        let host = options.out_of_band_host.as_deref();
        let timeout = domain::timeout(options);
        match &options.server {
            None => Listener::open(host, port)?.accept(timeout),
            Some(server) => Self::connect(host.unwrap_or(server), port, timeout),
        }
    }

    /// Connects to a server that may not listen yet.
    ///
    /// # Errors
    /// [`Errno::NoData`] if `host` cannot be resolved; [`Errno::ConnRefused`] if the server does
    /// not listen in time; the system's error.
    pub(in crate::upstream) fn connect(
        host: &str,
        port: u16,
        timeout: Duration,
    ) -> anyhow::Result<Self> {
        let resolved = (host, port).to_socket_addrs();
        let addresses: Vec<_> = resolved
            .map_err(|error| {
                failure(
                    Errno::NoData,
                    format!("cannot resolve the host {host:?}: {error}"),
                )
            })?
            .collect();
        let start = Instant::now();
        loop {
            match TcpStream::connect(&addresses[..]) {
                Ok(stream) => return Self::wrap(stream, timeout),
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    let in_time = start.elapsed() < CONNECT_TIMEOUT;
                    ensure_listens(in_time, host, port)?;
                    sleep(PAUSE);
                }
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot connect to {host}:{port}"));
                }
            }
        }
    }

    fn wrap(stream: TcpStream, timeout: Duration) -> anyhow::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        Ok(Self(stream))
    }

    /// Duplicates the connection, for a child process.
    ///
    /// # Errors
    /// The system's error.
    pub(in crate::upstream) fn duplicate(&self) -> anyhow::Result<Self> {
        Ok(Self(self.0.try_clone().context(
            "cannot duplicate the connection's file descriptor",
        )?))
    }

    /// Sends an address to the peer and returns the peer's address.
    ///
    /// # Errors
    /// The peer has closed the connection, or the address is too long.
    pub(in crate::upstream) fn exchange(&mut self, address: &[u8]) -> anyhow::Result<Vec<u8>> {
        ensure!(
            address.len() <= BLOCK,
            "an address of {} bytes exceeds the limit of {BLOCK}",
            address.len()
        );
        let mut block = [0; BLOCK];
        block[..address.len()].copy_from_slice(address);
        self.send(&block)?;
        let mut from_peer = self.receive(BLOCK)?;
        let end = from_peer
            .iter()
            .rposition(|&byte| byte != 0)
            .map_or(0, |at| at + 1);
        // Addresses in string format include their terminating zero.
        from_peer.truncate((end + 1).min(BLOCK));
        Ok(from_peer)
    }

    /// Waits until the peer reaches the barrier.
    ///
    /// # Errors
    /// The peer has closed the connection.
    pub(in crate::upstream) fn barrier(&mut self) -> anyhow::Result<()> {
        self.send(&[0])?;
        self.receive(1).map(drop)
    }

    /// Waits until the peer reaches the barrier. Calls `progress` meanwhile, because the peer may
    /// depend on it to reach the barrier.
    ///
    /// # Errors
    /// As [`Self::barrier`]; those of `progress`; [`Errno::TimedOut`] if the wait exceeds
    /// `timeout`.
    pub(in crate::upstream) fn barrier_with(
        &mut self,
        timeout: Duration,
        mut progress: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.send(&[0])?;
        let start = Instant::now();
        while !self.has_input()? {
            progress()?;
            yield_now();
            if start.elapsed() > timeout {
                return Err(failure(
                    Errno::TimedOut,
                    "the peer has not reached the barrier in time",
                ));
            }
        }
        self.receive(1).map(drop)
    }

    /// Sends `bytes`.
    ///
    /// # Errors
    /// The system's error.
    pub(in crate::upstream) fn send(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.0
            .write_all(bytes)
            .context("cannot send to the peer over the out-of-band connection")
    }

    /// Returns whether bytes of the peer have arrived or the peer has closed the connection.
    ///
    /// # Errors
    /// The system's error.
    fn has_input(&self) -> anyhow::Result<bool> {
        let mut polled = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        Ok(poll(&mut polled, PollTimeout::ZERO).context("poll")? > 0)
    }

    /// Receives `len` bytes.
    ///
    /// # Errors
    /// The system's error.
    pub(in crate::upstream) fn receive(&mut self, len: usize) -> anyhow::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.0
            .read_exact(&mut bytes)
            .context("cannot receive from the peer over the out-of-band connection")?;
        Ok(bytes)
    }
}

fn ensure_listens(in_time: bool, host: &str, port: u16) -> anyhow::Result<()> {
    if in_time {
        Ok(())
    } else {
        Err(failure(
            Errno::ConnRefused,
            format!("no process listens on {host}:{port}"),
        ))
    }
}
