//! `Peer`: an endpoint's state for one peer.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustc_hash::FxHashMap;
use selvedge::{Errno, FiAddr};
use selvedge_kit::Report;
use selvedge_kit::auth::proof::Initiator;
use selvedge_kit::srx::Source;

use crate::atomic::Backlog;
use crate::connect::accept_limiter::BacklogMark;
use crate::connect::connection::Connection;
use crate::matching::lent::views::Views;
use crate::memory::siblings::Sibling;
use crate::memory::special::PeerBlocks;
use crate::peers::name::Name;
use crate::peers::outbox::{Inbox, Outbox};
use crate::rma::DeferredOp;
use crate::rma::remote_memory::MappedRegions;
use crate::rma::remote_memory::PeerKeys;
use crate::smr::bounce::{BounceReceiver, Filled};
use crate::smr::cmd_queue::Slot;
use crate::smr::poll_state::WakeUp;
use crate::smr::resp_queue::Resp;
use crate::transfers::cma::CmaProcess;
use crate::transfers::cmd::ProtocolError;
use crate::transfers::incoming::Incoming;
use crate::transfers::protocol_selector::{ProtocolSelector, RecentSources};

/// One peer, identified by its name. A peer may die and restart: see [`Peer::incarnation`]. The
/// slot of a disconnected peer may be reused for another peer.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) name: Name,
    /// The slot in the table of peers.
    pub(crate) index: u32,
    pub(crate) state: State,
    /// The number of ended incarnations: an operation of an earlier incarnation gets no response in
    /// a later one.
    pub(crate) incarnation: u32,
    /// The random number of the present incarnation, once its hello was received.
    pub(crate) incarnation_id: Option<u128>,
    pub(crate) out: Option<Outbox>,
    pub(crate) inbox: Option<Inbox>,
    /// A violation of the protocol, for which the next progress call disconnects the peer.
    pub(crate) fault: Option<ProtocolError>,
    pub(crate) connections: Vec<Connection>,
    pub(crate) pidfd: Option<OwnedFd>,
    /// The peer's process for cross-memory attach, if the system permits it.
    pub(crate) cma: Option<CmaProcess>,
    /// Atomics to and from the peer that cannot proceed yet.
    pub(crate) atomics: Backlog,
    /// Reports of committed sends, which complete when the peer exists.
    pub(crate) held_sends: Vec<Report>,
    /// One-sided and atomic operations that wait for the peer's hello.
    pub(crate) deferred: VecDeque<DeferredOp>,
    /// Whether one-sided operations need the slow path: the peer requests notifications, or a
    /// fenced operation may be outstanding.
    pub(crate) needs_slow_path: bool,
    /// Whether a fenced operation may be outstanding.
    pub(crate) is_fenced: bool,
    /// Whether the peer requests notifications of one-sided operations that this endpoint executes
    /// directly.
    pub(crate) wants_notifications: bool,
    /// The peer as an endpoint of this domain, if the peer is or was one.
    pub(crate) sibling: Option<Arc<Sibling>>,
    /// The state for the next incarnation, while the previous one is drained.
    pub(crate) suspended: Option<Box<SuspendedState>>,
    /// Whether the next incarnation exists already: directed receives then stay posted when this
    /// one ends.
    pub(crate) has_next_incarnation: bool,
    /// The connection to the next incarnation, while earlier ones are drained.
    pub(crate) next_connection: Option<NextConnection>,
    /// The position of the accept backlog when the last attempt to connect failed.
    pub(crate) search_mark: Option<BacklogMark>,
    /// Large messages of the peer, by the peer's `msg_id`.
    pub(crate) incoming: FxHashMap<u32, Incoming>,
    pub(crate) bounce: Option<BounceReceiver>,
    /// Messages that the peer has lent to this endpoint. They outlive the peer.
    pub(crate) views: Views,
    /// Aborted messages to the peer whose abort packet was not sent yet, with the reason.
    pub(crate) aborts: VecDeque<(u32, Errno)>,
    /// Segments of messages whose commands were not taken yet.
    pub(crate) early_segments: Vec<Filled>,
    pub(crate) protocol_selector: ProtocolSelector,
    /// The buffers from which the peer sent last.
    pub(crate) recent_sources: RecentSources,
    /// The peer's blocks of special memory.
    pub(crate) blocks: PeerBlocks,
    /// The regions of special memory that one-sided operations used last.
    pub(crate) mapped_regions: MappedRegions,
    /// The number of packets that the peer may have sent before a transfer began to wait for one of
    /// them.
    pub(crate) packets_ahead: usize,
    /// The peer's key table.
    pub(crate) keys: PeerKeys,
    /// The number of bytes of the peer's unexpected messages.
    pub(crate) kept_bytes: usize,
    /// Whether every progress call polls this peer.
    pub(crate) is_polled: bool,
    /// Whether every progress call advances transfers with this peer.
    pub(crate) is_active: bool,
    /// Whether the peer has rung the doorbell and was not polled since.
    pub(crate) has_rung: bool,
    /// Whether commands of an unfinished run were committed without an announcement.
    pub(crate) has_unannounced_commands: bool,
    /// The wake-up that is requested from the peer.
    pub(crate) wake_up: WakeUp,
    /// Whether a wake-up was requested from the peer, and the peer was not polled since.
    pub(crate) is_unpolled_since_arm: bool,
    /// Cache of the address in completions.
    fi_addr: FiAddr,
    /// The epoch of the address vector for which `fi_addr` is valid.
    fi_epoch: u64,
}

/// The state of the connection to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Never connected.
    Idle,
    /// Messages wait for the peer, and no endpoint has its name yet.
    Waiting {
        /// The time at which the attempt to connect fails.
        deadline: Instant,
    },
    /// The peer has this endpoint's outbox.
    Connected,
    /// The peer has this endpoint's outbox. One-sided operations wait for the peer's hello, and all
    /// other operations wait behind them.
    Backlogged,
    /// The peer is disconnected, and commands that it had committed wait for room.
    Draining {
        errno: Errno,
        reason: &'static str,
        /// The position behind its last command.
        end: u64,
    },
    /// The peer is disconnected; a later post tries to connect again.
    Disconnected,
}

impl Peer {
    pub(crate) fn new(name: Name, index: u32, sibling: Option<Arc<Sibling>>) -> Self {
        Self {
            sibling,
            name,
            index,
            state: State::Idle,
            incarnation: 0,
            incarnation_id: None,
            out: None,
            inbox: None,
            fault: None,
            connections: Vec::new(),
            pidfd: None,
            cma: None,
            atomics: Backlog::default(),
            held_sends: Vec::new(),
            deferred: VecDeque::new(),
            needs_slow_path: false,
            is_fenced: false,
            wants_notifications: false,
            suspended: None,
            has_next_incarnation: false,
            next_connection: None,
            search_mark: None,
            incoming: FxHashMap::default(),
            bounce: None,
            views: Views::default(),
            aborts: VecDeque::new(),
            early_segments: Vec::new(),
            protocol_selector: ProtocolSelector::default(),
            recent_sources: RecentSources::default(),
            blocks: PeerBlocks::default(),
            mapped_regions: MappedRegions::default(),
            packets_ahead: 0,
            keys: PeerKeys::default(),
            kept_bytes: 0,
            is_polled: false,
            is_active: false,
            has_rung: false,
            has_unannounced_commands: false,
            wake_up: WakeUp::default(),
            is_unpolled_since_arm: false,
            fi_addr: FiAddr::UNSPEC,
            fi_epoch: u64::MAX,
        }
    }

    /// Reuses the slot for a peer with another name.
    pub(crate) fn reset_for(&mut self, name: Name, sibling: Option<Arc<Sibling>>) {
        let (incarnation, is_active, has_rung) = (self.incarnation, self.is_active, self.has_rung);
        let views = std::mem::take(&mut self.views);
        *self = Self {
            incarnation,
            views,
            is_active,
            has_rung,
            ..Self::new(name, self.index, sibling)
        };
    }

    /// Returns the peer as the source of messages.
    #[inline(always)]
    pub(crate) fn source(&self) -> Source {
        Source(self.index)
    }

    /// Returns the peer's address in completions: its index in the address vector, or its user id.
    /// The address is cached until the address vector changes.
    #[inline]
    pub(crate) fn fi_addr(&mut self, av: &crate::provider::av::Av) -> FiAddr {
        let epoch = av.epoch();
        if self.fi_epoch != epoch {
            self.refresh_address(av, epoch);
        }
        self.fi_addr
    }

    /// Looks the address up, and publishes the peer's index to the peer.
    #[cold]
    fn refresh_address(&mut self, av: &crate::provider::av::Av, epoch: u64) {
        self.fi_epoch = epoch;
        self.fi_addr = av.source(&self.name);
        if let Some(out) = &self.out {
            out.region.set_peer_index(av.find(&self.name).0);
        }
    }

    /// Prefetches the first cache lines of the next command to the peer, which the peer polls. The
    /// lines then move while the message that has just arrived is processed, before a reply needs
    /// them.
    #[inline(always)]
    pub(crate) fn prefetch_response_slot(&self) {
        if let Some(out) = &self.out {
            out.prefetch_next_command();
        }
    }

    /// Publishes the credit for consumed commands, if enough were consumed.
    #[inline(always)]
    pub(crate) fn publish_credit(&mut self) {
        if let (Some(inbox), Some(out)) = (&mut self.inbox, &self.out) {
            inbox.publish(&out.credit);
        }
    }

    /// Reserves a command slot and `len` bytes of the inject pool. Returns the offset of these
    /// bytes. The caller must commit a command in the slot next ([`Self::slot`]).
    ///
    /// # Errors
    /// [`Errno::NotConn`] without an outbox; [`Errno::Again`] while there is no room, and nothing
    /// is reserved then; [`Errno::Proto`] when the peer's credit is invalid.
    #[inline]
    pub(crate) fn reserve(&mut self, len: usize) -> Result<usize, Errno> {
        let out = self.out.as_mut().ok_or(Errno::NotConn)?;
        if out.tx.room() == 0 {
            out.refresh(self.inbox.as_ref())?;
            if out.tx.room() == 0 {
                return Err(Errno::Again);
            }
        }
        let offset = match len {
            0 => 0,
            _ => out.claim_payload(len, self.inbox.as_ref())?,
        };
        out.mark(out.tx.position());
        Ok(offset)
    }

    /// Whether the peer has committed commands that were not taken yet.
    #[inline(always)]
    pub(crate) fn has_commands(&self) -> bool {
        let inbox = self.inbox.as_ref();
        inbox.is_some_and(|inbox| inbox.rx.peek().is_some())
    }

    /// Whether an operation waits for room. The peer makes room without waking the endpoint.
    pub(crate) fn waits_for_room(&self) -> bool {
        let is_settled =
            self.deferred.is_empty() && self.atomics.is_empty() && self.aborts.is_empty();
        !is_settled || self.state == State::Backlogged || self.has_unannounced_segments()
    }

    /// Whether bounce memory was not announced to the peer yet.
    pub(crate) fn has_unannounced_segments(&self) -> bool {
        self.out
            .as_ref()
            .is_some_and(|out| out.unannounced.is_some())
    }

    /// Whether this endpoint knows of no free command slot.
    pub(crate) fn is_full(&self) -> bool {
        self.out.as_ref().is_some_and(|out| out.tx.room() == 0)
    }

    /// Reserves a slot for the result of a command of the peer. Returns `false` while no slot is
    /// free, which does not happen as long as both endpoints keep to the protocol.
    pub(crate) fn reserve_response(&mut self) -> bool {
        let Some(out) = &mut self.out else {
            return false;
        };
        if out.tx.claim_reserved().is_none() && out.refresh(self.inbox.as_ref()).is_err() {
            return false;
        }
        let has_room = out.tx.claim_reserved().is_some();
        if has_room {
            out.mark(out.tx.position());
        }
        has_room
    }

    /// Claims the slot that [`Self::reserve_response`] has reserved.
    #[expect(
        clippy::expect_used,
        reason = "the reservation is state of this endpoint alone"
    )]
    pub(crate) fn response_slot(&mut self) -> Slot<'_> {
        let slot = self.outbox().tx.claim_reserved();
        slot.expect("a slot was reserved")
    }

    /// Claims the slot that [`Self::reserve`] has reserved.
    #[expect(
        clippy::expect_used,
        reason = "the reservation is state of this endpoint alone"
    )]
    #[inline]
    pub(crate) fn slot(&mut self) -> Slot<'_> {
        self.outbox().tx.claim().expect("a slot was reserved")
    }

    /// Returns the outbox. The caller has reserved a slot in it.
    #[expect(
        clippy::expect_used,
        reason = "the reservation is state of this endpoint alone"
    )]
    #[inline]
    pub(crate) fn outbox(&mut self) -> &mut Outbox {
        self.out
            .as_mut()
            .expect("a slot was reserved in the outbox")
    }

    /// Withdraws the request for a wake-up, and publishes whether every progress call polls the
    /// peer.
    pub(crate) fn disarm_wake_up(&mut self, is_polled: bool) {
        match &self.out {
            Some(out) => self.wake_up.disarm(&out.region, is_polled),
            None => self.wake_up.spend(),
        }
    }

    /// Returns the number of operations that wait for the peer's response.
    pub(crate) fn outstanding(&self) -> usize {
        self.out.as_ref().map_or(0, |out| out.ops.len())
    }

    /// Returns the number of messages that are lent to the peer.
    pub(crate) fn lent(&self) -> usize {
        self.out.as_ref().map_or(0, |out| out.ops.lent())
    }

    /// Whether an operation to the peer is incomplete.
    pub(crate) fn has_unfinished(&self) -> bool {
        let is_idle =
            self.held_sends.is_empty() && self.deferred.is_empty() && self.atomics.is_idle();
        !is_idle || self.outstanding() > 0
    }

    /// Responds to a command of the peer, if the incarnation that sent the command has not ended.
    pub(crate) fn respond(&mut self, incarnation: u32, msg_id: u32, status: u32) {
        if self.incarnation == incarnation
            && let Some(out) = &mut self.out
        {
            out.resp.push(Resp { msg_id, status });
            self.wake();
        }
    }

    /// Whether all active transfers with the peer are sends that wait for its responses.
    pub(crate) fn awaits_only_responses(&self) -> bool {
        let is_settled = self.incoming.is_empty() && self.bounce.is_none() && self.fault.is_none();
        let is_sent = |out: &Outbox| out.streams.is_empty() && out.unannounced.is_none();
        is_settled
            && !self.waits_for_room()
            && !self.has_unannounced_commands
            && self.packets_ahead == 0
            && self.out.as_ref().is_some_and(is_sent)
    }

    /// Whether a transfer in either direction needs progress beyond polling commands.
    pub(crate) fn has_transfers(&self) -> bool {
        let sending = self.out.as_ref().is_some_and(|out| !out.ops.is_empty());
        let is_idle =
            self.incoming.is_empty() && self.deferred.is_empty() && self.atomics.is_empty();
        sending || !is_idle || self.has_unannounced_commands || !self.aborts.is_empty()
    }
}

/// The state for an incarnation that has not responded yet, suspended while an earlier incarnation
/// is drained.
#[derive(Debug)]
pub(crate) struct SuspendedState {
    state: State,
    out: Option<Outbox>,
    connections: Vec<Connection>,
    pidfd: Option<OwnedFd>,
    atomics: Backlog,
    held_sends: Vec<Report>,
    deferred: VecDeque<DeferredOp>,
    needs_slow_path: bool,
    is_fenced: bool,
}

impl SuspendedState {
    /// Returns the state of the connection, and the reports of sends that wait for it.
    pub(crate) fn state_and_sends(&self) -> (&State, &[Report]) {
        (&self.state, &self.held_sends)
    }

    /// Closes the region, by which the peer recognizes that the endpoint has closed.
    pub(crate) fn close(&self) {
        if let Some(out) = &self.out {
            out.region.close();
        }
    }
}

impl Peer {
    /// Whether a key proof with the next incarnation has begun.
    pub(crate) fn awaits_key_proof(&self) -> bool {
        self.next_connection
            .as_ref()
            .is_some_and(|next| next.proof.is_some())
    }

    /// Suspends the state for the next incarnation. The peer is then in the state before the first
    /// send.
    pub(crate) fn suspend_next_incarnation(&mut self) {
        self.has_next_incarnation = true;
        self.suspended = Some(Box::new(SuspendedState {
            state: std::mem::replace(&mut self.state, State::Idle),
            out: self.out.take(),
            connections: std::mem::take(&mut self.connections),
            pidfd: self.pidfd.take(),
            atomics: std::mem::take(&mut self.atomics),
            held_sends: std::mem::take(&mut self.held_sends),
            deferred: std::mem::take(&mut self.deferred),
            needs_slow_path: std::mem::take(&mut self.needs_slow_path),
            is_fenced: std::mem::take(&mut self.is_fenced),
        }));
    }

    /// Restores the state for the next incarnation.
    pub(crate) fn restore(&mut self, saved: SuspendedState) {
        self.state = saved.state;
        self.out = saved.out;
        self.connections = saved.connections;
        self.pidfd = saved.pidfd;
        self.atomics = saved.atomics;
        self.held_sends = saved.held_sends;
        self.deferred = saved.deferred;
        self.needs_slow_path = saved.needs_slow_path;
        self.is_fenced = saved.is_fenced;
    }
}

/// A connection to the next incarnation, which waits until earlier incarnations are drained.
#[derive(Debug)]
pub(crate) struct NextConnection {
    pub(crate) connection: Connection,
    /// The position of the accept backlog when the connection was made. Connections of earlier
    /// incarnations precede it.
    pub(crate) mark: BacklogMark,
    /// The state of the key proof, once it was requested.
    pub(crate) proof: Option<Box<KeyProof>>,
}

/// The state of a requested key proof.
#[derive(Debug)]
pub(crate) struct KeyProof {
    pub(crate) initiator: Initiator,
    /// The time of the key request.
    pub(crate) since: Instant,
}
