//! The rounds of a collective on the slow path, from its post to its report.

use std::sync::Arc;

use selvedge::{Context, Errno, OpFlags};

use super::small_message;
use super::state::{DISCARD_INTERVAL, FinishedCollective, State};
use crate::atomic::Kernel;
use crate::coll::Failure;
use crate::coll::channel::{self, Channels};
use crate::coll::group::{Group, Running};
use crate::coll::memory::Memory;
use crate::coll::plan::{Message, Plan, Shape};
use crate::coll::tag::{self, Number, Purpose};
use crate::coll::wire::Wire;

/// The checked arguments of a collective's post.
#[derive(Clone, Copy)]
pub(in crate::coll) struct Post {
    pub(in crate::coll) shape: Shape,
    pub(in crate::coll) kernel: Option<Kernel>,
    pub(in crate::coll) context: Context,
    pub(in crate::coll) flags: OpFlags,
}

/// Collectives of a group that may run at a time.
const MAX_RUNNING: usize = 1024;
impl State {
    /// Begins a collective.
    pub(in crate::coll) fn start(
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
    pub(in crate::coll) fn has_room(group: &Group) -> bool {
        group.running.len() < MAX_RUNNING
    }

    /// Handles the completion of one message of a collective.
    pub(super) fn complete_message(
        &mut self,
        number: Number,
        sequence: u32,
        outcome: Result<usize, Failure>,
    ) {
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
        let &Message { peer, label, span } = if is_receive {
            &round.receives[posted]
        } else {
            &round.sends[posted - receives]
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
