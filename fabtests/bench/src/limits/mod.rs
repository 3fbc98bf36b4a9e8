//! What the machine can do between two processes, without any fabric in between.
//!
//! Each probe's two halves stand side by side in one file. [`Ground`] is what a process needs to
//! take part in them; [`survey`] has them taken and makes [`Limits`] of the results.

mod cma;
mod line;
mod load;
mod memcpy;
pub(crate) mod report;
mod ring;
mod shared;
mod socket;
mod stream;
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
pub use survey::{Depth, Distance, Flow, Road, cma_ns, distance, point_limit, survey};
pub use wake::EventFds;

/// One measurement that both processes take part in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Probe {
    /// A cache line is handed over and back.
    Line,
    /// A word is stored in a line that the other process looks at, and it stores one in another line.
    Put,
    /// Lines that one process has written are loaded by the other, one after the other.
    Load,
    /// As [`Self::Load`], with an atomic addition to each line in place of a load.
    Add,
    /// A message of 56 bytes travels the one-line ring and another one comes back.
    Ring,
    /// As [`Self::Ring`], with 8 bytes.
    RingSmall,
    /// Windows of 64 messages of 56 bytes go through the one-line ring, and one answer each comes
    /// back.
    RingRate,
    /// As [`Self::RingRate`], with 8 bytes.
    RingRateSmall,
    /// A message is copied into shared memory and out again, there and back.
    TwoCopy {
        /// Of the message, in bytes.
        size: usize,
        /// Bytes that are copied at a time.
        chunk: usize,
    },
    /// As [`Self::TwoCopy`], with messages that follow each other in one direction.
    TwoCopyRate {
        /// Of the message, in bytes.
        size: usize,
        /// Bytes that are copied at a time.
        chunk: usize,
    },
    /// One process copies between the same two private buffers.
    Memcpy {
        /// In bytes.
        size: usize,
    },
    /// One process copies between places that it has not touched for long.
    MemcpyCold {
        /// In bytes.
        size: usize,
    },
    /// The active process reads the passive one's memory: `process_vm_readv(2)`.
    Cma {
        /// In bytes.
        size: usize,
    },
    /// 8 bytes over TCP and back, both sides polling.
    Tcp,
    /// A message over TCP and back, both sides polling.
    TcpTrip {
        /// In bytes.
        size: usize,
    },
    /// As [`Self::TcpTrip`], with messages that follow each other in one direction, each in a place
    /// of its own, as far as a window of them goes.
    TcpRate {
        /// In bytes.
        size: usize,
        /// Places.
        window: usize,
    },
    /// 8 bytes over a Unix stream socket and back, both sides polling.
    Unix,
    /// Each process sleeps on a futex until the other one wakes it.
    Futex,
    /// Each process sleeps in the read of an eventfd until the other one writes it.
    EventFd,
}

/// What came of a [`Probe`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// The time of one round trip, message or copy.
    Took(Timing),
    /// The system refuses, with its reason.
    Refused(String),
}

/// A process's place in the probes.
#[derive(Debug)]
pub struct Ground<'a> {
    side: Side,
    idle: Idle,
    clock: Clock,
    line: line::Line<'a>,
    puts: line::Line<'a>,
    loads: load::Loads<'a>,
    ring: ring::Ends<'a>,
    stream: stream::Ends<'a>,
    cma: cma::Window<'a>,
    tcp: Socket,
    unix: Socket,
    futex: wake::Futexes<'a>,
    eventfd: EventFds,
    /// Private memory, as large as the largest probe so far needed.
    own: Option<Pages>,
}

/// What a process is given to build its [`Ground`].
#[derive(Debug)]
pub(crate) struct Site<'a> {
    /// Which of the two processes this is.
    pub side: Side,
    /// How it waits.
    pub idle: Idle,
    /// What both share.
    pub segment: &'a Segment,
    /// Connected to the other process.
    pub tcp: Socket,
    /// Connected to the other process.
    pub unix: Socket,
    /// Shared with the other process.
    pub eventfd: EventFds,
}

impl<'a> Ground<'a> {
    /// Takes a place. A process does so once for each [`Segment`] and side.
    pub(crate) fn new(site: Site<'a>) -> Self {
        let Site { side, idle, .. } = site;
        let layout = site.segment.layout();
        Self {
            side,
            idle,
            clock: Clock::calibrate(),
            line: line::Line::shared(layout, idle),
            puts: line::Line::each_way(layout, side, idle),
            loads: load::Loads::new(layout, idle),
            ring: ring::Ends::new(layout, side, idle),
            stream: stream::Ends::new(layout, side, idle),
            cma: cma::Window::new(layout),
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

    /// Takes this process's part in a probe. Only the active process's outcome counts.
    ///
    /// # Errors
    /// The system's, where they are no answer to the probe's question.
    pub fn take(&mut self, probe: Probe, counts: Counts) -> anyhow::Result<Option<Outcome>> {
        match self.side {
            Side::Active => self.measure(probe, counts).map(Some),
            Side::Passive => self.answer(probe, counts).map(|()| None),
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
                self.stream.measure(&mut own[..size], chunk, clock, counts)
            }
            Probe::TwoCopyRate { size, chunk } => {
                let own = at_least(&mut self.own, size)?;
                Ok(self.stream.measure_rate(&own[..size], chunk, clock, counts))
            }
            Probe::Memcpy { size } => {
                memcpy::measure_hot(at_least(&mut self.own, 2 * size)?, size, clock, counts)
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

    fn answer(&mut self, probe: Probe, counts: Counts) -> anyhow::Result<()> {
        let idle = self.idle;
        match probe {
            Probe::Line => self.line.answer(counts),
            Probe::Put => self.puts.answer(counts),
            Probe::Load | Probe::Add => self.loads.answer(counts),
            Probe::Ring => self.ring.answer::<{ ring::PAYLOAD }>(counts),
            Probe::RingSmall => self.ring.answer::<8>(counts),
            Probe::RingRate => self.ring.answer_rate::<{ ring::PAYLOAD }>(counts),
            Probe::RingRateSmall => self.ring.answer_rate::<8>(counts),
            Probe::TwoCopy { size, chunk } => {
                let own = at_least(&mut self.own, size)?;
                self.stream.answer(&mut own[..size], chunk, counts);
            }
            Probe::TwoCopyRate { size, chunk } => {
                let own = at_least(&mut self.own, size)?;
                self.stream.answer_rate(&mut own[..size], chunk, counts);
            }
            Probe::Memcpy { .. } | Probe::MemcpyCold { .. } => {}
            Probe::Cma { size } => self.cma.answer(&at_least(&mut self.own, size)?[..size]),
            Probe::Tcp => self.tcp.answer(&mut [0; WORD], idle, counts)?,
            Probe::TcpTrip { size } => {
                let own = at_least(&mut self.own, size)?;
                self.tcp.answer(&mut own[..size], idle, counts)?;
            }
            Probe::TcpRate { size, window } => {
                let own = at_least(&mut self.own, size * window)?;
                let own = &mut own[..size * window];
                self.tcp.answer_rate(own, size, idle, counts)?;
            }
            Probe::Unix => self.unix.answer(&mut [0; WORD], idle, counts)?,
            Probe::Futex => self.futex.answer(counts)?,
            Probe::EventFd => self.eventfd.answer(counts)?,
        }
        Ok(())
    }
}

/// Bytes of a message in the probes of the kernel's ways.
const WORD: usize = 8;

/// The private memory, grown to `len` bytes if it is smaller.
fn at_least(own: &mut Option<Pages>, len: usize) -> anyhow::Result<&mut Pages> {
    if own.as_ref().is_none_or(|pages| pages.len() < len) {
        *own = None;
        *own = Some(Pages::new(len)?);
    }
    Ok(own.as_mut().expect("was just made"))
}
