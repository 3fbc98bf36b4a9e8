//! `Peer`: what an endpoint knows of one other endpoint that it talks to.

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
use crate::connect::intake::Mark;
use crate::connect::rendezvous::Link;
use crate::memory::siblings::Sibling;
use crate::memory::special::PeerBlocks;
use crate::peers::name::Name;
use crate::peers::outbox::{Inbox, Outbox};
use crate::rma::DeferredOp;
use crate::rma::remote_memory::MappedRegions;
use crate::rma::remote_memory::PeerKeys;
use crate::smr::attention::WakeUp;
use crate::smr::bounce::{BounceReceiver, Filled};
use crate::smr::cmd_queue::Slot;
use crate::smr::resp_queue::Resp;
use crate::transfers::cma::Target;
use crate::transfers::cmd::ProtocolError;
use crate::transfers::incoming::Incoming;
use crate::transfers::protocol_selector::ProtocolSelector;

/// One other endpoint, under its name. It may die and come back: see [`Peer::life`]. Once it is gone
/// for good, another endpoint may take its place.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) name: Name,
    /// Its place in the table of peers.
    pub(crate) index: u32,
    pub(crate) state: State,
    /// Counts incarnations: what belongs to an earlier life is not answered in a later one.
    pub(crate) life: u32,
    /// The peer's own number of its life, once it has said hello.
    pub(crate) incarnation: Option<u128>,
    pub(crate) out: Option<Outbox>,
    pub(crate) inbox: Option<Inbox>,
    /// How the peer has broken the protocol: it is cut off at the next turn of progress.
    pub(crate) fault: Option<ProtocolError>,
    pub(crate) links: Vec<Link>,
    pub(crate) pidfd: Option<OwnedFd>,
    /// The process to copy from, where that is allowed.
    pub(crate) cma: Option<Target>,
    /// Atomics to it and of it that wait for something.
    pub(crate) atomics: Backlog,
    /// Sends that wait for the peer to exist.
    pub(crate) held: Vec<Report>,
    /// One-sided operations that wait for the peer's hello, and what came behind them.
    pub(crate) later: VecDeque<DeferredOp>,
    /// Whether a one-sided operation takes more than a copy: the peer is to be told of it, or it has
    /// to come behind a fenced one.
    pub(crate) is_careful: bool,
    /// Whether a fenced operation may not be over.
    pub(crate) is_fenced: bool,
    /// Whether the peer counts what one-sided operations do without it.
    pub(crate) wants_notices: bool,
    /// The peer as an endpoint of this domain, if it is or was one.
    pub(crate) sibling: Option<Arc<Sibling>>,
    /// What is meant for its next life, while this one is heard.
    pub(crate) aside: Option<Box<Aside>>,
    /// Whether this life has a next one, for which receives from it wait when it is over.
    pub(crate) has_next: bool,
    /// Its next life, which earlier ones are heard before.
    pub(crate) next: Option<Next>,
    /// The connections that waited when it was last sought in vain.
    pub(crate) sought_at: Option<Mark>,
    /// Large messages of the peer, by its numbers for them.
    pub(crate) incoming: FxHashMap<u32, Incoming>,
    pub(crate) bounce: Option<BounceReceiver>,
    /// Messages to it of which no bytes will come, and why: it was not told yet.
    pub(crate) aborts: VecDeque<(u32, Errno)>,
    /// Segments of messages whose commands have not been read yet.
    pub(crate) early: Vec<Filled>,
    pub(crate) protocol_selector: ProtocolSelector,
    /// Its special memory.
    pub(crate) blocks: PeerBlocks,
    /// What of it our one-sided operations used last.
    pub(crate) mapped_regions: MappedRegions,
    /// Packets that the peer may have sent over the socket before something began to wait for one of
    /// them.
    pub(crate) news_ahead: usize,
    /// What the peer lets us do with its memory.
    pub(crate) keys: PeerKeys,
    /// Memory of its messages that wait for a receive, in bytes.
    pub(crate) kept: usize,
    /// Whether the endpoint polls this peer at every turn.
    pub(crate) is_polled: bool,
    /// Whether the endpoint looks after transfers with this peer at every turn.
    pub(crate) is_active: bool,
    /// Whether it has rung and was not polled since.
    pub(crate) has_rung: bool,
    /// Whether there are commands that it was not told of, because more were to follow.
    pub(crate) is_untold: bool,
    /// The wake-up that the peer owes the endpoint.
    pub(crate) wake_up: WakeUp,
    /// Whether the peer was told to wake us, and was not looked at since.
    pub(crate) is_unsettled: bool,
    fi_addr: FiAddr,
    fi_epoch: u64,
}

/// How far we got with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No contact.
    Idle,
    /// There are messages for it, and nobody has its name yet.
    Waiting {
        /// When to give up.
        deadline: Instant,
    },
    /// It has our outbox.
    Linked,
    /// It has our outbox; one-sided operations wait for its hello, and everything else has to wait
    /// behind them.
    Behind,
    /// It is gone, and there was no room yet for all that it had committed.
    Ending {
        errno: Errno,
        why: &'static str,
        /// The number behind its last command.
        last: u64,
    },
    /// It is gone; a later post tries anew.
    Dead,
}

impl Peer {
    pub(crate) fn new(name: Name, index: u32, sibling: Option<Arc<Sibling>>) -> Self {
        Self {
            sibling,
            name,
            index,
            state: State::Idle,
            life: 0,
            incarnation: None,
            out: None,
            inbox: None,
            fault: None,
            links: Vec::new(),
            pidfd: None,
            cma: None,
            atomics: Backlog::default(),
            held: Vec::new(),
            later: VecDeque::new(),
            is_careful: false,
            is_fenced: false,
            wants_notices: false,
            aside: None,
            has_next: false,
            next: None,
            sought_at: None,
            incoming: FxHashMap::default(),
            bounce: None,
            aborts: VecDeque::new(),
            early: Vec::new(),
            protocol_selector: ProtocolSelector::default(),
            blocks: PeerBlocks::default(),
            mapped_regions: MappedRegions::default(),
            news_ahead: 0,
            keys: PeerKeys::default(),
            kept: 0,
            is_polled: false,
            is_active: false,
            has_rung: false,
            is_untold: false,
            wake_up: WakeUp::default(),
            is_unsettled: false,
            fi_addr: FiAddr::UNSPEC,
            fi_epoch: u64::MAX,
        }
    }

    /// Gives the place of a peer that is gone to one with another name.
    pub(crate) fn become_another(&mut self, name: Name, sibling: Option<Arc<Sibling>>) {
        let (life, is_active, has_rung) = (self.life, self.is_active, self.has_rung);
        *self = Self {
            life,
            is_active,
            has_rung,
            ..Self::new(name, self.index, sibling)
        };
    }

    /// The peer as the source of messages.
    #[inline(always)]
    pub(crate) fn source(&self) -> Source {
        Source(self.index)
    }

    /// What completions call the peer: its index in the address vector, or the number that it was
    /// given in its place. Looked up again when that has changed.
    #[inline]
    pub(crate) fn fi_addr(&mut self, av: &crate::provider::av::Av) -> FiAddr {
        let epoch = av.epoch();
        if self.fi_epoch != epoch {
            self.look_up(av, epoch);
        }
        self.fi_addr
    }

    #[cold]
    fn look_up(&mut self, av: &crate::provider::av::Av, epoch: u64) {
        self.fi_epoch = epoch;
        self.fi_addr = av.source(&self.name);
        if let Some(out) = &self.out {
            out.region.set_peer_index(av.find(&self.name).0);
        }
    }

    /// Asks for the cache lines that an answer to the peer begins with. The peer looks at them all
    /// the time; so they come while the message that has just arrived is being taken, and not while
    /// the answer waits for them.
    #[inline(always)]
    pub(crate) fn expect_answer(&self) {
        if let Some(out) = &self.out {
            out.prepare();
        }
    }

    /// Lets the peer use again what was consumed, once it is worth it.
    #[inline(always)]
    pub(crate) fn publish_credit(&mut self) {
        if let (Some(inbox), Some(out)) = (&mut self.inbox, &self.out) {
            inbox.publish(&out.credit);
        }
    }

    /// Makes sure of a command slot and of `len` bytes of the pool, and says where those are. The
    /// command must follow ([`Self::slot`]).
    ///
    /// # Errors
    /// [`Errno::Again`] while there is no room, and nothing is reserved then; [`Errno::Proto`] when
    /// the peer lies about what it has consumed.
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

    /// Whether the peer has sent commands that were not taken yet.
    #[inline(always)]
    pub(crate) fn has_commands(&self) -> bool {
        let inbox = self.inbox.as_ref();
        inbox.is_some_and(|inbox| inbox.rx.peek().is_some())
    }

    /// Whether something is to be said to the peer for which it has to make room, which it does
    /// without waking the endpoint.
    pub(crate) fn waits_for_room(&self) -> bool {
        let is_settled = self.later.is_empty() && self.atomics.is_empty() && self.aborts.is_empty();
        !is_settled || self.state == State::Behind || self.has_unannounced_segments()
    }

    /// Whether there are segments of which the peer was not told yet.
    pub(crate) fn has_unannounced_segments(&self) -> bool {
        self.out
            .as_ref()
            .is_some_and(|out| out.unannounced.is_some())
    }

    /// Whether no command fits, as far as we know.
    pub(crate) fn is_full(&self) -> bool {
        self.out.as_ref().is_some_and(|out| out.tx.room() == 0)
    }

    /// Makes sure of a slot for an answer to a command of the peer, for which there is always room
    /// as long as both keep to the rules. `false` while there is none.
    pub(crate) fn reserve_answer(&mut self) -> bool {
        let Some(out) = &mut self.out else {
            return false;
        };
        if out.tx.claim_kept().is_none() && out.refresh(self.inbox.as_ref()).is_err() {
            return false;
        }
        let has_room = out.tx.claim_kept().is_some();
        if has_room {
            out.mark(out.tx.position());
        }
        has_room
    }

    /// The slot that [`Self::reserve_answer`] has made sure of.
    #[expect(
        clippy::expect_used,
        reason = "reserved by this endpoint, whatever peers write"
    )]
    pub(crate) fn answer_slot(&mut self) -> Slot<'_> {
        let slot = self.outbox().tx.claim_kept();
        slot.expect("a slot was reserved")
    }

    /// The slot that [`Self::reserve`] has made sure of.
    #[expect(
        clippy::expect_used,
        reason = "reserved by this endpoint, whatever peers write"
    )]
    #[inline]
    pub(crate) fn slot(&mut self) -> Slot<'_> {
        self.outbox().tx.claim().expect("a slot was reserved")
    }

    /// Our memory for the peer.
    #[expect(
        clippy::expect_used,
        reason = "reserved by this endpoint, whatever peers write"
    )]
    #[inline]
    pub(crate) fn outbox(&mut self) -> &mut Outbox {
        self.out.as_mut().expect("something was reserved in it")
    }

    /// Tells the peer whether its commands are polled at every turn: it does not have to wake the
    /// endpoint any more.
    pub(crate) fn disarm_wake_up(&mut self, is_polled: bool) {
        match &self.out {
            Some(out) => self.wake_up.disarm(&out.region, is_polled),
            None => self.wake_up.spend(),
        }
    }

    /// Operations that the peer owes us an answer for.
    pub(crate) fn outstanding(&self) -> usize {
        self.out.as_ref().map_or(0, |out| out.ops.len())
    }

    /// Whether an operation to the peer is not complete yet.
    pub(crate) fn has_unfinished(&self) -> bool {
        let is_idle = self.held.is_empty() && self.later.is_empty() && self.atomics.is_idle();
        !is_idle || self.outstanding() > 0
    }

    /// Answers a command of the peer, if its life is still the one in which it asked.
    pub(crate) fn answer(&mut self, life: u32, msg_id: u32, status: u32) {
        if self.life == life
            && let Some(out) = &mut self.out
        {
            out.resp.push(Resp { msg_id, status });
            self.wake();
        }
    }

    /// Whether anything is on its way in either direction that polling commands does not move.
    pub(crate) fn has_transfers(&self) -> bool {
        let sending = self.out.as_ref().is_some_and(|out| !out.ops.is_empty());
        let is_idle = self.incoming.is_empty() && self.later.is_empty() && self.atomics.is_empty();
        sending || !is_idle || self.is_untold || !self.aborts.is_empty()
    }
}

/// What was meant for a life that has not answered yet, while an earlier one is heard.
#[derive(Debug)]
pub(crate) struct Aside {
    state: State,
    out: Option<Outbox>,
    links: Vec<Link>,
    pidfd: Option<OwnedFd>,
    atomics: Backlog,
    held: Vec<Report>,
    later: VecDeque<DeferredOp>,
    is_careful: bool,
    is_fenced: bool,
}

impl Aside {
    /// How far the connection had come, and the sends that wait for it.
    pub(crate) fn held(&self) -> (&State, &[Report]) {
        (&self.state, &self.held)
    }

    /// The peer learns that the endpoint closes..
    pub(crate) fn close(&self) {
        if let Some(out) = &self.out {
            out.region.close();
        }
    }
}

impl Peer {
    /// Whether its next life has been asked to prove its key, and has not hung up.
    pub(crate) fn is_asked(&self) -> bool {
        self.next.as_ref().is_some_and(|next| next.proof.is_some())
    }

    /// Puts aside what is meant for the next life; it is as if nothing had been sent to it.
    pub(crate) fn put_aside(&mut self) {
        self.has_next = true;
        self.aside = Some(Box::new(Aside {
            state: std::mem::replace(&mut self.state, State::Idle),
            out: self.out.take(),
            links: std::mem::take(&mut self.links),
            pidfd: self.pidfd.take(),
            atomics: std::mem::take(&mut self.atomics),
            held: std::mem::take(&mut self.held),
            later: std::mem::take(&mut self.later),
            is_careful: std::mem::take(&mut self.is_careful),
            is_fenced: std::mem::take(&mut self.is_fenced),
        }));
    }

    pub(crate) fn take_back(&mut self, aside: Aside) {
        self.state = aside.state;
        self.out = aside.out;
        self.links = aside.links;
        self.pidfd = aside.pidfd;
        self.atomics = aside.atomics;
        self.held = aside.held;
        self.later = aside.later;
        self.is_careful = aside.is_careful;
        self.is_fenced = aside.is_fenced;
    }
}

/// A life that has answered to its name, and that earlier ones are heard before.
#[derive(Debug)]
pub(crate) struct Next {
    pub(crate) link: Link,
    /// The connections that waited when this one was made: those of earlier lives are among them.
    pub(crate) mark: Mark,
    /// What has come of its proof that it has our key, once it was asked for it.
    pub(crate) proof: Option<Box<Proof>>,
}

/// What has come of the proof of a life that was asked for it.
#[derive(Debug)]
pub(crate) struct Proof {
    pub(crate) caller: Initiator,
    pub(crate) since: Instant,
}
