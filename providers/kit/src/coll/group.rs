//! Groups, their joins, and the running collectives of each.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use selvedge::collective::Op;
use selvedge::{Context, Errno, FiAddr, OpFlags};

use super::Failure;
use super::channel::SmallMessage;
use super::fast_collective::{FastCollective, FastRun};
use super::memory::{Memory, Scratch};
use super::plan::{Plan, Shape};
use super::tag::{self, Number};
use crate::atomic::Kernel;
use crate::telemetry::now;

/// A group that this endpoint has joined or is joining.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) number: Number,
    pub(super) members: Vec<FiAddr>,
    pub(super) rank: usize,
    /// The members' numbers for the group, by rank; `None` until received.
    pub(super) numbers: Vec<Option<Number>>,
    /// The join, until it is complete.
    pub(super) join: Option<Join>,
    pub(super) broken: Option<Failure>,
    /// Whether the application has left the group.
    pub(super) is_left: bool,
    pub(super) next_sequence: u32,
    /// The group's slot in the telemetry page.
    pub(super) stats_slot: Option<usize>,
    pub(super) running: Vec<Running>,
    pub(super) notification_receive: NotificationReceive,
    /// The channels to the members, by rank; empty if the provider has no channels.
    pub(super) channels: Vec<Option<u32>>,
    /// Messages that were received for collectives that have not begun at this member, by channel
    /// and tag.
    pub(super) early: FxHashMap<(u32, u64), SmallMessage>,
    /// Collectives that can run on the fast path, and the one that does.
    pub(super) fast_collectives: Vec<FastCollective>,
    pub(super) fast_run: Option<FastRun>,
    plans: Vec<(Shape, Arc<Plan>)>,
    spare_scratch: Option<Scratch>,
}

/// A collective that is running on the slow path.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) coll: Op,
    pub(super) sequence: u32,
    pub(super) plan: Arc<Plan>,
    pub(super) kernel: Option<Kernel>,
    pub(super) memory: Memory,
    /// The present round, and the number of its messages that are posted.
    pub(super) round: usize,
    pub(super) posted: usize,
    /// Messages that are posted and not complete.
    pub(super) outstanding: usize,
    /// Receives of the round that are awaited on channels, a bit each.
    pub(super) awaited: u32,
    pub(super) failure: Option<Failure>,
    pub(super) is_pinged: bool,
    /// The time at which the engine noticed that the collective waits, in nanoseconds; 0 before
    /// that.
    pub(super) waiting_since: u64,
    pub(super) context: Context,
    pub(super) flags: OpFlags,
}

/// The receive for notifications. The engine posts it only after a collective has waited for a
/// while, because the provider matches each message against the oldest receive first.
#[derive(Debug, Default)]
pub(super) struct NotificationReceive {
    pub(super) buffer: Option<Scratch>,
    pub(super) is_posted: bool,
}

/// Plans that a group remembers, because programs repeat collectives.
const MAX_PLANS: usize = 8;

impl Group {
    pub(super) fn new(number: Number, members: Vec<FiAddr>, rank: usize) -> Self {
        Self {
            numbers: vec![None; members.len()],
            number,
            members,
            rank,
            join: None,
            broken: None,
            is_left: false,
            next_sequence: 0,
            stats_slot: None,
            running: Vec::new(),
            notification_receive: NotificationReceive::default(),
            channels: Vec::new(),
            early: FxHashMap::default(),
            fast_collectives: Vec::new(),
            fast_run: None,
            plans: Vec::new(),
            spare_scratch: None,
        }
    }

    /// The ranks of the other members.
    pub(super) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let local_rank = self.rank;
        (0..self.members.len()).filter(move |&rank| rank != local_rank)
    }

    pub(super) fn plan(&mut self, shape: &Shape) -> Arc<Plan> {
        if let Some((_, plan)) = self.plans.iter().find(|(cached, _)| cached == shape) {
            return Arc::clone(plan);
        }
        let plan = Arc::new(Plan::new(shape));
        if self.plans.len() == MAX_PLANS {
            self.plans.remove(0);
        }
        self.plans.push((*shape, Arc::clone(&plan)));
        plan
    }

    pub(super) fn scratch(&mut self, len: usize) -> Scratch {
        match self.spare_scratch.take() {
            Some(spare_scratch) if spare_scratch.len() >= len => spare_scratch,
            _ => Scratch::new(len),
        }
    }

    /// Keeps scratch memory for the next collective, unless it is large.
    pub(super) fn recycle_scratch(&mut self, scratch: Scratch) {
        const MAX_RECYCLED: usize = 64 << 10;
        if scratch.len() <= MAX_RECYCLED {
            self.spare_scratch = Some(scratch);
        }
    }
}

/// A join that is not complete.
#[derive(Debug)]
pub(super) struct Join {
    pub(super) context: Context,
    pub(super) tag: u64,
    /// The members' numbers by rank. The member's own number is in its slot and is sent from there.
    pub(super) words: Scratch,
    /// The ranks to which the number was not sent yet, the next one last.
    pub(super) unsent: Vec<usize>,
    /// The ranks whose receives are not posted yet, the next one last.
    pub(super) unposted: Vec<usize>,
    /// Messages that are posted and not complete.
    pub(super) outstanding: usize,
    /// The time at which the join began, in nanoseconds of the system's monotonic clock.
    pub(super) started: u64,
    pub(super) failure: Option<Failure>,
}

impl Join {
    pub(super) fn new(group: &Group, key: u32, context: Context) -> Self {
        let words = Scratch::new(group.members.len() * 8);
        words.set_word(group.rank, u64::from(group.number));
        let mut others: Vec<_> = group.others().collect();
        others.reverse();
        Self {
            context,
            tag: tag::join(group.members.len(), key),
            words,
            unsent: others.clone(),
            unposted: others,
            outstanding: 0,
            started: now(),
            failure: None,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.unsent.is_empty() && self.unposted.is_empty() && self.outstanding == 0
    }

    /// Records the first failure.
    pub(super) fn set_failure(&mut self, errno: Errno, detail: String) {
        self.failure.get_or_insert((errno, detail));
    }
}
