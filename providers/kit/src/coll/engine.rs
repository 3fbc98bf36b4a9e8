//! The engine executes plans: it posts the messages of a round, and starts the next round when all
//! of them are complete.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustc_hash::FxHashMap;
use selvedge::cq::{Entry, ErrEntry};
use selvedge::{CompletionFlags, Context, Errno, FiAddr, OpFlags, Result};

use super::channel::{self, Channels};
use super::completions::{LayerCompletion, LayerCompletions};
use super::group::{Failure, Group, Running};
use super::memory::Memory;
use super::plan::{Message, Plan, Shape};
use super::small_message;
use super::tag::{self, Number, Purpose};
use super::telemetry::CollTelemetry;
use super::wire::{Events, Wire};
use crate::Ep;
use crate::atomic::Kernel;
use crate::cq::{Progress, Sink};
use crate::fork_guard::ForkGuarded;
use crate::wait::ArmOutcome;

/// The collective layer of one endpoint, which queues and counters drive.
pub(super) struct Engine {
    pub(super) state: ForkGuarded<State>,
    completions: Arc<LayerCompletions>,
    /// Whether there is work without a completion.
    is_busy: AtomicBool,
    /// The endpoint on whose queues collectives complete.
    pub(super) ep: Ep,
}

/// The state that the engine's lock protects. The engine takes its lock before the endpoint's.
#[derive(Debug)]
pub(super) struct State {
    pub(super) wire: Wire,
    pub(super) channels: Channels,
    pub(super) events: Events,
    pub(super) groups: FxHashMap<Number, Group>,
    pub(super) next_number: Number,
    /// Failure notifications to send: destination, tag, error, and the local number of the group.
    pub(super) failure_notifications: Vec<(FiAddr, u64, u64, Number)>,
    /// The number of broken groups.
    pub(super) broken: usize,
    pub(super) running: usize,
    /// Whether a post has to be retried, because a queue was full.
    needs_retry: bool,
    /// Progress calls since the last completion.
    pub(super) idle: u32,
    finished: Vec<FinishedCollective>,
    /// Successful collectives of the fast path that are not reported yet.
    pub(super) fast_finished: Vec<(Context, OpFlags)>,
    drained: Vec<LayerCompletion>,
    pub(super) telemetry: CollTelemetry,
}

/// A collective that is complete and not reported yet.
#[derive(Debug)]
struct FinishedCollective {
    context: Context,
    flags: OpFlags,
    outcome: Result<(), Failure>,
}

/// The checked arguments of a collective's post.
#[derive(Clone, Copy)]
pub(super) struct Post {
    pub(super) shape: Shape,
    pub(super) kernel: Option<Kernel>,
    pub(super) context: Context,
    pub(super) flags: OpFlags,
}

/// Collectives of a group that may run at a time.
const MAX_RUNNING: usize = 1024;
/// Progress calls without a completion until the engine checks whether members live: some tenths of
/// a millisecond.
const IDLE_LIMIT: u32 = 4096;
/// Polls of the channels in one progress call, because the rest of the call takes longer than a
/// poll.
const POLLS_PER_PROGRESS: usize = 8;
/// Progress calls between two attempts to discard messages of broken groups.
const DISCARD_INTERVAL: u32 = 64;

impl Engine {
    pub(super) fn new(
        state: ForkGuarded<State>,
        completions: Arc<LayerCompletions>,
        ep: Ep,
    ) -> Self {
        Self {
            state,
            completions,
            is_busy: AtomicBool::new(false),
            ep,
        }
    }

    /// Runs `run` under the lock, handles the resulting completions, and reports finished
    /// collectives.
    pub(super) fn with_state<R>(
        &self,
        sink: &mut Sink<'_>,
        run: impl FnOnce(&mut State) -> Result<R>,
    ) -> Result<R> {
        let mut state = self.state.lock()?;
        let result = run(&mut state);
        state.drain_completions(&self.completions);
        self.report(&mut state, sink);
        self.is_busy.store(state.is_busy(), Ordering::Relaxed);
        result
    }

    #[inline]
    fn report(&self, state: &mut State, sink: &mut Sink<'_>) {
        while let Some((context, flags)) = state.fast_finished.pop() {
            self.report_success(context, flags, sink);
        }
        if !state.finished.is_empty() {
            self.report_finished(state, sink);
        }
    }

    #[inline]
    fn report_success(&self, context: Context, flags: OpFlags, sink: &mut Sink<'_>) {
        if self.ep.reports(flags) {
            sink.push(&self.ep.tx_cq, entry(context), FiAddr::UNSPEC);
        }
    }

    fn report_finished(&self, state: &mut State, sink: &mut Sink<'_>) {
        for finished in state.finished.drain(..) {
            match finished.outcome {
                Ok(()) => self.report_success(finished.context, finished.flags, sink),
                Err((errno, detail)) => {
                    let error = ErrEntry::new(entry(finished.context), errno, detail);
                    self.ep.tx_cq.push_err(error);
                }
            }
        }
    }
}

#[inline]
fn entry(context: Context) -> Entry {
    Entry {
        context,
        flags: CompletionFlags::COLLECTIVE,
        ..Entry::default()
    }
}

impl Progress for Engine {
    #[inline]
    fn progress(&self, _budget: usize, sink: &mut Sink<'_>) -> usize {
        if self.completions.is_empty() && !self.is_busy.load(Ordering::Relaxed) {
            return 0;
        }
        let ran = self.with_state(sink, |state| {
            state.poll(&self.completions);
            Ok(())
        });
        usize::from(ran.is_ok())
    }

    fn arm(&self, _epoch: &mut u64) -> ArmOutcome {
        if !self.completions.is_empty() {
            self.woken();
            return ArmOutcome::Progressed;
        }
        let received = self.with_state(&mut Sink::none(), |state| Ok(state.poll_channels_once()));
        match received {
            Ok(0) => {}
            Ok(_) => return ArmOutcome::Progressed,
            Err(_) => return ArmOutcome::UntilWoken,
        }
        let Ok(mut state) = self.state.lock() else {
            return ArmOutcome::UntilWoken;
        };
        if state.needs_retry {
            return ArmOutcome::AtMost(Duration::from_millis(1));
        }
        if state.running > 0 && state.idle < IDLE_LIMIT {
            state.idle = IDLE_LIMIT;
            state.check_all_liveness();
            return ArmOutcome::Progressed;
        }
        match state.broken {
            0 => ArmOutcome::UntilWoken,
            _ => ArmOutcome::AtMost(Duration::from_millis(10)),
        }
    }

    fn woken(&self) {
        self.progress(0, &mut Sink::none());
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

impl State {
    pub(super) fn new(
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

    fn is_busy(&self) -> bool {
        self.running > 0 || self.broken > 0 || self.needs_retry
    }

    /// Schedules the retry of a post that found a full queue.
    pub(super) fn schedule_retry(&mut self) {
        self.needs_retry = true;
    }

    fn poll(&mut self, completions: &LayerCompletions) {
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

    fn check_all_liveness(&mut self) {
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
    fn drain_completions(&mut self, completions: &LayerCompletions) {
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

    /// Begins a collective.
    pub(super) fn start(
        &mut self,
        number: Number,
        post: Post,
        memory: impl FnOnce(&Shape, &mut Group, &Plan) -> Memory,
    ) {
        let Some(group) = self.groups.get_mut(&number) else {
            return;
        };
        group.move_to_slow_path();
        let sequence = group.next_sequence;
        group.next_sequence = (sequence + 1) & tag::SEQUENCE;
        self.telemetry
            .groups
            .set_next_sequence(group.stats_slot, group.next_sequence);
        let plan = group.plan(&post.shape);
        let memory = memory(&post.shape, group, &plan);
        for &step in &plan.initial {
            memory.step(step, post.kernel.as_ref());
        }
        group.running.push(Running {
            coll: post.shape.coll,
            sequence,
            plan,
            kernel: post.kernel,
            memory,
            round: 0,
            posted: 0,
            outstanding: 0,
            awaited: 0,
            failure: None,
            is_pinged: false,
            waiting_since: 0,
            context: post.context,
            flags: post.flags,
        });
        self.running += 1;
        self.idle = 0;
        if sequence.is_multiple_of(DISCARD_INTERVAL) {
            self.discard_notifications(number);
        }
        self.advance(number, sequence);
        self.poll_channels_once();
    }

    /// Whether the group has room for another collective.
    pub(super) fn has_room(group: &Group) -> bool {
        group.running.len() < MAX_RUNNING
    }

    /// Handles the completion of one message of a collective.
    fn complete_message(&mut self, number: Number, sequence: u32, outcome: Result<usize, Failure>) {
        let Some(running) = self.find_running(number, sequence) else {
            return;
        };
        running.outstanding = running.outstanding.saturating_sub(1);
        match outcome {
            Ok(_) => self.advance(number, sequence),
            Err(failure) => self.fail_collective_and_group(number, sequence, failure),
        }
    }

    fn find_running(&mut self, number: Number, sequence: u32) -> Option<&mut Running> {
        let group = self.groups.get_mut(&number)?;
        let mut running = group.running.iter_mut();
        running.find(|running| running.sequence == sequence)
    }

    /// Runs the rounds of a collective until one has to wait.
    pub(super) fn advance(&mut self, number: Number, sequence: u32) {
        loop {
            let Some(group) = self.groups.get_mut(&number) else {
                return;
            };
            let Some(index) = group.running.iter().position(|it| it.sequence == sequence) else {
                return;
            };
            let running = &mut group.running[index];
            if running.failure.is_some() {
                return self.finish_if_done(number, index);
            }
            let plan = Arc::clone(&running.plan);
            let Some(round) = plan.rounds.get(running.round) else {
                return self.finish_if_done(number, index);
            };
            match post_round(&self.wire, &mut self.channels, group, index) {
                Ok(()) => {}
                Err((Errno::Again, _)) => return self.schedule_retry(),
                Err(failure) => return self.fail_collective_and_group(number, sequence, failure),
            }
            let running = &mut group.running[index];
            if running.outstanding > 0 {
                return;
            }
            for &step in &round.local_steps {
                running.memory.step(step, running.kernel.as_ref());
            }
            (running.round, running.posted) = (running.round + 1, 0);
        }
    }

    /// Fails a collective and its group after one of its messages failed.
    pub(super) fn fail_collective_and_group(
        &mut self,
        number: Number,
        sequence: u32,
        (errno, detail): Failure,
    ) {
        let is_new = self
            .find_running(number, sequence)
            .is_some_and(|it| it.failure.is_none());
        if is_new {
            self.fail(number, sequence, (errno, detail.clone()));
            self.break_group(number, errno, &detail);
        } else if let Some(index) = self.position_of(number, sequence) {
            self.finish_if_done(number, index);
        }
    }

    fn position_of(&self, number: Number, sequence: u32) -> Option<usize> {
        let running = self.groups.get(&number)?.running.iter();
        running.map(|it| it.sequence).position(|it| it == sequence)
    }

    /// Fails a collective, and reports it when none of its messages uses its memory.
    pub(super) fn fail(&mut self, number: Number, sequence: u32, failure: Failure) {
        let Some(group) = self.groups.get_mut(&number) else {
            return;
        };
        let mut running = group.running.iter_mut();
        let Some(running) = running.find(|it| it.sequence == sequence) else {
            return;
        };
        running.failure.get_or_insert(failure);
        running.cancel_awaited_messages(&group.channels, &mut self.channels);
        self.wire
            .cancel_all(Purpose::Data(sequence).context(number));
        if let Some(index) = self.position_of(number, sequence) {
            self.finish_if_done(number, index);
        }
    }

    fn finish_if_done(&mut self, number: Number, index: usize) {
        let Some(group) = self.groups.get_mut(&number) else {
            return;
        };
        if group.running[index].outstanding > 0 {
            return;
        }
        let Running {
            coll,
            memory,
            context,
            flags,
            failure,
            ..
        } = group.running.swap_remove(index);
        group.recycle_scratch(memory.scratch);
        let outcome = match failure {
            None => Ok(()),
            Some((errno, detail)) => Err((errno, format!("{coll:?} failed: {detail}"))),
        };
        self.finished.push(FinishedCollective {
            context,
            flags,
            outcome,
        });
        self.running -= 1;
        self.clear_pending();
        self.cancel_notification_receive(number);
        self.remove_if_left(number);
    }

    /// Removes a group that the application has left, if it has no running collective or join.
    pub(super) fn remove_if_left(&mut self, number: Number) {
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
}

/// Posts the remaining messages of a collective's round. Receives come first, so that messages find
/// them.
fn post_round(
    wire: &Wire,
    channels: &mut Channels,
    group: &mut Group,
    index: usize,
) -> Result<(), Failure> {
    let running = &group.running[index];
    let plan = Arc::clone(&running.plan);
    let (sequence, context) = (
        running.sequence,
        Purpose::Data(running.sequence).context(group.number),
    );
    let round = &plan.rounds[running.round];
    let receives = round.receives.len();
    while group.running[index].posted < receives + round.sends.len() {
        let posted = group.running[index].posted;
        let is_receive = posted < receives;
        let &Message { peer, label, span } = match is_receive {
            true => &round.receives[posted],
            false => &round.sends[posted - receives],
        };
        let failure = |errno| channel::member_failure(peer, errno);
        if span.len > 0 {
            let (member, part) = (group.members[peer], group.running[index].memory.part(span));
            let channel = group.channel(peer, span.len);
            let completes = if is_receive {
                let tag = tag::data(group.number, sequence, label);
                match channel {
                    Some(channel) => {
                        small_message::receive_or_await(channels, group, index, channel, posted)?
                    }
                    None => {
                        let done = wire.receive(member, tag, part, context);
                        done.map(|()| true).map_err(failure)?
                    }
                }
            } else {
                let remote_number = group.numbers[peer]
                    .ok_or(Errno::OpBadState)
                    .map_err(failure)?;
                let tag = tag::data(remote_number, sequence, label);
                match channel {
                    Some(channel) => {
                        small_message::send(channels, channel, tag, part).map(|()| false)
                    }
                    // A tagged send is outstanding until it needs no further progress calls.
                    None => wire.send(member, tag, part, context).map(|()| true),
                }
                .map_err(failure)?
            };
            group.running[index].outstanding += usize::from(completes);
        }
        group.running[index].posted += 1;
    }
    Ok(())
}
