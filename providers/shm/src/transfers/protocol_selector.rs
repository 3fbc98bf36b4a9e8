//! Selection of the protocol of a large message, from measurements per peer and size class.
//!
//! No fixed threshold is right. Whether one copy by the kernel or two copies through shared cache
//! lines are faster depends on the processors, on their distance, and on the size. The receiver
//! therefore measures both protocols and uses the faster one (exploitation). It probes the other
//! protocol at intervals, because the speeds may change.

use std::time::{Duration, Instant};

use crate::peers::name::Name;

/// A protocol that moves the bytes of a large message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RendezvousProtocol {
    /// The receiver copies from the sender's memory.
    #[default]
    Cma,
    /// Sender and receiver copy through bounce segments.
    Bounce,
    /// The receiver copies from special memory, which it has mapped. This is one copy without a
    /// system call. The selector does not measure this protocol: it is used whenever the sender's
    /// memory is special.
    Special,
}

/// The selector of one peer's large messages.
#[derive(Clone, Debug)]
pub(crate) struct ProtocolSelector {
    size_classes: [SizeClass; SIZE_CLASSES],
    /// The time at which the peer's last large message completed.
    last_done: Instant,
    /// The protocol of the message that started last.
    last_protocol: RendezvousProtocol,
    /// The number of switches of the protocol so far.
    switches: u32,
}

/// A running measurement of one message, from its match on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measurement {
    since: Instant,
    /// The number of switches of the protocol when the measurement began.
    switches: u32,
}

/// The state of one size class. Probes, each of one protocol, alternate with exploitation periods,
/// which use the faster protocol.
#[derive(Clone, Copy, Debug)]
struct SizeClass {
    cma: DecayingMean,
    bounce: DecayingMean,
    protocol: RendezvousProtocol,
    /// The number of probes started.
    probes: u32,
    /// The number of messages started in the present probe or exploitation period.
    started: u32,
    /// The number of messages measured in the present probe or exploitation period.
    measured: u32,
    /// Length of the exploitation period in messages; 0 during a probe.
    exploitation_len: u32,
}

/// Nanoseconds per message, as a mean with exponential decay.
///
/// The mean is a quotient of sums, and not a mean of single times: of several messages that are
/// outstanding together, the last ones seem to take no time.
#[derive(Clone, Copy, Debug, Default)]
struct DecayingMean {
    nanos: f32,
    messages: f32,
}

/// The number of size classes: powers of two from 4 KiB up. The last class holds all larger sizes.
const SIZE_CLASSES: usize = 16;
/// The number of messages that a probe measures.
const PROBE_LEN: u32 = 12;
/// The number of messages at the start of a probe whose times do not enter the mean: for these
/// messages the sender still chooses its eager segments by the previous protocol.
const WARM_UP: u32 = 4;
/// The number of messages after which a probe ends although it has measured too few.
const PROBE_LEN_MAX: u32 = 256;
/// The ratio of the lengths of an exploitation period and a probe. The first periods are shorter.
const EXPLOITATION_FACTOR: u32 = 64;
/// The number of messages after the warm-up from which on a probe can be lost. A lost probe ends
/// early.
const LOST_AFTER: u32 = 3;
/// A probe is lost if its messages take this many times as long as those of the other protocol.
const LOST_RATIO: f32 = 1.5;
/// The factor by which a message's weight decays with each later message.
const DECAY: f32 = 0.9;

impl ProtocolSelector {
    /// Returns the size class of a message of `len` bytes.
    pub(crate) fn size_class(len: usize) -> usize {
        let pages = (len >> 12).max(1);
        (pages.ilog2() as usize).min(SIZE_CLASSES - 1)
    }

    /// Selects the protocol of a matched message of `len` bytes, and starts its measurement.
    pub(crate) fn start(&mut self, len: usize, peer: &Name) -> (RendezvousProtocol, Measurement) {
        let size_class = &mut self.size_classes[Self::size_class(len)];
        let was_probe = size_class.exploitation_len == 0;
        let protocol = size_class.select();
        if was_probe && size_class.exploitation_len > 0 {
            size_class.log_result(len, peer);
        }
        if protocol != self.last_protocol {
            self.last_protocol = protocol;
            self.switches = self.switches.wrapping_add(1);
        }
        let measurement = Measurement {
            since: Instant::now(),
            switches: self.switches,
        };
        (protocol, measurement)
    }

    /// Records a message that completed at `now`. The time of a message counts from its start or
    /// from the completion of the previous message, whichever is later. A measurement during which
    /// the protocol has switched is discarded.
    pub(crate) fn record(
        &mut self,
        len: usize,
        protocol: RendezvousProtocol,
        measurement: Measurement,
        now: Instant,
    ) {
        let duration = now.duration_since(measurement.since.max(self.last_done));
        self.last_done = now;
        if measurement.switches == self.switches {
            self.size_classes[Self::size_class(len)].record(protocol, duration);
        }
    }
}

impl SizeClass {
    /// Selects the protocol of the next message.
    fn select(&mut self) -> RendezvousProtocol {
        match self.exploitation_len {
            0 if self.is_probe_over() => self.end_probe(),
            exploitation_len if exploitation_len > 0 && self.started >= exploitation_len => {
                self.start_probe(self.slower_protocol())
            }
            _ => {}
        }
        self.started += 1;
        self.protocol
    }

    /// Starts a probe of a protocol, and drops its earlier measurements, which may be outdated.
    fn start_probe(&mut self, protocol: RendezvousProtocol) {
        self.protocol = protocol;
        *self.mean_of(protocol) = DecayingMean::default();
        self.probes = self.probes.saturating_add(1);
        self.exploitation_len = 0;
        self.restart_counts();
    }

    /// Whether the probe has measured enough messages, or is lost.
    fn is_probe_over(&self) -> bool {
        self.measured >= PROBE_LEN || self.started >= PROBE_LEN_MAX || self.is_probe_lost()
    }

    fn is_probe_lost(&self) -> bool {
        let (probed, other) = match self.protocol {
            RendezvousProtocol::Bounce => (self.bounce, self.cma),
            _ => (self.cma, self.bounce),
        };
        let is_significant = self.measured >= WARM_UP + LOST_AFTER && other.messages > 0.0;
        is_significant && probed.mean_nanos() > LOST_RATIO * other.mean_nanos()
    }

    /// Ends a probe. The first two probes follow each other; later ones are separated by
    /// exploitation periods.
    fn end_probe(&mut self) {
        if self.probes == 1 {
            return self.start_probe(RendezvousProtocol::Cma);
        }
        let growth = 1 << (2 * (self.probes - 1)).min(u32::BITS - 1);
        self.exploitation_len = self.started.max(PROBE_LEN) * EXPLOITATION_FACTOR.min(growth);
        self.protocol = self.faster_protocol();
        self.restart_counts();
    }

    /// Logs the result of a probe.
    #[cold]
    fn log_result(&self, len: usize, peer: &Name) {
        log::info!(
            target: "selvedge::shm::ep_data",
            "messages of about {len} bytes from {peer}: {:?} for the next {}; one takes {:.0} ns by \
             CMA, {:.0} ns by bounce segments",
            self.protocol, self.exploitation_len, self.cma.mean_nanos(), self.bounce.mean_nanos()
        );
    }

    fn restart_counts(&mut self) {
        self.started = 0;
        self.measured = 0;
    }

    fn record(&mut self, protocol: RendezvousProtocol, duration: Duration) {
        self.measured += 1;
        if self.exploitation_len == 0 && self.measured <= WARM_UP {
            return;
        }
        self.mean_of(protocol).add(duration);
        if self.exploitation_len > 0 && self.measured.is_multiple_of(PROBE_LEN) {
            self.protocol = self.faster_protocol();
        }
    }

    fn faster_protocol(&self) -> RendezvousProtocol {
        if self.bounce.mean_nanos() < self.cma.mean_nanos() {
            RendezvousProtocol::Bounce
        } else {
            RendezvousProtocol::Cma
        }
    }

    fn slower_protocol(&self) -> RendezvousProtocol {
        match self.faster_protocol() {
            RendezvousProtocol::Cma => RendezvousProtocol::Bounce,
            _ => RendezvousProtocol::Cma,
        }
    }

    fn mean_of(&mut self, protocol: RendezvousProtocol) -> &mut DecayingMean {
        match protocol {
            RendezvousProtocol::Bounce => &mut self.bounce,
            _ => &mut self.cma,
        }
    }
}

impl DecayingMean {
    fn add(&mut self, duration: Duration) {
        self.nanos = self.nanos * DECAY + duration.as_nanos() as f32;
        self.messages = self.messages * DECAY + 1.0;
    }

    /// Returns the mean in nanoseconds per message; 0 without measurements, so that the protocol is
    /// probed.
    fn mean_nanos(&self) -> f32 {
        if self.messages > 0.0 {
            self.nanos / self.messages
        } else {
            0.0
        }
    }
}

impl Default for ProtocolSelector {
    fn default() -> Self {
        Self {
            size_classes: [SizeClass::default(); SIZE_CLASSES],
            last_done: Instant::now(),
            last_protocol: RendezvousProtocol::default(),
            switches: 0,
        }
    }
}

/// Returns a size class in its first probe.
impl Default for SizeClass {
    fn default() -> Self {
        Self {
            cma: DecayingMean::default(),
            bounce: DecayingMean::default(),
            protocol: RendezvousProtocol::Bounce,
            probes: 1,
            started: 0,
            measured: 0,
            exploitation_len: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 65536;

    fn peer() -> Name {
        Name::plain("peer").unwrap()
    }

    fn nanos(protocol: RendezvousProtocol, cma: u64, bounce: u64) -> Duration {
        Duration::from_nanos(match protocol {
            RendezvousProtocol::Cma => cma,
            _ => bounce,
        })
    }

    /// Simulates `count` messages, one after the other, that take `cma` or `bounce` nanoseconds.
    /// Returns the number of bounced messages.
    fn run(selector: &mut ProtocolSelector, count: u32, cma: u64, bounce: u64) -> u32 {
        let mut bounced = 0;
        for _ in 0..count {
            let (protocol, mut measurement) = selector.start(LEN, &peer());
            bounced += u32::from(protocol == RendezvousProtocol::Bounce);
            measurement.since = selector.last_done;
            selector.record(
                LEN,
                protocol,
                measurement,
                measurement.since + nanos(protocol, cma, bounce),
            );
        }
        bounced
    }

    /// Simulates bursts of 64 messages that match their receives together. A message that the
    /// receiver copies alone completes at once; a bounced message completes after the whole burst
    /// has started. Returns the number of bounced messages.
    fn run_bursts(selector: &mut ProtocolSelector, bursts: u32, cma: u64, bounce: u64) -> u32 {
        let mut bounced = 0;
        let mut now = selector.last_done;
        for _ in 0..bursts {
            let mut outstanding = Vec::new();
            for _ in 0..64 {
                let (protocol, mut measurement) = selector.start(LEN, &peer());
                measurement.since = now;
                if protocol == RendezvousProtocol::Bounce {
                    outstanding.push(measurement);
                    continue;
                }
                now += nanos(protocol, cma, bounce);
                selector.record(LEN, protocol, measurement, now);
            }
            bounced += outstanding.len() as u32;
            for measurement in outstanding {
                now += nanos(RendezvousProtocol::Bounce, cma, bounce);
                selector.record(LEN, RendezvousProtocol::Bounce, measurement, now);
            }
        }
        bounced
    }

    #[test]
    fn the_faster_protocol_is_selected() {
        let mut selector = ProtocolSelector::default();
        assert!(run(&mut selector, 1000, 5000, 2000) > 900);
        let mut selector = ProtocolSelector::default();
        assert!(run(&mut selector, 1000, 2000, 5000) < 100);
    }

    #[test]
    fn a_losing_probe_ends_early() {
        let mut selector = ProtocolSelector::default();
        let bounced = run(&mut selector, 64, 5000, 2000);
        assert!(
            64 - bounced <= WARM_UP + LOST_AFTER,
            "{bounced} of 64 bounced"
        );
    }

    #[test]
    fn the_faster_protocol_is_selected_for_bursts() {
        let mut selector = ProtocolSelector::default();
        assert!(run_bursts(&mut selector, 100, 5000, 4000) > 6000);
        let mut selector = ProtocolSelector::default();
        assert!(run_bursts(&mut selector, 100, 4000, 5000) < 400);
    }

    #[test]
    fn the_selection_follows_a_change_of_speed() {
        let mut selector = ProtocolSelector::default();
        run(&mut selector, 1000, 5000, 2000);
        run(&mut selector, 1000, 1000, 8000);
        assert!(run(&mut selector, 1000, 1000, 8000) < 50);
    }

    #[test]
    fn one_probe_suffices_to_return_to_a_protocol_that_became_faster() {
        let mut selector = ProtocolSelector::default();
        run(
            &mut selector,
            4 * PROBE_LEN * EXPLOITATION_FACTOR,
            500,
            50_000,
        );
        run(
            &mut selector,
            PROBE_LEN * (EXPLOITATION_FACTOR + 2),
            500,
            200,
        );
        assert_eq!(run(&mut selector, PROBE_LEN, 500, 200), PROBE_LEN);
    }

    #[test]
    fn probes_use_a_limited_share_of_messages() {
        let mut selector = ProtocolSelector::default();
        run_bursts(&mut selector, 200, 4000, 5000);
        let bounced = run_bursts(&mut selector, 2000, 4000, 5000);
        assert!(
            (1..=2 * 2000 * 64 / EXPLOITATION_FACTOR).contains(&bounced),
            "{bounced}"
        );
    }

    #[test]
    fn measurements_across_a_switch_of_protocol_are_discarded() {
        let mut selector = ProtocolSelector::default();
        let (protocol, measurement) = selector.start(LEN, &peer());
        selector.size_classes[ProtocolSelector::size_class(LEN)]
            .start_probe(RendezvousProtocol::Cma);
        let _ = selector.start(LEN, &peer());
        selector.record(LEN, protocol, measurement, measurement.since);
        assert_eq!(
            selector.size_classes[ProtocolSelector::size_class(LEN)].measured,
            0
        );
    }

    #[test]
    fn the_time_of_a_message_begins_after_the_previous_completion() {
        let mut selector = ProtocolSelector::default();
        run(&mut selector, 2 * PROBE_LEN, 3000, 3000);
        // A burst of messages that matched their receives together and complete one after the
        // other, 1000 ns each.
        let measurement = Measurement {
            since: selector.last_done,
            switches: selector.switches,
        };
        for number in 1..=64 {
            let now = measurement.since + Duration::from_nanos(1000 * number);
            selector.record(LEN, RendezvousProtocol::Bounce, measurement, now);
        }
        assert_eq!(
            selector.size_classes[ProtocolSelector::size_class(LEN)].faster_protocol(),
            RendezvousProtocol::Bounce
        );
    }

    #[test]
    fn messages_that_complete_together_share_their_time() {
        let mut mean = DecayingMean::default();
        for _ in 0..100 {
            mean.add(Duration::from_nanos(8000));
            (0..7).for_each(|_| mean.add(Duration::ZERO));
        }
        let nanos = mean.mean_nanos();
        assert!((500.0..1500.0).contains(&nanos), "{nanos}");
    }

    #[test]
    fn size_classes_are_separate() {
        assert_ne!(
            ProtocolSelector::size_class(16 << 10),
            ProtocolSelector::size_class(64 << 10)
        );
        assert_eq!(
            ProtocolSelector::size_class(1),
            ProtocolSelector::size_class(4096)
        );
        assert!(ProtocolSelector::size_class(usize::MAX) < SIZE_CLASSES);
    }
}
