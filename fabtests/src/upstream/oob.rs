//! The connection beside the fabric (`-b`, `-E`): addresses and barriers over TCP.
//!
//! An address is a block of 1024 bytes, a barrier one byte, in both directions: as upstream's
//! programs have it.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd as _;
use std::thread::{sleep, yield_now};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use selvedge::Errno;
use selvedge_testkit::failure::failure;

use super::ground;
use super::options::{OUT_OF_BAND_PORT, Options};

/// Bytes of a block that holds an address.
const BLOCK: usize = 1024;
/// How long a client tries to reach a server that does not listen yet.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(20);

/// The connection.
#[derive(Debug)]
pub(super) struct OutOfBandChannel(TcpStream);

/// A server that clients come to, one after the other.
#[derive(Debug)]
pub(super) struct Listener(TcpListener);

impl Listener {
    /// One that listens already.
    pub(super) fn over(listener: TcpListener) -> Self {
        Self(listener)
    }

    /// Listens at a port.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn open(host: Option<&str>, port: u16) -> anyhow::Result<Self> {
        let host = host.unwrap_or("0.0.0.0");
        let listener = TcpListener::bind((host, port));
        Ok(Self(listener.with_context(|| {
            format!("cannot listen at {host}:{port}")
        })?))
    }

    /// Waits for the next client, as long as it takes.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn accept(&self, patience: Duration) -> anyhow::Result<OutOfBandChannel> {
        let (stream, _) = self.0.accept().context("cannot take a connection")?;
        OutOfBandChannel::over(stream, patience)
    }
}

impl Listener {
    /// Waits for one more process of a job, of which `number` more are due, and says on standard
    /// error that it waits if that takes long.
    ///
    /// # Errors
    /// [`Errno::TimedOut`] when it does not come in time; the system's.
    pub(super) fn accept_in(
        &self,
        patience: Duration,
        number: usize,
    ) -> anyhow::Result<OutOfBandChannel> {
        let at = self.0.local_addr()?;
        if !self.has_come(LONG.min(patience))? {
            eprintln!("waiting for {number} more processes of the job to come to {at}");
            if !self.has_come(patience.saturating_sub(LONG))? {
                let what = format!("{number} processes of the job have not come to {at}");
                return Err(failure(Errno::TimedOut, what));
            }
        }
        self.accept(patience)
    }

    fn has_come(&self, time: Duration) -> anyhow::Result<bool> {
        let time = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        Ok(poll(&mut fds, time)? > 0)
    }
}

/// After this, somebody who waits says for what.
const LONG: Duration = Duration::from_secs(1);

impl OutOfBandChannel {
    /// Receives, and says on standard error who is waited for if that takes long.
    ///
    /// # Errors
    /// As [`Self::receive`].
    pub(super) fn receive_from(&mut self, who: &str, len: usize) -> anyhow::Result<Vec<u8>> {
        let time = PollTimeout::try_from(LONG).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, time)? == 0 {
            eprintln!("waiting for {who}");
        }
        self.receive(len)
    }

    /// Meets the peer: the server listens, and the client comes.
    ///
    /// # Errors
    /// When nobody is there, or the system refuses.
    pub(super) fn meet(options: &Options) -> anyhow::Result<Self> {
        let port = options.out_of_band.map_or(OUT_OF_BAND_PORT, |oob| oob.port);
        Self::meet_at(options, port)
    }

    /// The same at another port.
    ///
    /// # Errors
    /// As [`Self::meet`].
    pub(super) fn meet_at(options: &Options, port: u16) -> anyhow::Result<Self> {
        let host = options.out_of_band_host.as_deref();
        let patience = ground::timeout(options);
        match &options.server {
            None => Listener::open(host, port)?.accept(patience),
            Some(server) => Self::connect(host.unwrap_or(server), port, patience),
        }
    }

    /// Connects to a server that may not be there yet.
    ///
    /// # Errors
    /// When it does not come in time.
    pub(super) fn connect(host: &str, port: u16, patience: Duration) -> anyhow::Result<Self> {
        let resolved = (host, port).to_socket_addrs();
        let addresses: Vec<_> = resolved
            .map_err(|error| failure(Errno::NoData, format!("no host {host:?}: {error}")))?
            .collect();
        let start = Instant::now();
        loop {
            match TcpStream::connect(&addresses[..]) {
                Ok(stream) => return Self::over(stream, patience),
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    let in_time = start.elapsed() < PATIENCE;
                    ensure_listens(in_time, host, port)?;
                    sleep(PAUSE);
                }
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot reach {host}:{port}"));
                }
            }
        }
    }

    fn over(stream: TcpStream, patience: Duration) -> anyhow::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Self(stream))
    }

    /// The same connection, for a child.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn again(&self) -> anyhow::Result<Self> {
        Ok(Self(
            self.0.try_clone().context("cannot copy a descriptor")?,
        ))
    }

    /// Gives the peer an address and takes the peer's.
    ///
    /// # Errors
    /// When the peer is gone, or the address too long.
    pub(super) fn exchange(&mut self, address: &[u8]) -> anyhow::Result<Vec<u8>> {
        ensure!(
            address.len() <= BLOCK,
            "an address of {} bytes",
            address.len()
        );
        let mut block = [0; BLOCK];
        block[..address.len()].copy_from_slice(address);
        self.send(&block)?;
        let mut theirs = self.receive(BLOCK)?;
        let end = theirs
            .iter()
            .rposition(|&byte| byte != 0)
            .map_or(0, |at| at + 1);
        // Strings come with the zero at their end.
        theirs.truncate((end + 1).min(BLOCK));
        Ok(theirs)
    }

    /// Waits for the peer.
    ///
    /// # Errors
    /// When it is gone.
    pub(super) fn barrier(&mut self) -> anyhow::Result<()> {
        self.send(&[0])?;
        self.receive(1).map(drop)
    }

    /// The same, making progress meanwhile, without which the peer may never come here.
    ///
    /// # Errors
    /// As [`Self::barrier`]; those of `progress`; that it takes longer than `patience`.
    pub(super) fn barrier_with(
        &mut self,
        patience: Duration,
        mut progress: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.send(&[0])?;
        let start = Instant::now();
        while !self.has_news()? {
            progress()?;
            yield_now();
            if start.elapsed() > patience {
                return Err(failure(Errno::TimedOut, "waiting for the other side"));
            }
        }
        self.receive(1).map(drop)
    }

    /// Sends some bytes.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn send(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.0.write_all(bytes).context("the peer takes nothing")
    }

    /// Whether the peer has said something, or is gone.
    ///
    /// # Errors
    /// The system's.
    fn has_news(&self) -> anyhow::Result<bool> {
        let mut polled = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        Ok(poll(&mut polled, PollTimeout::ZERO).context("poll")? > 0)
    }

    /// Receives as many bytes.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn receive(&mut self, len: usize) -> anyhow::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.0
            .read_exact(&mut bytes)
            .context("the peer says nothing")?;
        Ok(bytes)
    }
}

fn ensure_listens(in_time: bool, host: &str, port: u16) -> anyhow::Result<()> {
    match in_time {
        true => Ok(()),
        false => Err(failure(
            Errno::ConnRefused,
            format!("nobody listens at {host}:{port}"),
        )),
    }
}
