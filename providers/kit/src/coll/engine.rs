//! What carries plans out: posts the messages of a round, and goes on when all of them are over.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustc_hash::FxHashMap;
use selvedge::cq::{Entry, ErrEntry};
use selvedge::{CompletionFlags, Context, Errno, FiAddr, OpFlags, Result};

use super::group::{Failure, Group, Running};
use super::lane::{self, Roads};
use super::letters;
use super::mail::{Mailbox, Note};
use super::memory::Memory;
use super::plan::{Message, Plan, Shape};
use super::sight::Sight;
use super::tag::{self, Number, Purpose};
use super::wire::{Events, Wire};
use crate::Ep;
use crate::atomic::Kernel;
use crate::cq::{Progress, Sink};
use crate::fork_guard::ForkGuarded;
use crate::wait::ArmOutcome;

/// The layer of one endpoint, as its queues and counters drive it.
pub(super) struct Engine {
    pub(super) state: ForkGuarded<State>,
    mail: Arc<Mailbox>,
    /// Whether there is anything to do without mail.
    is_busy: AtomicBool,
    /// Where collectives complete.
    pub(super) ep: Ep,
}

/// What the engine's lock protects. It is taken above the endpoint's.
#[derive(Debug)]
pub(super) struct State {
    pub(super) wire: Wire,
    pub(super) roads: Roads,
    pub(super) events: Events,
    pub(super) groups: FxHashMap<Number, Group>,
    pub(super) next_number: Number,
    /// Notices that are to be sent: to whom, with which tag, what, and for which group of ours.
    pub(super) alarms: Vec<(FiAddr, u64, u64, Number)>,
    /// Groups that are broken.
    pub(super) broken: usize,
    pub(super) running: usize,
    /// Something found a full queue.
    is_short: bool,
    /// Turns since something was over.
    pub(super) idle: u32,
    over: Vec<Over>,
    /// Those that went the short way, well.
    pub(super) well: Vec<(Context, OpFlags)>,
    letters: Vec<Note>,
    pub(super) sight: Sight,
}

/// A collective that is to be reported.
#[derive(Debug)]
struct Over {
    context: Context,
    flags: OpFlags,
    outcome: Result<(), Failure>,
}

/// A collective as it was posted, checked.
#[derive(Clone, Copy)]
pub(super) struct Post {
    pub(super) shape: Shape,
    pub(super) kernel: Option<Kernel>,
    pub(super) context: Context,
    pub(super) flags: OpFlags,
}

/// Collectives of a group that may be under way.
const MOST_RUNNING: usize = 1024;
/// Turns without anything until a group is looked after: some tenths of a millisecond.
const PATIENCE: u32 = 4096;
/// Looks for letters in one turn: what is driven besides takes longer.
const LOOKS: usize = 8;
/// Turns from one look for what nobody wants to the next.
const UNWANTED: u32 = 64;

impl Engine {
    pub(super) fn new(state: ForkGuarded<State>, mail: Arc<Mailbox>, ep: Ep) -> Self {
        Self {
            state,
            mail,
            is_busy: AtomicBool::new(false),
            ep,
        }
    }

    /// Does something, then what has come of it, and reports.
    pub(super) fn with<R>(
        &self,
        sink: &mut Sink<'_>,
        run: impl FnOnce(&mut State) -> Result<R>,
    ) -> Result<R> {
        let mut state = self.state.lock()?;
        let answer = run(&mut state);
        state.read(&self.mail);
        self.report(&mut state, sink);
        self.is_busy.store(state.is_busy(), Ordering::Relaxed);
        answer
    }

    #[inline]
    fn report(&self, state: &mut State, sink: &mut Sink<'_>) {
        while let Some((context, flags)) = state.well.pop() {
            self.report_well(context, flags, sink);
        }
        if !state.over.is_empty() {
            self.report_others(state, sink);
        }
    }

    #[inline]
    fn report_well(&self, context: Context, flags: OpFlags, sink: &mut Sink<'_>) {
        if self.ep.reports(flags) {
            sink.push(&self.ep.tx_cq, entry(context), FiAddr::UNSPEC);
        }
    }

    fn report_others(&self, state: &mut State, sink: &mut Sink<'_>) {
        for over in state.over.drain(..) {
            match over.outcome {
                Ok(()) => self.report_well(over.context, over.flags, sink),
                Err((errno, detail)) => {
                    let error = ErrEntry::new(entry(over.context), errno, detail);
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
        if self.mail.is_empty() && !self.is_busy.load(Ordering::Relaxed) {
            return 0;
        }
        let turned = self.with(sink, |state| {
            state.turn(&self.mail);
            Ok(())
        });
        usize::from(turned.is_ok())
    }

    fn arm(&self, _epoch: &mut u64) -> ArmOutcome {
        if !self.mail.is_empty() {
            self.woken();
            return ArmOutcome::Progressed;
        }
        let looked = self.with(&mut Sink::none(), |state| Ok(state.take_letters()));
        match looked {
            Ok(0) => {}
            Ok(_) => return ArmOutcome::Progressed,
            Err(_) => return ArmOutcome::UntilWoken,
        }
        let Ok(mut state) = self.state.lock() else {
            return ArmOutcome::UntilWoken;
        };
        if state.is_short {
            return ArmOutcome::AtMost(Duration::from_millis(1));
        }
        if state.running > 0 && state.idle < PATIENCE {
            state.idle = PATIENCE;
            state.look_after_all();
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
    pub(super) fn new(wire: Wire, roads: Roads, events: Events, sight: Sight) -> Self {
        Self {
            sight,
            wire,
            roads,
            events,
            groups: FxHashMap::default(),
            next_number: 0,
            alarms: Vec::new(),
            broken: 0,
            running: 0,
            is_short: false,
            idle: 0,
            over: Vec::new(),
            well: Vec::new(),
            letters: Vec::new(),
        }
    }

    fn is_busy(&self) -> bool {
        self.running > 0 || self.broken > 0 || self.is_short
    }

    /// Something found a full queue, and is to be tried again.
    pub(super) fn try_again(&mut self) {
        self.is_short = true;
    }

    fn turn(&mut self, mail: &Mailbox) {
        if std::mem::take(&mut self.is_short) {
            self.send_alarms();
            let numbers: Vec<_> = self.groups.keys().copied().collect();
            for number in numbers {
                self.go_on_joining(number);
                let running = self.groups.get(&number).map(|group| &group.running[..]);
                let running = running.unwrap_or_default().iter();
                for sequence in running.map(|it| it.sequence).collect::<Vec<_>>() {
                    self.advance(number, sequence);
                }
            }
        }
        if self.look_for_letters() > 0 {
            self.idle = 0;
        } else if mail.is_empty() {
            self.idle = self.idle.saturating_add(1);
            if self.running > 0 && self.idle == PATIENCE {
                self.look_after_all();
            }
        }
        if self.broken > 0 && self.idle.is_multiple_of(UNWANTED) {
            self.drop_unwanted();
        }
    }

    #[inline]
    fn look_for_letters(&mut self) -> usize {
        for _ in 1..LOOKS {
            let taken = self.take_letters();
            if taken > 0 || !self.roads.are_awaited() {
                return taken;
            }
        }
        self.take_letters()
    }

    fn look_after_all(&mut self) {
        self.hand_all_over();
        let waiting = self
            .groups
            .values()
            .filter(|group| !group.running.is_empty());
        let waiting: Vec<_> = waiting.map(|group| group.number).collect();
        waiting
            .into_iter()
            .for_each(|number| self.look_after(number));
        self.show();
    }

    /// Takes what the endpoint has reported.
    fn read(&mut self, mail: &Mailbox) {
        while !mail.is_empty() {
            self.idle = 0;
            let mut letters = std::mem::take(&mut self.letters);
            mail.take(&mut letters);
            for Note { context, outcome } in letters.drain(..) {
                self.told(Purpose::of(context), outcome);
            }
            self.letters = letters;
        }
    }

    fn told(&mut self, (purpose, number): (Purpose, Number), outcome: Result<usize, Failure>) {
        match (purpose, outcome) {
            (Purpose::Data(sequence), outcome) => self.message_over(number, sequence, outcome),
            (Purpose::JoinReceive(rank), outcome) => {
                self.heard_number(number, usize::from(rank), outcome);
            }
            (Purpose::JoinSend(rank), outcome) => {
                self.number_sent(number, usize::from(rank), outcome.err());
            }
            (Purpose::Watch, outcome) => self.noticed(number, outcome.is_ok_and(|len| len == 8)),
            (Purpose::Ping, Err((errno, detail))) => self.break_group(number, errno, &detail),
            // One was dropped; there may be more.
            (Purpose::Look, Ok(_)) => self.drop_unwanted_of(number),
            (Purpose::Look, Err(_)) | (Purpose::Alarm, _) => {}
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
        group.hand_over();
        let sequence = group.next_sequence;
        group.next_sequence = (sequence + 1) & tag::SEQUENCE;
        self.sight.groups.begun(group.sight, group.next_sequence);
        let plan = group.plan(&post.shape);
        let memory = memory(&post.shape, group, &plan);
        for &step in &plan.first {
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
            open: 0,
            awaited: 0,
            failure: None,
            has_pinged: false,
            since: 0,
            context: post.context,
            flags: post.flags,
        });
        self.running += 1;
        self.idle = 0;
        if sequence.is_multiple_of(UNWANTED) {
            self.drop_notices(number);
        }
        self.advance(number, sequence);
        self.take_letters();
    }

    /// Whether a group takes another collective now.
    pub(super) fn has_room(group: &Group) -> bool {
        group.running.len() < MOST_RUNNING
    }

    /// One message of a collective is over.
    fn message_over(&mut self, number: Number, sequence: u32, outcome: Result<usize, Failure>) {
        let Some(running) = self.running(number, sequence) else {
            return;
        };
        running.open = running.open.saturating_sub(1);
        match outcome {
            Ok(_) => self.advance(number, sequence),
            Err(failure) => self.lost(number, sequence, failure),
        }
    }

    fn running(&mut self, number: Number, sequence: u32) -> Option<&mut Running> {
        let group = self.groups.get_mut(&number)?;
        let mut running = group.running.iter_mut();
        running.find(|running| running.sequence == sequence)
    }

    /// Goes on as far as that goes without waiting.
    pub(super) fn advance(&mut self, number: Number, sequence: u32) {
        loop {
            let Some(group) = self.groups.get_mut(&number) else {
                return;
            };
            let Some(at) = group.running.iter().position(|it| it.sequence == sequence) else {
                return;
            };
            let running = &mut group.running[at];
            if running.failure.is_some() {
                return self.end_if_over(number, at);
            }
            let plan = Arc::clone(&running.plan);
            let Some(round) = plan.rounds.get(running.round) else {
                return self.end_if_over(number, at);
            };
            match post_round(&self.wire, &mut self.roads, group, at) {
                Ok(()) => {}
                Err((Errno::Again, _)) => return self.try_again(),
                Err(failure) => return self.lost(number, sequence, failure),
            }
            let running = &mut group.running[at];
            if running.open > 0 {
                return;
            }
            for &step in &round.then {
                running.memory.step(step, running.kernel.as_ref());
            }
            (running.round, running.posted) = (running.round + 1, 0);
        }
    }

    /// A message of a collective has failed, and with it the group.
    pub(super) fn lost(&mut self, number: Number, sequence: u32, (errno, detail): Failure) {
        let is_new = self
            .running(number, sequence)
            .is_some_and(|it| it.failure.is_none());
        if is_new {
            self.fail(number, sequence, (errno, detail.clone()));
            self.break_group(number, errno, &detail);
        } else if let Some(at) = self.place(number, sequence) {
            self.end_if_over(number, at);
        }
    }

    fn place(&self, number: Number, sequence: u32) -> Option<usize> {
        let running = self.groups.get(&number)?.running.iter();
        running.map(|it| it.sequence).position(|it| it == sequence)
    }

    /// Ends a collective with an error, as soon as nobody uses its memory any more.
    pub(super) fn fail(&mut self, number: Number, sequence: u32, failure: Failure) {
        let Some(group) = self.groups.get_mut(&number) else {
            return;
        };
        let mut running = group.running.iter_mut();
        let Some(running) = running.find(|it| it.sequence == sequence) else {
            return;
        };
        running.failure.get_or_insert(failure);
        running.give_up_letters(&group.lanes, &mut self.roads);
        self.wire.give_up(Purpose::Data(sequence).context(number));
        if let Some(at) = self.place(number, sequence) {
            self.end_if_over(number, at);
        }
    }

    fn end_if_over(&mut self, number: Number, at: usize) {
        let Some(group) = self.groups.get_mut(&number) else {
            return;
        };
        if group.running[at].open > 0 {
            return;
        }
        let Running {
            coll,
            memory,
            context,
            flags,
            failure,
            ..
        } = group.running.swap_remove(at);
        group.give_back(memory.scratch);
        let outcome = match failure {
            None => Ok(()),
            Some((errno, detail)) => Err((errno, format!("{coll:?} cannot end: {detail}"))),
        };
        self.over.push(Over {
            context,
            flags,
            outcome,
        });
        self.running -= 1;
        self.show_no_more();
        self.stop_listening(number);
        self.forget_if_left(number);
    }

    /// Forgets a group that the application has left, once nothing of it is under way.
    pub(super) fn forget_if_left(&mut self, number: Number) {
        let Some(group) = self.groups.get(&number) else {
            return;
        };
        if !group.is_left || group.join.is_some() || !group.running.is_empty() {
            return;
        }
        if self.listens(number) {
            return self.wire.give_up(Purpose::Watch.context(number));
        }
        let Some(mut gone) = self.groups.remove(&number) else {
            return;
        };
        gone.drop_early(&mut self.roads);
        self.sight.groups.leave(gone.sight);
        self.roads.leave(&gone.lanes);
        self.broken -= usize::from(gone.broken.is_some());
    }
}

/// Posts what is not posted yet of a collective's round: receives first, so that messages find them.
fn post_round(wire: &Wire, roads: &mut Roads, group: &mut Group, at: usize) -> Result<(), Failure> {
    let running = &group.running[at];
    let plan = Arc::clone(&running.plan);
    let (sequence, context) = (
        running.sequence,
        Purpose::Data(running.sequence).context(group.number),
    );
    let round = &plan.rounds[running.round];
    let receives = round.receives.len();
    while group.running[at].posted < receives + round.sends.len() {
        let posted = group.running[at].posted;
        let is_receive = posted < receives;
        let &Message { peer, label, span } = match is_receive {
            true => &round.receives[posted],
            false => &round.sends[posted - receives],
        };
        let named = |errno| lane::lost(peer, errno);
        if span.len > 0 {
            let (member, part) = (group.members[peer], group.running[at].memory.part(span));
            let lane = group.lane(peer, span.len);
            let completes = if is_receive {
                let tag = tag::data(group.number, sequence, label);
                match lane {
                    Some(lane) => letters::expect(roads, group, at, lane, posted)?,
                    None => {
                        let done = wire.receive(member, tag, part, context);
                        done.map(|()| true).map_err(named)?
                    }
                }
            } else {
                let theirs = group.numbers[peer]
                    .ok_or(Errno::OpBadState)
                    .map_err(named)?;
                let tag = tag::data(theirs, sequence, label);
                match lane {
                    Some(lane) => letters::send(roads, lane, tag, part).map(|()| false),
                    // Nobody need look after these once the collective is over.
                    None => wire.send_off(member, tag, part, context).map(|()| true),
                }
                .map_err(named)?
            };
            group.running[at].open += usize::from(completes);
        }
        group.running[at].posted += 1;
    }
    Ok(())
}
