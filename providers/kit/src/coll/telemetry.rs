//! Telemetry of collectives: the pending ones and the members that they wait for. The layer writes
//! the telemetry page when a collective takes long, and at each step of a join.

use std::sync::Arc;

use selvedge::{Endpoint, Error, FiAddr, Info};

use super::engine::State;
use super::group::{Group, Running};
use super::members::Members;
use super::plan::Message;
use crate::telemetry::groups::{AwaitedMember, GroupRecorder, PendingCollective};
use crate::telemetry::{endpoint_name, now};

/// The telemetry page of an endpoint's groups, and the address vector with the members' names.
#[derive(Debug)]
pub(super) struct CollTelemetry {
    pub(super) groups: GroupRecorder,
    members: Arc<dyn Members>,
}

/// The largest number of members that the page names for one collective.
const MAX_NAMED: usize = 4;

impl CollTelemetry {
    pub(super) fn open(
        info: &Info,
        members: &Arc<dyn Members>,
        ep: &dyn Endpoint,
    ) -> Result<Self, Error> {
        let name = ep
            .address()
            .map_or_else(|_| String::new(), |it| endpoint_name(&it));
        Ok(Self {
            groups: GroupRecorder::open(&info.fabric_attr.prov_name, &name)?,
            members: Arc::clone(members),
        })
    }

    fn name(&self, member: FiAddr) -> String {
        let address = self.members.member(member);
        address.map_or_else(|_| String::new(), |it| endpoint_name(&it))
    }
}

impl State {
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

impl Group {
    fn pending_base(&self, since: u64) -> PendingCollective {
        PendingCollective {
            coll: None,
            group: self.number,
            sequence: 0,
            since,
            rank: self.rank as u32,
            members: self.members.len() as u32,
            count: 0,
            is_exact: true,
            awaits_room: false,
            awaited: Vec::new(),
        }
    }

    fn member(&self, telemetry: &CollTelemetry, rank: usize) -> AwaitedMember {
        AwaitedMember {
            rank: rank as u32,
            number: self.numbers[rank],
            name: telemetry.name(self.members[rank]),
        }
    }

    /// The entry of a join, which waits for the members whose number was not received.
    fn pending_join(&self, telemetry: &CollTelemetry) -> Option<PendingCollective> {
        let join = self.join.as_ref()?;
        let missing = || self.others().filter(|&rank| self.numbers[rank].is_none());
        Some(PendingCollective {
            count: missing().count() as u32,
            awaited: missing()
                .take(MAX_NAMED)
                .map(|rank| self.member(telemetry, rank))
                .collect(),
            ..self.pending_base(join.started)
        })
    }

    /// The entry of a collective, which waits for the messages of its round, or for room to send
    /// its own.
    fn pending_collective(
        &self,
        telemetry: &CollTelemetry,
        running: &Running,
    ) -> PendingCollective {
        let mut pending = PendingCollective {
            coll: Some(running.coll),
            sequence: running.sequence,
            ..self.pending_base(running.waiting_since)
        };
        let Some(round) = running.plan.rounds.get(running.round) else {
            return pending;
        };
        let posted = running.posted.min(round.receives.len());
        let on_channels = running.awaited_peers();
        let is_on_endpoint = |message: &&Message| {
            message.span.len > 0 && self.channel(message.peer, message.span.len).is_none()
        };
        let on_endpoint: Vec<usize> = round.receives[..posted]
            .iter()
            .filter(is_on_endpoint)
            .map(|message| message.peer)
            .collect();
        let outstanding_on_endpoint =
            running.outstanding - on_channels.len().min(running.outstanding);
        // The engine counts the outstanding messages of the endpoint and does not track which
        // messages they are.
        pending.is_exact =
            outstanding_on_endpoint == 0 || outstanding_on_endpoint == on_endpoint.len();
        let mut awaited = on_channels;
        pending.count = (awaited.len() + outstanding_on_endpoint.min(on_endpoint.len())) as u32;
        if outstanding_on_endpoint > 0 {
            awaited.extend(on_endpoint);
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
            (pending.count, pending.awaits_room) = (awaited.len() as u32, true);
        }
        let named = awaited.into_iter().take(MAX_NAMED);
        pending.awaited = named.map(|rank| self.member(telemetry, rank)).collect();
        pending
    }
}
