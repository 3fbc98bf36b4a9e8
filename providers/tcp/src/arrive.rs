//! Messages that arrive: matched, kept until they are, or left with their sender.
//!
//! A message counts as arrived with its header, and takes its place among those that wait at once. Its
//! bytes may still be on the way then ([`Where::Coming`]), or there is no room for them and they stay
//! in the kernel and with the sender ([`Where::Held`]), or the sender offers them ([`Where::Offered`]).

use selvedge::Errno;
use selvedge_kit::cq::Sink;
use selvedge_kit::srx::{Envelope, Kind, Posted, Source};
use slab::Slab;

use crate::lane::Posting;
use crate::rx::{Arrival, Goal};
use crate::state::State;
use crate::wire::Nonsense;
use crate::wire::frame::{Head, Wish};

/// Memory for bytes that are announced, until they come.
const FIRST: usize = 64 << 10;

/// The messages that wait for their receives.
#[derive(Debug, Default)]
pub(crate) struct Hoard(Slab<Kept>);

/// A message that waits for its receive.
#[derive(Debug)]
pub(crate) struct Kept {
    place: Where,
    bytes: Vec<u8>,
    /// Its number, if the sender wants to know when it is received.
    number: Option<u64>,
    peer: usize,
    /// The lane that it came by, and what tells it from others in that place.
    at: usize,
    serial: u64,
    len: usize,
    /// Whether it takes of what may be kept.
    counts: bool,
    /// The sender's wish is about its receive; otherwise about its arrival here.
    is_patient: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    /// Here, whole.
    Here,
    /// Here in part.
    Coming,
    /// Its lane waits until there is room for it.
    Held,
    /// With the sender, under this number.
    Offered(u8),
    /// The sender is gone, and it with it.
    Lost,
}

impl Hoard {
    /// A lane is gone: what of its messages is not here is lost. Which ones.
    fn lose(&mut self, at: usize, serial: u64) -> Vec<usize> {
        let mut lost = Vec::new();
        for (key, kept) in &mut self.0 {
            if kept.at == at && kept.serial == serial && kept.place != Where::Here {
                kept.place = Where::Lost;
                lost.push(key);
            }
        }
        lost
    }
}

impl State {
    pub(crate) fn envelope(&self, at: usize, tag: u64, data: Option<u64>, len: usize) -> Envelope {
        Envelope {
            src: Source(self.lanes[at].peer as u32),
            tag,
            len,
            data: data.unwrap_or(0),
            has_data: data.is_some(),
        }
    }

    /// A message begins.
    pub(crate) fn message(
        &mut self,
        at: usize,
        kind: Kind,
        env: Envelope,
        number: Option<u64>,
        wish: Wish,
    ) -> Option<Arrival> {
        if let Some(posted) = self.inbound.matcher(kind).arrive(&env) {
            return Some(Arrival::new(Goal::Receive(posted, env, number), env.len));
        }
        let place = match self.has_room(env.src.0 as usize, env.len) {
            true => Where::Coming,
            false => Where::Held,
        };
        let key = self.store(at, kind, env, place, number);
        self.hoard.0[key].is_patient = wish == Wish::Received;
        if place == Where::Held {
            self.lanes[at].rx.held = Some(key);
            return None;
        }
        Some(Arrival::new(Goal::Keep(key), env.len))
    }

    /// A message is offered.
    ///
    /// # Errors
    /// When another one is under the same number.
    pub(crate) fn offered(&mut self, at: usize, id: u8, env: Envelope) -> Result<(), Nonsense> {
        let serial = self.lanes[at].serial;
        let is_taken = |kept: &Kept| {
            kept.at == at && kept.serial == serial && kept.place == Where::Offered(id)
        };
        let is_taken = self.hoard.0.iter().any(|(_, kept)| is_taken(kept));
        if is_taken || self.lanes[at].coming.contains_key(&id) {
            return Err(Nonsense("two offers of one number"));
        }
        match self.inbound.matcher(Kind::Tagged).arrive(&env) {
            Some(posted) => self.ask_for(at, id, Some(posted), env),
            None => {
                self.store(at, Kind::Tagged, env, Where::Offered(id), None);
            }
        }
        Ok(())
    }

    fn ask_for(&mut self, at: usize, id: u8, posted: Option<Posted>, env: Envelope) {
        self.lanes[at].coming.insert(id, (posted, env));
        self.owe(at, &Head::Clear { id }, &[]);
    }

    /// The peer asks for a message that was offered.
    pub(crate) fn send_offered(&mut self, at: usize, id: u8, posting: Posting) {
        let Head::Offer {
            wants_answer, len, ..
        } = posting.head
        else {
            return;
        };
        let head = Head::Data {
            id,
            wants_answer,
            len,
        };
        self.lanes[at].queue(Posting { head, ..posting });
        self.soil(at);
    }

    fn store(
        &mut self,
        at: usize,
        kind: Kind,
        env: Envelope,
        place: Where,
        number: Option<u64>,
    ) -> usize {
        let lane = &self.lanes[at];
        let key = self.hoard.0.insert(Kept {
            place,
            bytes: Vec::new(),
            number,
            peer: lane.peer,
            at,
            serial: lane.serial,
            len: env.len,
            counts: false,
            is_patient: true,
        });
        if place == Where::Coming {
            self.count(key);
        }
        self.inbound.matcher(kind).store(env, key);
        key
    }

    /// The bytes of a message will be here.
    fn count(&mut self, key: usize) {
        let kept = &mut self.hoard.0[key];
        kept.counts = true;
        kept.bytes.reserve(kept.len.min(FIRST));
        let peer = &mut self.peers[kept.peer];
        self.inbound.allowance.keep(kept.len, &mut peer.kept);
    }

    /// A lane is gone: forgets what it had not brought. Claimed messages stay, and whoever claimed
    /// one is told.
    pub(crate) fn lose_messages(&mut self, at: usize, serial: u64) {
        let lost = self.hoard.lose(at, serial);
        for kind in [Kind::Msg, Kind::Tagged] {
            let matcher = self.inbound.matcher(kind);
            for (_, key) in matcher.drop_unexpected(|_, key| lost.contains(key)) {
                let kept = self.hoard.0.remove(key);
                self.free(&kept);
            }
        }
    }

    /// Whether a message may wait here. One that is larger than all that may be kept never does.
    fn has_room(&self, peer: usize, len: usize) -> bool {
        let (kept, others) = (self.peers[peer].kept, self.peers.len() - 1);
        len <= self.config.unexpected_size && self.inbound.allowance.has_room(len, kept, others)
    }

    /// More of a message that is kept.
    pub(crate) fn keep_more(&mut self, key: usize, bytes: &[u8]) {
        if let Some(kept) = self.hoard.0.get_mut(key) {
            kept.bytes.extend_from_slice(bytes);
        }
    }

    /// A message that is kept is here.
    pub(crate) fn kept_whole(&mut self, at: usize, key: usize) {
        let kept = &mut self.hoard.0[key];
        kept.place = Where::Here;
        if !kept.is_patient {
            let number = kept.number.take();
            self.settle(at, number, None);
        }
    }

    /// There may be room by now for a message that had none.
    pub(crate) fn make_room_for(&mut self, at: usize) {
        let Some(key) = self.lanes.get(at).and_then(|lane| lane.rx.held) else {
            return;
        };
        let kept = &self.hoard.0[key];
        let (peer, len) = (kept.peer, kept.len);
        if self.has_room(peer, len) {
            self.count(key);
            self.hoard.0[key].place = Where::Coming;
            self.release(at, Arrival::new(Goal::Keep(key), len));
        }
    }

    /// A lane that waited goes on.
    fn release(&mut self, at: usize, arrival: Arrival) {
        self.lanes[at].rx.held = None;
        if arrival.len == 0 {
            self.arrived(at, arrival);
        } else {
            self.lanes[at].rx.body = Some(arrival);
        }
    }

    /// A receive takes a message that waited for it.
    #[cold]
    pub(crate) fn meet(&mut self, mut posted: Posted, env: Envelope, key: usize) {
        let mut kept = self.hoard.0.remove(key);
        let at = kept.at;
        match kept.place {
            Where::Here => {
                self.free(&kept);
                let fits = posted.buf.write(0, &kept.bytes);
                self.settle_kept(&mut kept);
                self.received(posted, &env, fits);
            }
            Where::Coming => {
                self.free(&kept);
                posted.buf.write(0, &kept.bytes);
                self.redirect(at, Goal::Receive(posted, env, kept.number));
            }
            Where::Held => {
                let goal = Goal::Receive(posted, env, kept.number);
                self.release(at, Arrival::new(goal, env.len));
                self.stir();
            }
            Where::Offered(id) => self.ask_for(at, id, Some(posted), env),
            Where::Lost => {
                self.free(&kept);
                let src = self.peer_addr(kept.peer);
                let detail = format!("{} is gone, and its message with it", self.peers[kept.peer]);
                self.ep.rx_failed(posted, Errno::ConnReset, src, detail);
            }
        }
    }

    /// Drops a message. To its sender it is received.
    #[cold]
    pub(crate) fn discard(&mut self, key: usize) {
        let mut kept = self.hoard.0.remove(key);
        let at = kept.at;
        match kept.place {
            Where::Here | Where::Lost => {
                self.free(&kept);
                self.settle_kept(&mut kept);
            }
            Where::Coming => {
                self.free(&kept);
                self.redirect(at, Goal::Nothing(kept.number));
            }
            Where::Held => {
                self.release(at, Arrival::new(Goal::Nothing(kept.number), kept.len));
                self.stir();
            }
            Where::Offered(id) => {
                let env = self.envelope(at, 0, None, kept.len);
                self.ask_for(at, id, None, env);
            }
        }
    }

    /// What is still coming of a message goes somewhere else.
    fn redirect(&mut self, at: usize, goal: Goal) {
        if let Some(arrival) = &mut self.lanes[at].rx.body {
            arrival.goal = goal;
        }
    }

    fn settle_kept(&mut self, kept: &mut Kept) {
        let lane = self.lanes.get(kept.at);
        if lane.is_some_and(|lane| lane.serial == kept.serial) {
            self.settle(kept.at, kept.number.take(), None);
        }
    }

    fn free(&mut self, kept: &Kept) {
        if kept.counts {
            let peer = &mut self.peers[kept.peer];
            self.inbound.allowance.free(kept.len, &mut peer.kept);
        }
    }

    /// Reports a message: `len` bytes of it are in its receive.
    pub(crate) fn received(&mut self, posted: Posted, env: &Envelope, len: usize) {
        let peer = &mut self.peers[env.src.0 as usize];
        let src = peer.fi_addr(self.av.as_deref());
        if self.ep.is_unknown(src) {
            return self.ep.rx_unknown(posted, env, len, &peer.to_address());
        }
        self.ep.rx_done(posted, env, len, src, &mut Sink::none());
    }
}
