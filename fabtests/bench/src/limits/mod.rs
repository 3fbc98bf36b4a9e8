//! The limits of the machine between two processes, without a fabric.
//!
//! Both sides of a probe are in one file. A [`ProbeContext`] has the resources for one process's
//! side of the probes. [`survey()`] runs the probes and makes [`Limits`] of the results.

mod byte_ring;
mod cma;
mod line;
mod load;
mod memcpy;
pub(crate) mod report;
mod ring;
mod shared;
mod socket;

mod survey;
mod wake;

use serde::{Deserialize, Serialize};

use crate::machine::cpu::Idle;
use crate::measure::buffer::Pages;
use crate::measure::clock::Clock;
use crate::measure::timing::{Counts, Timing};
use crate::pair::Side;

pub use report::{Limits, SizeLimit};
pub use shared::Segment;
pub use socket::Socket;
pub use survey::{Depth, Distance, Flow, Transport, cma_ns, distance, point_limit, survey};
pub use wake::EventFds;

/// A measurement of a limit, in which both processes take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Probe {
    /// A cache line travels to the other core and back.
    Line,
    /// Each process stores a word in a line that the other one polls.
    Put,
    /// One process makes consecutive loads of lines that the other process has written.
    Load,
    /// As [`Self::Load`], with an atomic addition to each line instead of a load.
    Add,
    /// Round trips of 56 bytes through the one-line ring.
    Ring,
    /// As [`Self::Ring`], with 8 bytes.
    RingSmall,
    /// Windows of 64 messages of 56 bytes through the one-line ring, with one reply to each window.
    RingRate,
    /// As [`Self::RingRate`], with 8 bytes.
    RingRateSmall,
    /// Round trips of a message that is copied into shared memory and out of it.
    TwoCopy {
        /// Message size, in bytes.
        size: usize,
        /// Bytes that are copied at a time.
        chunk: usize,
    },
    /// As [`Self::TwoCopy`], with consecutive messages in one direction.
    TwoCopyRate {
        /// Message size, in bytes.
        size: usize,
        /// Bytes that are copied at a time.
        chunk: usize,
    },
    /// One process copies between the same two private buffers.
    Memcpy {
        /// Size of the copy or message, in bytes.
        size: usize,
    },
    /// One process copies between buffers that it has not accessed for long.
    MemcpyCold {
        /// Size of the copy or message, in bytes.
        size: usize,
    },
    /// The active process reads the passive one's memory: `process_vm_readv(2)`.
    Cma {
        /// Size of the copy or message, in bytes.
        size: usize,
    },
    /// Round trips of 8 bytes over TCP; both sides poll.
    Tcp,
    /// Round trips of a message over TCP; both sides poll.
    TcpTrip {
        /// Size of the copy or message, in bytes.
        size: usize,
    },
    /// As [`Self::TcpTrip`], with consecutive messages in one direction. A window of messages has
    /// distinct buffers.
    TcpRate {
        /// Message size, in bytes.
        size: usize,
        /// Number of buffers.
        window: usize,
    },
    /// Round trips of 8 bytes over a Unix stream socket; both sides poll.
    Unix,
    /// Each process blocks on a futex until the other one wakes it.
    Futex,
    /// Each process blocks in the read of an eventfd until the other one writes it.
    EventFd,
}

/// The outcome of a [`Probe`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// The time of one round trip, message or copy.
    Took(Timing),
    /// The system does not permit the probe, for this reason.
    Refused(String),
}

/// The resources for one process's side of the probes.
#[derive(Debug)]
pub struct ProbeContext<'a> {
    side: Side,
    idle: Idle,
    clock: Clock,
    line: line::LinePingpong<'a>,
    puts: line::LinePingpong<'a>,
    loads: load::Loads<'a>,
    ring: ring::Duplex<'a>,
    byte_ring: byte_ring::Duplex<'a>,
    cma: cma::CmaTarget<'a>,
    tcp: Socket,
    unix: Socket,
    futex: wake::Futexes<'a>,
    eventfd: EventFds,
    /// Private memory, as large as the largest probe so far has required.
    private: Option<Pages>,
}

/// The resources from which a process makes its [`ProbeContext`].
#[derive(Debug)]
pub(crate) struct ProbeResources<'a> {
    /// The side of this process.
    pub side: Side,
    /// The action of this process between two polls.
    pub idle: Idle,
    /// Memory shared with the other process.
    pub segment: &'a Segment,
    /// TCP socket that is connected to the other process.
    pub tcp: Socket,
    /// Unix stream socket that is connected to the other process.
    pub unix: Socket,
    /// Eventfds that are shared with the other process.
    pub eventfd: EventFds,
}

impl<'a> ProbeContext<'a> {
    /// Makes the context. A process calls this once for each [`Segment`] and side.
    pub(crate) fn new(resources: ProbeResources<'a>) -> Self {
        let ProbeResources { side, idle, .. } = resources;
        let layout = resources.segment.layout();
        Self {
            side,
            idle,
            clock: Clock::calibrate(),
            line: line::LinePingpong::shared(layout, idle),
            puts: line::LinePingpong::per_direction(layout, side, idle),
            loads: load::Loads::new(layout, idle),
            ring: ring::Duplex::new(layout.rings(side), idle),
            byte_ring: byte_ring::Duplex::new(layout.byte_rings(side), idle),
            cma: cma::CmaTarget::new(layout),
            tcp: resources.tcp,
            unix: resources.unix,
            futex: wake::Futexes::new(layout, side),
            eventfd: resources.eventfd,
            private: None,
        }
    }

    /// The clock of this process.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The action of this process between two polls.
    pub fn idle(&self) -> Idle {
        self.idle
    }

    /// Runs this process's side of a probe. Returns an outcome only in the active process.
    ///
    /// # Errors
    /// The system's error, unless the error is the outcome of the probe.
    pub fn run(&mut self, probe: Probe, counts: Counts) -> anyhow::Result<Option<Outcome>> {
        match self.side {
            Side::Active => self.measure(probe, counts).map(Some),
            Side::Passive => self.respond(probe, counts).map(|()| None),
        }
    }

    fn measure(&mut self, probe: Probe, counts: Counts) -> anyhow::Result<Outcome> {
        let (clock, idle) = (self.clock, self.idle);
        let timing = match probe {
            Probe::Line => self.line.measure(clock, counts),
            Probe::Put => self.puts.measure(clock, counts),
            Probe::Load => Ok(self.loads.measure(clock, counts)),
            Probe::Add => Ok(self.loads.measure_add(clock, counts)),
            Probe::Ring => self.ring.measure::<{ ring::PAYLOAD }>(clock, counts),
            Probe::RingSmall => self.ring.measure::<8>(clock, counts),
            Probe::RingRate => self.ring.measure_rate::<{ ring::PAYLOAD }>(clock, counts),
            Probe::RingRateSmall => self.ring.measure_rate::<8>(clock, counts),
            Probe::TwoCopy { size, chunk } => {
                let memory = private_memory(&mut self.private, size)?;
                self.byte_ring
                    .measure(&mut memory[..size], chunk, clock, counts)
            }
            Probe::TwoCopyRate { size, chunk } => {
                let memory = private_memory(&mut self.private, size)?;
                Ok(self
                    .byte_ring
                    .measure_rate(&memory[..size], chunk, clock, counts))
            }
            Probe::Memcpy { size } => memcpy::measure_cached(
                private_memory(&mut self.private, 2 * size)?,
                size,
                clock,
                counts,
            ),
            Probe::MemcpyCold { size } => memcpy::measure_cold(
                private_memory(&mut self.private, memcpy::COLD_BYTES)?,
                size,
                clock,
                counts,
            ),
            Probe::Cma { size } => {
                let memory = private_memory(&mut self.private, size)?;
                return Ok(
                    match self.cma.measure(&mut memory[..size], idle, clock, counts) {
                        Ok(timing) => Outcome::Took(timing),
                        Err(error) => Outcome::Refused(format!("{error:#}")),
                    },
                );
            }
            Probe::Tcp => self.tcp.measure(&mut [1; WORD], idle, clock, counts),
            Probe::TcpTrip { size } => {
                let memory = private_memory(&mut self.private, size)?;
                self.tcp.measure(&mut memory[..size], idle, clock, counts)
            }
            Probe::TcpRate { size, window } => {
                let memory = private_memory(&mut self.private, size * window)?;
                let memory = &memory[..size * window];
                self.tcp.measure_rate(memory, size, idle, clock, counts)
            }
            Probe::Unix => self.unix.measure(&mut [1; WORD], idle, clock, counts),
            Probe::Futex => self.futex.measure(clock, counts),
            Probe::EventFd => self.eventfd.measure(clock, counts),
        };
        timing.map(Outcome::Took)
    }

    fn respond(&mut self, probe: Probe, counts: Counts) -> anyhow::Result<()> {
        let idle = self.idle;
        match probe {
            Probe::Line => self.line.respond(counts),
            Probe::Put => self.puts.respond(counts),
            Probe::Load | Probe::Add => self.loads.respond(counts),
            Probe::Ring => self.ring.respond::<{ ring::PAYLOAD }>(counts),
            Probe::RingSmall => self.ring.respond::<8>(counts),
            Probe::RingRate => self.ring.respond_rate::<{ ring::PAYLOAD }>(counts),
            Probe::RingRateSmall => self.ring.respond_rate::<8>(counts),
            Probe::TwoCopy { size, chunk } => {
                let memory = private_memory(&mut self.private, size)?;
                self.byte_ring.respond(&mut memory[..size], chunk, counts);
            }
            Probe::TwoCopyRate { size, chunk } => {
                let memory = private_memory(&mut self.private, size)?;
                self.byte_ring
                    .respond_rate(&mut memory[..size], chunk, counts);
            }
            Probe::Memcpy { .. } | Probe::MemcpyCold { .. } => {}
            Probe::Cma { size } => self
                .cma
                .respond(&private_memory(&mut self.private, size)?[..size]),
            Probe::Tcp => self.tcp.respond(&mut [0; WORD], idle, counts)?,
            Probe::TcpTrip { size } => {
                let memory = private_memory(&mut self.private, size)?;
                self.tcp.respond(&mut memory[..size], idle, counts)?;
            }
            Probe::TcpRate { size, window } => {
                let memory = private_memory(&mut self.private, size * window)?;
                let memory = &mut memory[..size * window];
                self.tcp.respond_rate(memory, size, idle, counts)?;
            }
            Probe::Unix => self.unix.respond(&mut [0; WORD], idle, counts)?,
            Probe::Futex => self.futex.respond(counts)?,
            Probe::EventFd => self.eventfd.respond(counts)?,
        }
        Ok(())
    }
}

/// Bytes of a message in the probes of sockets.
const WORD: usize = 8;

/// Returns the private memory. Replaces it by a larger one first if it has less than `len` bytes.
fn private_memory(memory: &mut Option<Pages>, len: usize) -> anyhow::Result<&mut Pages> {
    if memory.as_ref().is_none_or(|pages| pages.len() < len) {
        *memory = None;
        *memory = Some(Pages::new(len)?);
    }
    Ok(memory
        .as_mut()
        .expect("the memory exists or was just allocated"))
}
