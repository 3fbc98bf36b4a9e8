//! Selection of the protocol of a large message, from measurements per peer and class of messages.
//!
//! No fixed threshold is right. Whether one copy by the kernel or two copies through shared cache
//! lines are faster depends on the processors, on their distance, on the size, and on whether the
//! bytes are in a cache ([`RecentSources`]). The receiver therefore measures both protocols and
//! uses the faster one (exploitation). It probes the other protocol at intervals, because the
//! speeds may change.

mod mean;
mod runs;
mod sources;

use std::time::{Duration, Instant};

use self::mean::DecayingMean;
use self::runs::Runs;
pub(crate) use self::sources::RecentSources;
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
    /// The state of each class; empty before the first message.
    classes: Vec<ClassState>,
    /// The time at which the peer's last large message completed.
    last_done: Instant,
    /// The protocol of the message that started last.
    last_protocol: RendezvousProtocol,
    /// The number of switches of the protocol so far.
    switches: u32,
}

/// A class of large messages: those of about the same size, from buffers that were either sent
/// shortly before or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageClass(u8);

/// A running measurement of one message, from its match on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measurement {
    class: MessageClass,
    protocol: RendezvousProtocol,
    since: Instant,
    /// The number of switches of the protocol when the measurement began.
    switches: u32,
}

/// The state of one class. Probes, each of one protocol, alternate with exploitation periods,
/// which use the faster protocol.
#[derive(Clone, Copy, Debug)]
struct ClassState {
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
    /// The messages between pauses.
    runs: Runs,
    /// The part of the time by CMA that bounce segments may take.
    cma_preference: f32,
}

/// The number of size classes: powers of two from 4 KiB up. The last class holds all larger sizes.
const SIZE_CLASSES: usize = 16;
/// The number of messages that a probe measures.
const PROBE_LEN: u32 = 16;
/// The number of messages after which a protocol is probed again that an exploitation period has
/// given up.
const RECHECK_AFTER: u32 = 4 * PROBE_LEN;
/// A message was outstanding alone if the previous message had been complete for at least this
/// part of the message's time when it started.
const SINGLE_GAP: u32 = 4;
/// The number of messages at the start of a probe whose times do not enter the mean: for these
/// messages the sender still chooses its eager segments by the previous protocol, and the caches
/// still hold the previous protocol's bytes.
const WARM_UP: u32 = 8;
/// Bounce segments are selected if their time is at most this part of the time by CMA, which leaves
/// the sender's processor to the program.
const CMA_PREFERENCE: f32 = 0.95;
/// The same for messages in recent buffers. On a processor that other programs disturb, their times
/// differ by less at random, and the first messages after each switch of the protocol are slow.
const CMA_PREFERENCE_RECENT: f32 = 0.85;
/// The number of messages after which a probe ends although it has measured too few.
const PROBE_LEN_MAX: u32 = 256;
/// The ratio of the lengths of an exploitation period and a probe. The first periods are shorter.
const EXPLOITATION_FACTOR: u32 = 64;
/// The number of messages after the warm-up from which on a probe can be lost. A lost probe ends
/// early.
const LOST_AFTER: u32 = 3;
/// A probe is lost if its messages take this many times as long as those of the other protocol.
const LOST_RATIO: f32 = 1.5;

impl MessageClass {
    /// Returns the class of a message of `len` bytes. `is_recent` says whether its buffer was sent
    /// shortly before.
    pub(crate) fn of(len: usize, is_recent: bool) -> Self {
        let pages = (len >> 12).max(1);
        let size_class = (pages.ilog2() as usize).min(SIZE_CLASSES - 1);
        Self((size_class + SIZE_CLASSES * usize::from(is_recent)) as u8)
    }

    /// Returns a bit that distinguishes the class.
    pub(crate) fn bit(self) -> u64 {
        1 << self.0
    }
}

impl ProtocolSelector {
    /// Selects the protocol of a matched message, and starts its measurement.
    pub(crate) fn start(
        &mut self,
        class: MessageClass,
        peer: &Name,
    ) -> (RendezvousProtocol, Measurement) {
        if self.classes.is_empty() {
            self.classes = vec![ClassState::new(CMA_PREFERENCE); 2 * SIZE_CLASSES];
            for state in &mut self.classes[SIZE_CLASSES..] {
                state.cma_preference = CMA_PREFERENCE_RECENT;
            }
        }
        let state = &mut self.classes[usize::from(class.0)];
        let was_probe = state.exploitation_len == 0;
        let protocol = state.select();
        if was_probe && state.exploitation_len > 0 {
            state.log_result(class, peer);
        }
        if protocol != self.last_protocol {
            self.last_protocol = protocol;
            self.switches = self.switches.wrapping_add(1);
        }
        let measurement = Measurement {
            class,
            protocol,
            since: Instant::now(),
            switches: self.switches,
        };
        (protocol, measurement)
    }

    /// Records a message that completed at `now`. The time of a message counts from its start or
    /// from the completion of the previous message, whichever is later. A measurement during which
    /// the protocol has switched is discarded.
    pub(crate) fn record(&mut self, measurement: Measurement, now: Instant) {
        let Measurement {
            class,
            protocol,
            since,
            switches,
        } = measurement;
        let duration = now.duration_since(since.max(self.last_done));
        let gap = since.saturating_duration_since(self.last_done);
        self.last_done = now;
        if let Some(state) = self.classes.get_mut(usize::from(class.0)) {
            let is_settled = state.runs.record(since, now);
            if switches == self.switches {
                let is_single = gap >= duration / SINGLE_GAP;
                state.record(protocol, duration, is_single, is_settled);
            }
        }
    }
}

impl ClassState {
    /// Returns a class in its first probe.
    fn new(cma_preference: f32) -> Self {
        Self {
            cma: DecayingMean::default(),
            bounce: DecayingMean::default(),
            protocol: RendezvousProtocol::Bounce,
            probes: 1,
            started: 0,
            measured: 0,
            exploitation_len: 0,
            runs: Runs::default(),
            cma_preference,
        }
    }

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
        let is_significant = self.measured >= WARM_UP + LOST_AFTER && other.is_known();
        is_significant && probed.nanos() > LOST_RATIO * other.nanos()
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
    fn log_result(&self, class: MessageClass, peer: &Name) {
        let class = usize::from(class.0);
        let (len, buffer) = match class.checked_sub(SIZE_CLASSES) {
            Some(size_class) => (4096_usize << size_class, "a recent buffer"),
            None => (4096 << class, "other buffers"),
        };
        log::info!(
            target: "selvedge::shm::ep_data",
            "messages of {len} bytes or more in {buffer} of {peer}: {:?} for the next {}; one \
             takes {:.0} ns by CMA, {:.0} ns by bounce segments",
            self.protocol, self.exploitation_len, self.cma.nanos(), self.bounce.nanos()
        );
    }

    fn restart_counts(&mut self) {
        self.started = 0;
        self.measured = 0;
    }

    fn record(
        &mut self,
        protocol: RendezvousProtocol,
        duration: Duration,
        is_single: bool,
        is_settled: bool,
    ) {
        self.measured += u32::from(is_settled);
        let is_warming_up = self.exploitation_len == 0 && self.measured <= WARM_UP;
        let mean = self.mean_of(protocol);
        match (is_settled && !is_warming_up, is_single) {
            (false, true) => return mean.note_single(duration),
            (false, false) => return,
            (true, true) => mean.add_single(duration),
            (true, false) => mean.add(duration),
        }
        if self.exploitation_len > 0 && self.measured.is_multiple_of(PROBE_LEN) {
            self.reconsider();
        }
    }

    /// Switches the protocol during an exploitation period if the other one was faster when it was
    /// used last. That may be long ago, and single messages may have been delayed: the protocol
    /// that was given up is probed again soon.
    fn reconsider(&mut self) {
        let faster = self.faster_protocol();
        if faster != self.protocol {
            self.protocol = faster;
            self.exploitation_len = self.exploitation_len.min(self.started + RECHECK_AFTER);
        }
    }

    fn faster_protocol(&self) -> RendezvousProtocol {
        if self.bounce.nanos() < self.cma_preference * self.cma.nanos() {
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

impl Default for ProtocolSelector {
    fn default() -> Self {
        Self {
            classes: Vec::new(),
            last_done: Instant::now(),
            last_protocol: RendezvousProtocol::default(),
            switches: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfers::incoming::{SourceSegment, SourceSegments};

    const CLASS: MessageClass = MessageClass(4);
    const RECENT: MessageClass = MessageClass(4 + SIZE_CLASSES as u8);

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
        run_class(selector, CLASS, count, cma, bounce)
    }

    /// As [`run`], for messages of a class.
    fn run_class(
        selector: &mut ProtocolSelector,
        class: MessageClass,
        count: u32,
        cma: u64,
        bounce: u64,
    ) -> u32 {
        let mut bounced = 0;
        for _ in 0..count {
            let (protocol, mut measurement) = selector.start(class, &peer());
            bounced += u32::from(protocol == RendezvousProtocol::Bounce);
            measurement.since = selector.last_done;
            let now = measurement.since + nanos(protocol, cma, bounce);
            selector.record(measurement, now);
        }
        bounced
    }

    /// Simulates a message that starts after the previous one has been complete for a while.
    /// Returns the number of bounced messages.
    fn run_single(selector: &mut ProtocolSelector, cma: u64, bounce: u64) -> u32 {
        let (protocol, mut measurement) = selector.start(CLASS, &peer());
        measurement.since = selector.last_done + Duration::from_micros(100);
        let now = measurement.since + nanos(protocol, cma, bounce);
        selector.record(measurement, now);
        u32::from(protocol == RendezvousProtocol::Bounce)
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
                let (protocol, mut measurement) = selector.start(CLASS, &peer());
                measurement.since = now;
                if protocol == RendezvousProtocol::Bounce {
                    outstanding.push(measurement);
                    continue;
                }
                now += nanos(protocol, cma, bounce);
                selector.record(measurement, now);
            }
            bounced += outstanding.len() as u32;
            for measurement in outstanding {
                now += nanos(RendezvousProtocol::Bounce, cma, bounce);
                selector.record(measurement, now);
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
        let (_, measurement) = selector.start(CLASS, &peer());
        selector.classes[usize::from(CLASS.0)].start_probe(RendezvousProtocol::Cma);
        let _ = selector.start(CLASS, &peer());
        selector.record(measurement, measurement.since);
        assert_eq!(selector.classes[usize::from(CLASS.0)].measured, 0);
    }

    #[test]
    fn the_time_of_a_message_begins_after_the_previous_completion() {
        let mut selector = ProtocolSelector::default();
        run(&mut selector, 2 * PROBE_LEN, 3000, 3000);
        // A burst of messages that matched their receives together and complete one after the
        // other, 1000 ns each.
        let measurement = Measurement {
            class: CLASS,
            protocol: RendezvousProtocol::Bounce,
            since: selector.last_done,
            switches: selector.switches,
        };
        for number in 1..=64 {
            let now = measurement.since + Duration::from_nanos(1000 * number);
            selector.record(measurement, now);
        }
        assert_eq!(
            selector.classes[usize::from(CLASS.0)].faster_protocol(),
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
        let nanos = mean.nanos();
        assert!((500.0..1500.0).contains(&nanos), "{nanos}");
    }

    #[test]
    fn classes_are_separate() {
        let class = MessageClass::of;
        assert_ne!(class(16 << 10, false), class(64 << 10, false));
        assert_ne!(class(64 << 10, false), class(64 << 10, true));
        assert_eq!(class(1, false), class(4096, false));
        assert_eq!(class(usize::MAX, true).bit(), 1 << (2 * SIZE_CLASSES - 1));
    }

    #[test]
    fn a_buffer_that_is_sent_again_soon_is_recent() {
        let mut sources = RecentSources::default();
        let mut note = |addr| sources.note(&segment_at(addr));
        assert!(!note(0x1000));
        assert!(note(0x1000));
        for addr in [0x2000, 0x3000, 0x4000] {
            assert!(!note(addr));
            assert!(note(0x1000));
        }
        assert!(!note(0x5000));
        assert!(!note(0x1000));
    }

    #[test]
    fn buffers_of_a_window_are_not_recent() {
        let mut sources = RecentSources::default();
        for _ in 0..3 {
            for number in 1..=64 {
                assert!(!sources.note(&segment_at(number << 20)));
            }
        }
    }

    /// Single messages and windows of one size, for which different protocols are faster.
    #[test]
    fn classes_select_their_own_protocols() {
        let mut selector = ProtocolSelector::default();
        for _ in 0..100 {
            run_bursts(&mut selector, 2, 5000, 4000);
            run_class(&mut selector, RECENT, 20, 1500, 3000);
        }
        let bounced = run_class(&mut selector, RECENT, 20, 1500, 3000);
        assert!(bounced <= WARM_UP + LOST_AFTER, "{bounced} of 20 bounced");
        let bounced = run_bursts(&mut selector, 2, 5000, 4000);
        assert!(bounced >= 64, "{bounced} of 128 bounced");
    }

    /// A preempted processor makes one message in ten take forty times as long.
    #[test]
    fn delays_of_single_messages_do_not_change_the_selection() {
        let mut selector = ProtocolSelector::default();
        let mut bounced = 0;
        for number in 0..4000_u64 {
            let cma = if number % 10 == 0 { 80_000 } else { 2000 };
            bounced += run_single(&mut selector, cma, 3000);
        }
        assert!(bounced < 400, "{bounced} of 4000 bounced");
    }

    /// Differences of a few percent change by themselves, and each switch costs slow messages.
    #[test]
    fn bounce_segments_must_be_much_faster_for_recent_buffers() {
        let mut selector = ProtocolSelector::default();
        let bounced = run_class(&mut selector, RECENT, 1000, 3000, 2700);
        assert!(bounced <= 4 * PROBE_LEN, "{bounced} of 1000 bounced");
        let bounced = run_class(&mut selector, RECENT, 8000, 3000, 2400);
        assert!(bounced > 4000, "{bounced} of 8000 bounced");
    }

    /// Runs of 40 messages between pauses. After a pause, eight copies by the kernel take ten times
    /// as long.
    #[test]
    fn messages_after_a_pause_do_not_decide() {
        let mut selector = ProtocolSelector::default();
        let mut bounced = 0;
        for number in 0..4000 {
            let (cma, pause) = match number % 40 {
                0 => (20_000, Duration::from_millis(20)),
                1..8 => (20_000, Duration::ZERO),
                _ => (2000, Duration::ZERO),
            };
            let (protocol, mut measurement) = selector.start(CLASS, &peer());
            bounced += u32::from(protocol == RendezvousProtocol::Bounce);
            measurement.since = selector.last_done + pause;
            selector.record(measurement, measurement.since + nanos(protocol, cma, 3000));
        }
        assert!(bounced < 400, "{bounced} of 4000 bounced");
    }

    /// An exploitation period gives up a protocol for good only if a probe confirms the decision.
    #[test]
    fn a_protocol_that_was_given_up_is_probed_again_soon() {
        let mut selector = ProtocolSelector::default();
        run(&mut selector, 4000, 2000, 3000);
        run(&mut selector, 2 * PROBE_LEN, 9000, 3000);
        let bounced = run(&mut selector, 1000, 2000, 3000);
        assert!(bounced < 2 * RECHECK_AFTER, "{bounced} of 1000 bounced");
    }

    /// Segments of a message in ordinary memory.
    fn segment_at(addr: u64) -> SourceSegments {
        let mut segments = SourceSegments::none();
        segments.count = 1;
        segments.list[0] = SourceSegment {
            addr,
            len: 65536,
            block: 0,
        };
        segments
    }
}
