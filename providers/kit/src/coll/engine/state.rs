//! The state of the engine: the groups, and what wakes and polls them.

use rustc_hash::FxHashMap;
use selvedge::{Context, FiAddr, OpFlags, Result};

use super::telemetry::CollTelemetry;
use crate::coll::Failure;
use crate::coll::channel::Channels;
use crate::coll::completions::{LayerCompletion, LayerCompletions};
use crate::coll::group::Group;
use crate::coll::tag::{Number, Purpose};
use crate::coll::wire::{Events, Wire};
use crate::telemetry::now;

/// The state that the engine's lock protects. The engine takes its lock before the endpoint's.
#[derive(Debug)]
pub(in crate::coll) struct State {
    pub(super) wire: Wire,
    pub(super) channels: Channels,
    pub(super) events: Events,
    pub(in crate::coll) groups: FxHashMap<Number, Group>,
    pub(in crate::coll) next_number: Number,
    /// Failure notifications to send: destination, tag, error, and the local number of the group.
    pub(super) failure_notifications: Vec<(FiAddr, u64, u64, Number)>,
    /// The number of broken groups.
    pub(super) broken: usize,
    pub(super) running: usize,
    /// Whether a post has to be retried, because a queue was full.
    pub(super) needs_retry: bool,
    /// Progress calls since the last completion.
    pub(super) idle: u32,
    pub(super) finished: Vec<FinishedCollective>,
    /// Successful collectives of the fast path that are not reported yet.
    pub(super) fast_finished: Vec<(Context, OpFlags)>,
    drained: Vec<LayerCompletion>,
    pub(in crate::coll) telemetry: CollTelemetry,
}

/// A collective that is complete and not reported yet.
#[derive(Debug)]
pub(super) struct FinishedCollective {
    pub(super) context: Context,
    pub(super) flags: OpFlags,
    pub(super) outcome: Result<(), Failure>,
}

/// Progress calls without a completion until the engine checks whether members live: some tenths of
/// a millisecond.
pub(super) const IDLE_LIMIT: u32 = 4096;
/// Polls of the channels in one progress call, because the rest of the call takes longer than a
/// poll.
const POLLS_PER_PROGRESS: usize = 8;
/// Progress calls between two attempts to discard messages of broken groups.
pub(super) const DISCARD_INTERVAL: u32 = 64;

impl State {
    pub(in crate::coll) fn new(
        wire: Wire,
        channels: Channels,
        events: Events,
        telemetry: CollTelemetry,
    ) -> Self {
        Self {
            telemetry,
            wire,
            channels,
            events,
            groups: FxHashMap::default(),
            next_number: 0,
            failure_notifications: Vec::new(),
            broken: 0,
            running: 0,
            needs_retry: false,
            idle: 0,
            finished: Vec::new(),
            fast_finished: Vec::new(),
            drained: Vec::new(),
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.running > 0 || self.broken > 0 || self.needs_retry
    }

    /// Schedules the retry of a post that found a full queue.
    pub(super) fn schedule_retry(&mut self) {
        self.needs_retry = true;
    }

    pub(super) fn poll(&mut self, completions: &LayerCompletions) {
        if std::mem::take(&mut self.needs_retry) {
            self.send_failure_notifications();
            let numbers: Vec<_> = self.groups.keys().copied().collect();
            for number in numbers {
                self.continue_join(number);
                let running = self.groups.get(&number).map(|group| &group.running[..]);
                let running = running.unwrap_or_default().iter();
                for sequence in running.map(|it| it.sequence).collect::<Vec<_>>() {
                    self.advance(number, sequence);
                }
            }
        }
        if self.poll_channels() > 0 {
            self.idle = 0;
        } else if completions.is_empty() {
            self.idle = self.idle.saturating_add(1);
            if self.running > 0 && self.idle == IDLE_LIMIT {
                self.check_all_liveness();
            }
        }
        if self.broken > 0 && self.idle.is_multiple_of(DISCARD_INTERVAL) {
            self.discard_for_broken_groups();
        }
    }

    #[inline]
    fn poll_channels(&mut self) -> usize {
        for _ in 1..POLLS_PER_PROGRESS {
            let received = self.poll_channels_once();
            if received > 0 || !self.channels.has_awaited() {
                return received;
            }
        }
        self.poll_channels_once()
    }

    pub(super) fn check_all_liveness(&mut self) {
        self.move_all_to_slow_path();
        let waiting = self
            .groups
            .values()
            .filter(|group| !group.running.is_empty());
        let waiting: Vec<_> = waiting.map(|group| group.number).collect();
        waiting
            .into_iter()
            .for_each(|number| self.check_liveness(number));
        self.write_pending();
    }

    /// Handles the completions that the endpoint has reported to the layer.
    pub(super) fn drain_completions(&mut self, completions: &LayerCompletions) {
        while !completions.is_empty() {
            self.idle = 0;
            let mut received = std::mem::take(&mut self.drained);
            completions.take(&mut received);
            for LayerCompletion { context, outcome } in received.drain(..) {
                self.complete_operation(Purpose::from_context(context), outcome);
            }
            self.drained = received;
        }
    }

    fn complete_operation(
        &mut self,
        (purpose, number): (Purpose, Number),
        outcome: Result<usize, Failure>,
    ) {
        match (purpose, outcome) {
            (Purpose::Data(sequence), outcome) => self.complete_message(number, sequence, outcome),
            (Purpose::JoinReceive(rank), outcome) => {
                self.complete_number_receive(number, usize::from(rank), outcome);
            }
            (Purpose::JoinSend(rank), outcome) => {
                self.complete_number_send(number, usize::from(rank), outcome.err());
            }
            (Purpose::NotificationReceive, outcome) => {
                self.complete_notification_receive(number, outcome.is_ok_and(|len| len == 8))
            }
            (Purpose::Ping, Err((errno, detail))) => self.break_group(number, errno, &detail),
            // One message was discarded; there may be more.
            (Purpose::Discard, Ok(_)) => self.discard_for_group(number),
            (Purpose::Discard, Err(_)) | (Purpose::FailureNotification, _) => {}
            (Purpose::Ping, Ok(_)) => {}
        }
    }

    /// Removes a group that the application has left, if it has no running collective or join.
    pub(in crate::coll) fn remove_if_left(&mut self, number: Number) {
        let Some(group) = self.groups.get(&number) else {
            return;
        };
        if !group.is_left || group.join.is_some() || !group.running.is_empty() {
            return;
        }
        if self.has_notification_receive(number) {
            return self
                .wire
                .cancel_all(Purpose::NotificationReceive.context(number));
        }
        let Some(mut removed) = self.groups.remove(&number) else {
            return;
        };
        removed.discard_early(&mut self.channels);
        self.telemetry.groups.remove_group(removed.stats_slot);
        self.channels.release(&removed.channels);
        self.broken -= usize::from(removed.broken.is_some());
    }

    /// Writes the pending collectives and joins.
    #[cold]
    pub(super) fn write_pending(&mut self) {
        let mut pending = Vec::new();
        for group in self.groups.values_mut() {
            pending.extend(group.pending_join(&self.telemetry));
            let mut running = std::mem::take(&mut group.running);
            for running in &mut running {
                if running.waiting_since == 0 {
                    running.waiting_since = now();
                }
                pending.push(group.pending_collective(&self.telemetry, running));
            }
            group.running = running;
        }
        pending.sort_by_key(|pending| (pending.since, pending.sequence));
        self.telemetry.groups.write_pending(&pending);
    }

    /// Clears the pending collectives, because one of them has completed.
    #[inline]
    pub(super) fn clear_pending(&mut self) {
        if self.telemetry.groups.has_pending {
            self.telemetry.groups.write_pending(&[]);
        }
    }
}
