//! Which way a large message takes: learnt per peer and size class from what was fastest.
//!
//! No fixed threshold is right: whether one copy through the kernel or two through shared cache
//! lines is faster depends on the processors, on how far apart they are, and on the size. So the
//! receiver measures both ways and takes the better one, and tries the other now and then in case
//! the world has changed.

use std::time::{Duration, Instant};

use crate::peers::name::Name;

/// A way for the bytes of a large message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Way {
    /// The receiver copies from the sender's memory.
    #[default]
    Cma,
    /// Both copy, through bounce segments.
    Bounce,
    /// The receiver copies from special memory, which it has mapped. Nothing is learnt about it: it
    /// is one copy without a system call, and taken wherever there is such memory.
    Special,
}

/// What was learnt about one peer.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    classes: [Class; CLASSES],
    /// When the last large message of the peer was complete.
    last_done: Instant,
    /// The way of the message that was started last, and how often it was another than before.
    last_way: Way,
    changes: u32,
}

/// A message whose time is taken, from when it met its receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    since: Instant,
    changes: u32,
}

/// Messages of one size. There are trials, each of one way, and rests between them, in which the
/// better way is taken.
#[derive(Clone, Copy, Debug)]
struct Class {
    cma: Mean,
    bounce: Mean,
    way: Way,
    /// Trials begun.
    trials: u32,
    /// Messages of the present trial or rest, and how many of them were measured.
    started: u32,
    measured: u32,
    /// Messages until the next trial; 0 during one.
    rest: u32,
}

/// Nanoseconds per message, the younger ones weighing more.
///
/// A mean of sums and not of single times: of messages that are under way together, the last ones
/// seem to take no time at all.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    nanos: f32,
    messages: f32,
}

/// Powers of two from 4 KiB up; the last class takes everything beyond.
const CLASSES: usize = 16;
/// Messages that are measured in a trial.
const TRIAL: u32 = 12;
/// So many of them do not count: the sender prepares for the way that its last messages took.
const UNSETTLED: u32 = 4;
/// Messages after which a trial ends that has measured too few: it stands in others' way.
const TRIAL_MAX: u32 = 256;
/// How much longer a rest is than a trial. The first rests are shorter.
const REST: u32 = 64;
/// A trial is lost, and ends, when so many messages that count have taken so many times as long as
/// those of the other way.
const SURE: u32 = 3;
const LOST: f32 = 1.5;
/// What a message keeps of its weight when the next one comes.
const MEMORY: f32 = 0.9;

impl Choice {
    /// The class of a size.
    pub(crate) fn class(len: usize) -> usize {
        let pages = (len >> 12).max(1);
        (pages.ilog2() as usize).min(CLASSES - 1)
    }

    /// The way for the next message of `len` bytes, which has met its receive.
    pub(crate) fn start(&mut self, len: usize, peer: &Name) -> (Way, Watch) {
        let class = &mut self.classes[Self::class(len)];
        let was_trial = class.rest == 0;
        let way = class.next();
        if was_trial && class.rest > 0 {
            class.log(len, peer);
        }
        if way != self.last_way {
            self.last_way = way;
            self.changes = self.changes.wrapping_add(1);
        }
        let watch = Watch {
            since: Instant::now(),
            changes: self.changes,
        };
        (way, watch)
    }

    /// Learns from a message that is complete now: it took the time since it was started, or since
    /// the message before it was complete, whichever is less. One that shared its time with messages
    /// of the other way says nothing.
    pub(crate) fn learn(&mut self, len: usize, way: Way, watch: Watch, now: Instant) {
        let took = now.duration_since(watch.since.max(self.last_done));
        self.last_done = now;
        if watch.changes == self.changes {
            self.classes[Self::class(len)].learn(way, took);
        }
    }
}

impl Class {
    fn next(&mut self) -> Way {
        match self.rest {
            0 if self.is_over() => self.end_trial(),
            rest if rest > 0 && self.started >= rest => self.try_way(self.worse()),
            _ => {}
        }
        self.started += 1;
        self.way
    }

    /// What was known of the way is forgotten: it may come from another time.
    fn try_way(&mut self, way: Way) {
        self.way = way;
        *self.mean(way) = Mean::default();
        self.trials = self.trials.saturating_add(1);
        self.rest = 0;
        self.restart();
    }

    /// Whether the trial has said what there is to say.
    fn is_over(&self) -> bool {
        self.measured >= TRIAL || self.started >= TRIAL_MAX || self.is_lost()
    }

    fn is_lost(&self) -> bool {
        let (own, other) = match self.way {
            Way::Bounce => (self.bounce, self.cma),
            _ => (self.cma, self.bounce),
        };
        let is_sure = self.measured >= UNSETTLED + SURE && other.messages > 0.0;
        is_sure && own.nanos() > LOST * other.nanos()
    }

    /// The first two trials follow each other; then a trial takes its share of the messages.
    fn end_trial(&mut self) {
        if self.trials == 1 {
            return self.try_way(Way::Cma);
        }
        let grown = 1 << (2 * (self.trials - 1)).min(u32::BITS - 1);
        self.rest = self.started.max(TRIAL) * REST.min(grown);
        self.way = self.better();
        self.restart();
    }

    /// Says what a trial has taught.
    #[cold]
    fn log(&self, len: usize, peer: &Name) {
        log::info!(
            target: "selvedge::shm::ep_data",
            "messages of about {len} bytes from {peer}: {:?} for the next {}; one takes {:.0} ns by \
             CMA, {:.0} ns by bounce segments",
            self.way, self.rest, self.cma.nanos(), self.bounce.nanos()
        );
    }

    fn restart(&mut self) {
        self.started = 0;
        self.measured = 0;
    }

    fn learn(&mut self, way: Way, took: Duration) {
        self.measured += 1;
        if self.rest == 0 && self.measured <= UNSETTLED {
            return;
        }
        self.mean(way).add(took);
        if self.rest > 0 && self.measured.is_multiple_of(TRIAL) {
            self.way = self.better();
        }
    }

    fn better(&self) -> Way {
        if self.bounce.nanos() < self.cma.nanos() {
            Way::Bounce
        } else {
            Way::Cma
        }
    }

    fn worse(&self) -> Way {
        match self.better() {
            Way::Cma => Way::Bounce,
            _ => Way::Cma,
        }
    }

    fn mean(&mut self, way: Way) -> &mut Mean {
        match way {
            Way::Bounce => &mut self.bounce,
            _ => &mut self.cma,
        }
    }
}

impl Mean {
    fn add(&mut self, took: Duration) {
        self.nanos = self.nanos * MEMORY + took.as_nanos() as f32;
        self.messages = self.messages * MEMORY + 1.0;
    }

    /// Per message; nothing where none was measured, so that it is measured.
    fn nanos(&self) -> f32 {
        if self.messages > 0.0 {
            self.nanos / self.messages
        } else {
            0.0
        }
    }
}

impl Default for Choice {
    fn default() -> Self {
        Self {
            classes: [Class::default(); CLASSES],
            last_done: Instant::now(),
            last_way: Way::default(),
            changes: 0,
        }
    }
}

/// In its first trial.
impl Default for Class {
    fn default() -> Self {
        Self {
            cma: Mean::default(),
            bounce: Mean::default(),
            way: Way::Bounce,
            trials: 1,
            started: 0,
            measured: 0,
            rest: 0,
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

    fn nanos(way: Way, cma: u64, bounce: u64) -> Duration {
        Duration::from_nanos(match way {
            Way::Cma => cma,
            _ => bounce,
        })
    }

    /// Sends `count` messages, one after the other, that take the given nanoseconds; how many were
    /// bounced.
    fn run(choice: &mut Choice, count: u32, cma: u64, bounce: u64) -> u32 {
        let mut bounced = 0;
        for _ in 0..count {
            let (way, mut watch) = choice.start(LEN, &peer());
            bounced += u32::from(way == Way::Bounce);
            watch.since = choice.last_done;
            choice.learn(LEN, way, watch, watch.since + nanos(way, cma, bounce));
        }
        bounced
    }

    /// Sends windows of 64 messages that meet their receives together. What the receiver copies by
    /// itself is complete at once; what bounces, when the whole window has been looked at. How many
    /// were bounced.
    fn run_windows(choice: &mut Choice, windows: u32, cma: u64, bounce: u64) -> u32 {
        let mut bounced = 0;
        let mut now = choice.last_done;
        for _ in 0..windows {
            let mut under_way = Vec::new();
            for _ in 0..64 {
                let (way, mut watch) = choice.start(LEN, &peer());
                watch.since = now;
                if way == Way::Bounce {
                    under_way.push(watch);
                    continue;
                }
                now += nanos(way, cma, bounce);
                choice.learn(LEN, way, watch, now);
            }
            bounced += under_way.len() as u32;
            for watch in under_way {
                now += nanos(Way::Bounce, cma, bounce);
                choice.learn(LEN, Way::Bounce, watch, now);
            }
        }
        bounced
    }

    #[test]
    fn the_faster_way_is_taken() {
        let mut choice = Choice::default();
        assert!(run(&mut choice, 1000, 5000, 2000) > 900);
        let mut choice = Choice::default();
        assert!(run(&mut choice, 1000, 2000, 5000) < 100);
    }

    #[test]
    fn a_trial_that_is_lost_ends_early() {
        let mut choice = Choice::default();
        let bounced = run(&mut choice, 64, 5000, 2000);
        assert!(64 - bounced <= UNSETTLED + SURE, "{bounced} of 64 bounced");
    }

    #[test]
    fn the_faster_way_is_taken_in_windows() {
        let mut choice = Choice::default();
        assert!(run_windows(&mut choice, 100, 5000, 4000) > 6000);
        let mut choice = Choice::default();
        assert!(run_windows(&mut choice, 100, 4000, 5000) < 400);
    }

    #[test]
    fn a_change_of_the_world_is_noticed() {
        let mut choice = Choice::default();
        run(&mut choice, 1000, 5000, 2000);
        run(&mut choice, 1000, 1000, 8000);
        assert!(run(&mut choice, 1000, 1000, 8000) < 50);
    }

    #[test]
    fn one_trial_is_enough_to_return_to_a_way_that_has_become_fast() {
        let mut choice = Choice::default();
        run(&mut choice, 4 * TRIAL * REST, 500, 50_000);
        run(&mut choice, TRIAL * (REST + 2), 500, 200);
        assert_eq!(run(&mut choice, TRIAL, 500, 200), TRIAL);
    }

    #[test]
    fn a_trial_takes_its_share_of_the_messages_and_no_more() {
        let mut choice = Choice::default();
        run_windows(&mut choice, 200, 4000, 5000);
        let bounced = run_windows(&mut choice, 2000, 4000, 5000);
        assert!((1..=2 * 2000 * 64 / REST).contains(&bounced), "{bounced}");
    }

    #[test]
    fn messages_that_share_their_time_with_the_other_way_teach_nothing() {
        let mut choice = Choice::default();
        let (way, watch) = choice.start(LEN, &peer());
        choice.classes[Choice::class(LEN)].try_way(Way::Cma);
        let _ = choice.start(LEN, &peer());
        choice.learn(LEN, way, watch, watch.since);
        assert_eq!(choice.classes[Choice::class(LEN)].measured, 0);
    }

    #[test]
    fn messages_under_way_together_are_not_charged_for_each_other() {
        let mut choice = Choice::default();
        run(&mut choice, 2 * TRIAL, 3000, 3000);
        // A window of messages that all met their receives at once and are complete one after the
        // other, 1000 ns each.
        let watch = Watch {
            since: choice.last_done,
            changes: choice.changes,
        };
        for number in 1..=64 {
            let now = watch.since + Duration::from_nanos(1000 * number);
            choice.learn(LEN, Way::Bounce, watch, now);
        }
        assert_eq!(choice.classes[Choice::class(LEN)].better(), Way::Bounce);
    }

    #[test]
    fn messages_that_are_complete_together_share_their_time() {
        let mut mean = Mean::default();
        for _ in 0..100 {
            mean.add(Duration::from_nanos(8000));
            (0..7).for_each(|_| mean.add(Duration::ZERO));
        }
        let nanos = mean.nanos();
        assert!((500.0..1500.0).contains(&nanos), "{nanos}");
    }

    #[test]
    fn sizes_learn_apart() {
        assert_ne!(Choice::class(16 << 10), Choice::class(64 << 10));
        assert_eq!(Choice::class(1), Choice::class(4096));
        assert!(Choice::class(usize::MAX) < CLASSES);
    }
}
