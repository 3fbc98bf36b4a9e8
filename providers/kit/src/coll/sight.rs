//! What others see of collectives: which wait, and for whom. It is written down when one takes long,
//! and at each step of a join.

use std::sync::Arc;

use selvedge::{Endpoint, Error, FiAddr, Info};

use super::engine::State;
use super::group::{Group, Running};
use super::members::Members;
use super::plan::Message;
use crate::sight::groups::{Awaited, Groups, Waiting};
use crate::sight::{name_of, now};

/// What is seen, and who knows what members are called.
#[derive(Debug)]
pub(super) struct Sight {
    pub(super) groups: Groups,
    members: Arc<dyn Members>,
}

/// Members of one collective that are named.
const NAMED: usize = 4;

impl Sight {
    pub(super) fn open(
        info: &Info,
        members: &Arc<dyn Members>,
        ep: &dyn Endpoint,
    ) -> Result<Self, Error> {
        let name = ep
            .address()
            .map_or_else(|_| String::new(), |it| name_of(&it));
        Ok(Self {
            groups: Groups::open(&info.fabric_attr.prov_name, &name)?,
            members: Arc::clone(members),
        })
    }

    fn name(&self, member: FiAddr) -> String {
        let address = self.members.member(member);
        address.map_or_else(|_| String::new(), |it| name_of(&it))
    }
}

impl State {
    /// Writes down what is waited for.
    #[cold]
    pub(super) fn show(&mut self) {
        let mut waiting = Vec::new();
        for group in self.groups.values_mut() {
            waiting.extend(group.join_shown(&self.sight));
            let mut running = std::mem::take(&mut group.running);
            for running in &mut running {
                if running.since == 0 {
                    running.since = now();
                }
                waiting.push(group.shown(&self.sight, running));
            }
            group.running = running;
        }
        waiting.sort_by_key(|waiting| (waiting.since, waiting.sequence));
        self.sight.groups.show(&waiting);
    }

    /// Takes back what was written down, because some of it has come.
    #[inline]
    pub(super) fn show_no_more(&mut self) {
        if self.sight.groups.is_shown {
            self.sight.groups.show(&[]);
        }
    }
}

impl Group {
    fn waiting(&self, since: u64) -> Waiting {
        Waiting {
            coll: None,
            group: self.number,
            sequence: 0,
            since,
            rank: self.rank as u32,
            members: self.members.len() as u32,
            count: 0,
            is_exact: true,
            is_outwards: false,
            awaited: Vec::new(),
        }
    }

    fn member(&self, sight: &Sight, rank: usize) -> Awaited {
        Awaited {
            rank: rank as u32,
            number: self.numbers[rank],
            name: sight.name(self.members[rank]),
        }
    }

    /// A join waits for those whose number has not come.
    fn join_shown(&self, sight: &Sight) -> Option<Waiting> {
        let join = self.join.as_ref()?;
        let missing = || self.others().filter(|&rank| self.numbers[rank].is_none());
        Some(Waiting {
            count: missing().count() as u32,
            awaited: missing()
                .take(NAMED)
                .map(|rank| self.member(sight, rank))
                .collect(),
            ..self.waiting(join.since)
        })
    }

    /// A collective waits for the messages of its round, or for room for its own.
    fn shown(&self, sight: &Sight, running: &Running) -> Waiting {
        let mut waiting = Waiting {
            coll: Some(running.coll),
            sequence: running.sequence,
            ..self.waiting(running.since)
        };
        let Some(round) = running.plan.rounds.get(running.round) else {
            return waiting;
        };
        let posted = running.posted.min(round.receives.len());
        let by_lane = running.awaited_peers();
        let is_message = |message: &&Message| {
            message.span.len > 0 && self.lane(message.peer, message.span.len).is_none()
        };
        let below: Vec<usize> = round.receives[..posted]
            .iter()
            .filter(is_message)
            .map(|message| message.peer)
            .collect();
        let open_below = running.open - by_lane.len().min(running.open);
        // Which of the endpoint's messages have come is not known here, only how many have not.
        waiting.is_exact = open_below == 0 || open_below == below.len();
        let mut awaited = by_lane;
        waiting.count = (awaited.len() + open_below.min(below.len())) as u32;
        if open_below > 0 {
            awaited.extend(below);
        }
        if awaited.is_empty() {
            let sent = running.posted.saturating_sub(round.receives.len());
            awaited.extend(
                round
                    .sends
                    .get(sent..)
                    .unwrap_or(&[])
                    .iter()
                    .map(|it| it.peer),
            );
            (waiting.count, waiting.is_outwards) = (awaited.len() as u32, true);
        }
        let named = awaited.into_iter().take(NAMED);
        waiting.awaited = named.map(|rank| self.member(sight, rank)).collect();
        waiting
    }
}
