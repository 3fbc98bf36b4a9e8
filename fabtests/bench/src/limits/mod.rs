//! The limits of the machine between two processes, without a fabric.
//!
//! Both sides of a probe are in one file. [`ProbeContext`] has what a process needs for its side of
//! the probes; [`survey`] runs them and makes [`Limits`] of the results.

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

use crate::buffer::Pages;
use crate::clock::Clock;
use crate::cpu::Idle;
use crate::pair::Side;
use crate::timing::{Counts, Timing};

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
    /// One process loads lines that the other has written, one after the other.
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
        /// In bytes.
        size: usize,
    },
    /// One process copies between buffers that it has not accessed for long.
    MemcpyCold {
        /// In bytes.
        size: usize,
    },
    /// The active process reads the passive one's memory: `process_vm_readv(2)`.
    Cma {
        /// In bytes.
        size: usize,
    },
    /// Round trips of 8 bytes over TCP; both sides poll.
    Tcp,
    /// Round trips of a message over TCP; both sides poll.
    TcpTrip {
        /// In bytes.
        size: usize,
    },
    /// As [`Self::TcpTrip`], with consecutive messages in one direction. A window of messages has
    /// distinct buffers.
    TcpRate {
        /// In bytes.
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

/// One process's context for its side of the probes.
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
    /// Private memory, as large as the largest probe so far required.
    own: Option<Pages>,
}

/// The resources from which a process makes its [`ProbeContext`].
#[derive(Debug)]
pub(crate) struct ProbeResources<'a> {
    /// The side of this process.
    pub side: Side,
    /// How this process waits.
    pub idle: Idle,
    /// Memory shared with the other process.
    pub segment: &'a Segment,
    /// Connected to the other process.
    pub tcp: Socket,
    /// Connected to the other process.
    pub unix: Socket,
    /// Shared with the other process.
    pub eventfd: EventFds,
}

impl<'a> ProbeContext<'a> {
    /// Makes the context. A process calls this once for each [`Segment`] and side.
    pub(crate) fn new(site: ProbeResources<'a>) -> Self {
        let ProbeResources { side, idle, .. } = site;
        let layout = site.segment.layout();
        Self {
            side,
            idle,
            clock: Clock::calibrate(),
            line: line::LinePingpong::shared(layout, idle),
            puts: line::LinePingpong::per_direction(layout, side, idle),
            loads: load::Loads::new(layout, idle),
            ring: ring::Duplex::new(layout, side, idle),
            byte_ring: byte_ring::Duplex::new(layout, side, idle),
            cma: cma::CmaTarget::new(layout),
            tcp: site.tcp,
            unix: site.unix,
            futex: wake::Futexes::new(layout, side),
            eventfd: site.eventfd,
            own: None,
        }
    }

    /// The clock of this process.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// How this process waits.
    pub fn idle(&self) -> Idle {
        self.idle
    }

    /// Runs this process's side of a probe. Only the active process has an outcome.
    ///
    /// # Errors
    /// The system's, unless they are the outcome of the probe.
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
                let own = at_least(&mut self.own, size)?;
                self.byte_ring
                    .measure(&mut own[..size], chunk, clock, counts)
            }
            Probe::TwoCopyRate { size, chunk } => {
                let own = at_least(&mut self.own, size)?;
                Ok(self
                    .byte_ring
                    .measure_rate(&own[..size], chunk, clock, counts))
            }
            Probe::Memcpy { size } => {
                memcpy::measure_cached(at_least(&mut self.own, 2 * size)?, size, clock, counts)
            }
            Probe::MemcpyCold { size } => {
                memcpy::measure_cold(at_least(&mut self.own, memcpy::SET)?, size, clock, counts)
            }
            Probe::Cma { size } => {
                let own = at_least(&mut self.own, size)?;
                return Ok(
                    match self.cma.measure(&mut own[..size], idle, clock, counts) {
                        Ok(timing) => Outcome::Took(timing),
                        Err(refusal) => Outcome::Refused(format!("{refusal:#}")),
                    },
                );
            }
            Probe::Tcp => self.tcp.measure(&mut [1; WORD], idle, clock, counts),
            Probe::TcpTrip { size } => {
                let own = at_least(&mut self.own, size)?;
                self.tcp.measure(&mut own[..size], idle, clock, counts)
            }
            Probe::TcpRate { size, window } => {
                let own = at_least(&mut self.own, size * window)?;
                let own = &own[..size * window];
                self.tcp.measure_rate(own, size, idle, clock, counts)
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
                let own = at_least(&mut self.own, size)?;
                self.byte_ring.respond(&mut own[..size], chunk, counts);
            }
            Probe::TwoCopyRate { size, chunk } => {
                let own = at_least(&mut self.own, size)?;
                self.byte_ring.respond_rate(&mut own[..size], chunk, counts);
            }
            Probe::Memcpy { .. } | Probe::MemcpyCold { .. } => {}
            Probe::Cma { size } => self.cma.respond(&at_least(&mut self.own, size)?[..size]),
            Probe::Tcp => self.tcp.respond(&mut [0; WORD], idle, counts)?,
            Probe::TcpTrip { size } => {
                let own = at_least(&mut self.own, size)?;
                self.tcp.respond(&mut own[..size], idle, counts)?;
            }
            Probe::TcpRate { size, window } => {
                let own = at_least(&mut self.own, size * window)?;
                let own = &mut own[..size * window];
                self.tcp.respond_rate(own, size, idle, counts)?;
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

/// The private memory, replaced by a larger one where it has less than `len` bytes.
fn at_least(own: &mut Option<Pages>, len: usize) -> anyhow::Result<&mut Pages> {
    if own.as_ref().is_none_or(|pages| pages.len() < len) {
        *own = None;
        *own = Some(Pages::new(len)?);
    }
    Ok(own.as_mut().expect("was just made"))
}
