//! A member of a ring over bare TCP sockets that block: the limit of rings over a fabric.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use anyhow::{Context as _, ensure};

use super::Side;
use super::backend::Backend;
use crate::fabric::{BenchOrder, Opened};
use crate::measure::clock::Clock;
use crate::measure::timing::{Timing, single_trips};

/// The sockets of a process.
#[derive(Debug)]
pub(super) struct SocketRing {
    listener: TcpListener,
    /// The connections to the right neighbour and from the left one.
    neighbours: Option<[TcpStream; 2]>,
}

impl SocketRing {
    /// Listens for the left neighbour.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn open() -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("cannot listen")?;
        Ok(Self {
            listener,
            neighbours: None,
        })
    }
}

impl Backend for SocketRing {
    fn describe(&self) -> Opened {
        let address = self.listener.local_addr();
        Opened {
            provider: "tcp".to_owned(),
            address: address.map_or_else(|error| error.to_string(), |name| name.to_string()),
            inject_size: 0,
            open_ns: 0,
        }
    }

    /// Connects to the right neighbour, and accepts the left one.
    fn set_peer(&mut self, address: &str) -> anyhow::Result<()> {
        let right =
            TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
        right.set_nodelay(true)?;
        let (left, _) = self
            .listener
            .accept()
            .context("cannot accept a connection")?;
        self.neighbours = Some([right, left]);
        Ok(())
    }

    fn run(&mut self, _: Side, clock: Clock, order: BenchOrder) -> anyhow::Result<Timing> {
        ensure!(
            order.bench.is_ring(),
            "{} is not measured over sockets",
            order.bench
        );
        let [right, left] = self.neighbours.as_mut().context("no neighbours")?;
        let mut message = vec![0; order.size];
        single_trips(clock, order.counts, || {
            right.write_all(&message)?;
            left.read_exact(&mut message)?;
            Ok(())
        })
    }
}
