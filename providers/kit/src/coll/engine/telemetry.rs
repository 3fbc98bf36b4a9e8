//! Telemetry of collectives: the pending ones and the members that they wait for. The layer writes
//! the telemetry page when a collective takes long, and at each step of a join.

use std::sync::Arc;

use selvedge::{Endpoint, Error, FiAddr, Info};

use crate::coll::group::{Group, Running};
use crate::coll::members::Members;
use crate::coll::plan::Message;
use crate::telemetry::endpoint_name;
use crate::telemetry::groups::{AwaitedMember, GroupRecorder, PendingCollective};

/// The telemetry page of an endpoint's groups, and the address vector with the members' names.
#[derive(Debug)]
pub(in crate::coll) struct CollTelemetry {
    pub(in crate::coll) groups: GroupRecorder,
    members: Arc<dyn Members>,
}

/// The largest number of members that the page names for one collective.
const MAX_NAMED: usize = 4;

impl CollTelemetry {
    pub(in crate::coll) fn open(
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
    pub(super) fn pending_join(&self, telemetry: &CollTelemetry) -> Option<PendingCollective> {
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
    pub(super) fn pending_collective(
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
