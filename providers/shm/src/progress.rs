//! Progress: takes commands, moves large messages, and now and then looks around.

use std::time::{Duration, Instant};

use selvedge::FiAddr;
use selvedge::cq::Entry;
use selvedge_kit::Ep;
use selvedge_kit::cq::Sink;
use selvedge_kit::sight;
use selvedge_kit::srx::{Kind, Matcher, Posted, Source};

use crate::atomic::answer;
use crate::choice::Way;
use crate::cmd::{self, Body, Cmd, Nonsense};
use crate::peer::{Inbox, Peer};
use crate::proto::into::Into;
use crate::proto::iov::Stage;
use crate::proto::{inject, inline, iov, sar};
use crate::receive;
use crate::state::{Ack, Inbound, State, Unexpected};

/// How often the hot peers are looked at before a call that finds nothing returns. Whoever waits
/// calls again at once: a message then meets a look, and not the way into the library.
pub(crate) const LOOKS: usize = 8;
/// The same where a layer looks for its own messages between two calls.
pub(crate) const LOOKS_IN_TURN: usize = 2;
/// Payloads whose first cache line is fetched while the next one is awaited, in bytes. It saves a
/// round trip of the line; a larger payload is still being written when its line would be taken
/// away, which costs more.
const EXPECTED_MAX: usize = 512;
/// Empty polls between two looks at the clock.
const IDLE_TICKS: usize = 16;
/// Messages between two looks at the clock.
const BUSY_TICKS: usize = 512;
/// Between two looks at sockets and at the queues of quiet peers, when there is nothing else to do.
const IDLE_INTERVAL: Duration = Duration::from_micros(20);
/// The same under load.
const BUSY_INTERVAL: Duration = Duration::from_millis(1);
/// Quiet peers whose queues are looked at in one sweep.
const SWEEP: usize = 64;

/// A receive that can be looked at without a search.
trait Next {
    fn find(matcher: &mut Matcher<Unexpected>, src: Source, tag: u64) -> Option<&mut Posted>;
    fn drop(matcher: &mut Matcher<Unexpected>);
}

/// The one that was posted first.
struct Oldest;

impl Next for Oldest {
    #[inline(always)]
    fn find(matcher: &mut Matcher<Unexpected>, src: Source, tag: u64) -> Option<&mut Posted> {
        matcher.oldest(src, tag)
    }

    #[inline(always)]
    fn drop(matcher: &mut Matcher<Unexpected>) {
        matcher.drop_oldest();
    }
}

/// The first of those behind many that wait long.
struct Newer;

impl Next for Newer {
    #[inline(always)]
    fn find(matcher: &mut Matcher<Unexpected>, src: Source, tag: u64) -> Option<&mut Posted> {
        matcher.newer(src, tag)
    }

    #[inline(always)]
    fn drop(matcher: &mut Matcher<Unexpected>) {
        matcher.drop_newer();
    }
}

impl State {
    /// Moves what can move; takes about `budget` messages at most. Says how much there was.
    #[inline]
    pub(crate) fn progress(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        let mut done = match self.hot[..] {
            [only] => self.poll_only(only as usize, budget, sink),
            _ => self.poll_all(budget, sink),
        };
        if !self.active.is_empty() {
            done += self.move_transfers();
        }
        self.look_around(done);
        done
    }

    /// Takes commands of the only hot peer.
    #[inline(always)]
    fn poll_only(&mut self, index: usize, budget: usize, sink: &mut Sink<'_>) -> usize {
        let Some(inbox) = &self.peers[index].inbox else {
            return 0;
        };
        let looks = if self.active.is_empty() {
            self.turn.looks
        } else {
            1
        };
        for _ in 0..looks {
            if inbox.rx.peek().is_some() {
                return self.take_some(index, budget, sink);
            }
            inbox.expect_payload();
        }
        0
    }

    /// Takes commands of the hot peers.
    #[inline(never)]
    fn poll_all(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        for _ in 0..self.turn.looks {
            let done = self.poll_hot(budget, sink);
            if done > 0 || !self.active.is_empty() {
                return done;
            }
        }
        0
    }

    /// Takes commands of the hot peers, up to the budget.
    #[inline(always)]
    pub(crate) fn poll_hot(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        let mut done = 0;
        for turn in 0..self.hot.len() {
            // A peer that is polled may be cut off and be hot no more.
            let Some(&index) = self.hot.get(turn) else {
                break;
            };
            done += self.poll(index as usize, budget - done, sink);
            if done >= budget {
                self.yield_turn(turn);
                break;
            }
        }
        done
    }

    /// The peer that used up a turn is the last of the next one.
    #[inline]
    fn yield_turn(&mut self, place: usize) {
        if place + 1 < self.hot.len() {
            self.hot[place..].rotate_left(1);
        }
    }

    /// Takes up to `budget` commands of one peer.
    #[inline(always)]
    pub(crate) fn poll(&mut self, index: usize, budget: usize, sink: &mut Sink<'_>) -> usize {
        match &self.peers[index].inbox {
            Some(inbox) if inbox.rx.peek().is_some() => self.take_some(index, budget, sink),
            Some(inbox) => {
                inbox.expect_payload();
                0
            }
            None => 0,
        }
    }

    /// Takes up to `budget` commands of a peer that has sent some.
    #[inline(never)]
    fn take_some(&mut self, index: usize, budget: usize, sink: &mut Sink<'_>) -> usize {
        let budget = budget.min(self.ep.rx_cq.room());
        let peer = &mut self.peers[index];
        // Twice: a peer that is far needs all the time, and one that is near has taken the lines
        // back meanwhile.
        peer.expect_answer();
        let mut receiving = Receiving {
            inbound: &mut self.inbound,
            ep: &self.ep,
            source: Source(index as u32),
            addr: peer.fi_addr(&self.av),
        };
        let taken = receiving.take_plain::<Oldest>(peer, budget, sink);
        peer.publish_credit();
        peer.expect_answer();
        match taken < budget {
            true => taken + self.take_others(index, budget - taken, sink),
            false => taken,
        }
    }

    /// Takes commands of which the first is not as usual, if there is one.
    #[inline(never)]
    fn take_others(&mut self, index: usize, budget: usize, sink: &mut Sink<'_>) -> usize {
        let mut taken = 0;
        while taken < budget
            && let Some(op) = self.next_op(index)
        {
            let is_message = op <= cmd::OP_LAST_MESSAGE;
            let usual = match is_message {
                true => self.take_usual::<Newer>(index, budget - taken, sink),
                false => self.take_told(index, budget - taken, sink),
            };
            taken += usual;
            if usual > 0 {
                continue;
            }
            self.peers[index].publish_credit();
            let took = match is_message {
                true => self.take(index, sink),
                false => self.take_one_sided(index, op, sink),
            };
            match took {
                Ok(true) => {
                    taken += 1;
                    taken += self.take_usual::<Oldest>(index, budget - taken, sink);
                }
                Ok(false) => break,
                Err(Nonsense(what)) => {
                    self.quarantine(index, what);
                    break;
                }
            }
        }
        self.peers[index].publish_credit();
        taken
    }

    /// What the peer's next command is, if there is one.
    #[inline(always)]
    fn next_op(&self, index: usize) -> Option<u32> {
        let inbox = self.peers[index].inbox.as_ref()?;
        Some(cmd::op(&inbox.rx.peek()?))
    }

    /// Takes commands that are as usual, and have a receive that `R` looks at.
    #[inline(never)]
    fn take_usual<R: Next>(&mut self, index: usize, budget: usize, sink: &mut Sink<'_>) -> usize {
        let peer = &mut self.peers[index];
        let mut receiving = Receiving {
            inbound: &mut self.inbound,
            ep: &self.ep,
            source: Source(index as u32),
            addr: peer.fi_addr(&self.av),
        };
        receiving.take_plain::<R>(peer, budget, sink)
    }

    /// Takes one message, if there is one and it has a place.
    #[inline(never)]
    fn take(&mut self, index: usize, sink: &mut Sink<'_>) -> Result<bool, Nonsense> {
        let others = self.peers.len() - 1;
        let peer = &mut self.peers[index];
        let Some(inbox) = &mut peer.inbox else {
            return Ok(false);
        };
        let Some(slot) = inbox.rx.peek() else {
            return Ok(false);
        };
        let cmd = cmd::parse(&slot, Source(index as u32))?;
        let Body::Inline { word } = cmd.body else {
            return self.take_long(index, &cmd, sink);
        };
        let env = &cmd.env;
        match self.inbound.matcher(cmd.kind).arrive(env) {
            Some(mut posted) => {
                let fits = inline::receive(&slot, word, env.len, &mut posted.buf);
                inbox.rx.release();
                let src = peer.fi_addr(&self.av);
                receive::report(peer, &self.ep, src, posted, env, fits, sink);
            }
            None if self.inbound.allowance.has_room(env.len, peer.kept, others) => {
                let bytes = inline::keep(&slot, word, env.len);
                inbox.rx.release();
                self.inbound
                    .keep(cmd.kind, cmd.env, bytes, None, &mut peer.kept);
            }
            None => {
                let len = env.len;
                self.stall(index, len);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A message has to wait with its sender, because too much waits here.
    #[cold]
    fn stall(&mut self, index: usize, len: usize) {
        if self.inbound.stall() {
            let name = self.peers[index].name.as_str();
            self.ep.sight.note(sight::What::Stalled, name, len as u64);
        }
    }

    /// Takes a command that is no message.
    #[inline(never)]
    fn take_one_sided(
        &mut self,
        index: usize,
        op: u32,
        sink: &mut Sink<'_>,
    ) -> Result<bool, Nonsense> {
        match op {
            cmd::OP_ATOMIC..=cmd::OP_COMPARE_ATOMIC => self.take_atomic(index)?,
            cmd::OP_ATOMIC_RESULT => self.take_atomic_result(index)?,
            _ => return self.take_access(index, sink),
        }
        Ok(true)
    }

    /// Takes a command whose message is not inside.
    fn take_long(
        &mut self,
        index: usize,
        cmd: &Cmd,
        sink: &mut Sink<'_>,
    ) -> Result<bool, Nonsense> {
        match cmd.body {
            Body::Inject { offset, ack } => self.take_inject(index, cmd, offset, ack, sink),
            Body::Iov(ref offer) => {
                let peer = &mut self.peers[index];
                iov::accept(peer, offer, cmd.env.len)?;
                release(peer.inbox.as_mut());
                self.activate(index);
                self.match_offer(index, cmd, offer.msg_id);
                Ok(true)
            }
            Body::Inline { .. } => unreachable!("taken by the caller"),
        }
    }

    fn take_inject(
        &mut self,
        index: usize,
        cmd: &Cmd,
        offset: u64,
        ack: Option<u32>,
        sink: &mut Sink<'_>,
    ) -> Result<bool, Nonsense> {
        let others = self.peers.len() - 1;
        let (peer, env) = (&mut self.peers[index], &cmd.env);
        let life = peer.life;
        let Some(inbox) = &mut peer.inbox else {
            return Ok(false);
        };
        let walked = inbox.walk;
        inbox.payload_expected = env.len <= EXPECTED_MAX;
        let at = inject::locate(inbox, offset, env.len)?;
        match self.inbound.matcher(cmd.kind).arrive(env) {
            Some(mut posted) => {
                let fits = inject::receive(inbox, at, env.len, &mut posted.buf);
                inbox.rx.release();
                if let Some(msg_id) = ack {
                    peer.answer(life, msg_id, crate::proto::status::DONE);
                }
                let src = peer.fi_addr(&self.av);
                let way = sight::Way::ReceivedInject;
                self.ep.sight.count_way(way, env.len);
                receive::report(peer, &self.ep, src, posted, env, fits, sink);
            }
            None if self.inbound.allowance.has_room(env.len, peer.kept, others) => {
                let bytes = inject::keep(inbox, at, env.len);
                inbox.rx.release();
                let ack = ack.map(|msg_id| Ack { life, msg_id });
                self.inbound
                    .keep(cmd.kind, cmd.env, bytes, ack, &mut peer.kept);
            }
            None => {
                inbox.walk = walked;
                let len = env.len;
                self.stall(index, len);
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn match_offer(&mut self, index: usize, cmd: &Cmd, msg_id: u32) {
        let matcher = self.inbound.matcher(cmd.kind);
        match matcher.arrive(&cmd.env) {
            Some(posted) => {
                let peer = &mut self.peers[index];
                let src = peer.fi_addr(&self.av);
                let (into, len) = (Into::Receive(posted, cmd.env), cmd.env.len);
                iov::start(peer, &self.config, &self.ep, src, msg_id, into, len);
            }
            None => {
                let life = self.peers[index].life;
                matcher.store(cmd.env, Unexpected::Offer { life, msg_id });
            }
        }
    }

    /// Looks after the peers with transfers under way.
    #[cold]
    pub(crate) fn move_transfers(&mut self) -> usize {
        let mut done = 0;
        let mut place = 0;
        while let Some(&index) = self.active.get(place) {
            let index = index as usize;
            if std::mem::take(&mut self.peers[index].wants_news) {
                self.hear(index);
            }
            self.go_on(index);
            match self.move_transfer(index) {
                Ok(moved) => done += moved,
                Err(Nonsense(what)) => self.quarantine(index, what),
            }
            if self.peers[index].has_transfers() {
                place += 1;
            } else {
                self.peers[index].is_active = false;
                self.active.swap_remove(place);
            }
        }
        done
    }

    pub(crate) fn move_transfer(&mut self, index: usize) -> Result<usize, Nonsense> {
        let Self {
            peers,
            ep,
            config,
            av,
            ..
        } = self;
        let peer = &mut peers[index];
        let addr = peer.fi_addr(av);
        let mut moved = answer::pay(peer)? + usize::from(peer.end_run());
        moved += sar::take_answers(peer, config, ep, addr)?;
        moved += usize::from(sar::stream(peer));
        moved += sar::receive(peer, ep, addr)?;
        if let Some(msg_id) = pulled(peer) {
            moved += iov::step(peer, ep, addr, msg_id);
        }
        Ok(moved)
    }

    /// Does what is due besides polling, which is nothing most of the time.
    #[inline]
    fn look_around(&mut self, done: usize) {
        self.turn.ticks += done.max(1);
        let (limit, interval) = match done {
            0 => (IDLE_TICKS, IDLE_INTERVAL),
            _ => (BUSY_TICKS, BUSY_INTERVAL),
        };
        if self.turn.ticks >= limit {
            self.turn.ticks = 0;
            self.look_at_clock(interval);
        }
    }

    #[cold]
    fn look_at_clock(&mut self, interval: Duration) {
        let interval = match self.get_up() {
            true => Duration::ZERO,
            false => interval,
        };
        self.answer_bells();
        let now = Instant::now();
        if now.duration_since(self.turn.last_control) >= interval {
            self.turn.last_control = now;
            self.sweep();
            self.look_at_sockets(now);
            if self.config.eager_exchange {
                self.exchange_addresses(now);
            }
            self.show(now);
        }
    }

    /// Warms up the peers that have rung.
    pub(crate) fn answer_bells(&mut self) {
        if self.peers.len() <= self.hot.len() {
            return;
        }
        let mut rung = Vec::new();
        let bits = self.peers.len();
        self.control.doorbell.drain(bits, |bit| rung.push(bit));
        for index in rung {
            self.warm_up(index);
        }
    }

    /// Warms up quiet peers that have news but were not heard: the doorbell is only a hint. No more
    /// than can be hot together: the next sweep begins with the others.
    fn sweep(&mut self) {
        if self.peers.len() <= self.hot.len() {
            return;
        }
        let mut warmed = 0;
        for _ in 0..SWEEP.min(self.peers.len()) {
            self.turn.sweep = (self.turn.sweep + 1) % self.peers.len();
            let index = self.turn.sweep;
            let peer = &self.peers[index];
            let inbox = peer.inbox.as_ref().filter(|_| !peer.is_hot);
            if inbox.is_some_and(|inbox| inbox.rx.peek().is_some()) {
                self.warm_up(index);
                warmed += 1;
            }
            if warmed == self.config.hot_peers {
                break;
            }
        }
    }

    /// Polls a peer at every turn from now on, in place of another if there are too many.
    pub(crate) fn warm_up(&mut self, index: usize) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let Some(out) = peer.out.as_ref().filter(|_| peer.inbox.is_some()) else {
            return;
        };
        if peer.is_hot {
            return;
        }
        out.region.set_attentive(true);
        peer.wakes_us = false;
        peer.is_hot = true;
        if self.hot.len() >= self.config.hot_peers {
            let oldest = self.hot.remove(0) as usize;
            self.cool_down(oldest);
        }
        self.hot.push(index as u32);
        self.weaken();
    }

    fn cool_down(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        peer.is_hot = false;
        if let Some(out) = &peer.out {
            out.region.set_attentive(false);
        }
        self.leave_quiet(index);
    }
}

/// What takes the usual commands of one peer.
struct Receiving<'a> {
    inbound: &'a mut Inbound,
    ep: &'a Ep,
    source: Source,
    addr: FiAddr,
}

impl Receiving<'_> {
    /// Takes commands that are as usual: a message without data, inside or in the pool, of which
    /// nobody wants to hear, and the receive is for it that `R` looks at. Stops at the first that
    /// is not.
    #[inline(always)]
    fn take_plain<R: Next>(
        &mut self,
        peer: &mut Peer,
        budget: usize,
        sink: &mut Sink<'_>,
    ) -> usize {
        if self.ep.is_unknown(self.addr) {
            return 0;
        }
        let Some(inbox) = &mut peer.inbox else {
            return 0;
        };
        let mut taken = 0;
        while taken < budget
            && let Some(slot) = inbox.rx.peek()
        {
            let Some((kind, len)) = cmd::plain(&slot) else {
                if !self.take_pooled::<R>(inbox, sink) {
                    break;
                }
                taken += 1;
                continue;
            };
            let tag = slot.word(1);
            let matcher = self.inbound.matcher(kind);
            let Some(posted) = R::find(matcher, self.source, tag) else {
                break;
            };
            if !posted.buf.is_one_for(len) {
                break;
            }
            inline::receive(&slot, cmd::PLAIN_PAYLOAD, len, &mut posted.buf);
            inbox.payload_expected = false;
            let flags = posted.flags;
            let entry = plain_entry(posted, kind, len, tag);
            R::drop(matcher);
            inbox.rx.release();
            self.ep.rx_report(entry, flags, self.addr, sink);
            taken += 1;
        }
        taken
    }

    /// Takes a command whose message is in the pool. `false`, and nothing has happened, if it is not
    /// as usual.
    #[inline(never)]
    fn take_pooled<R: Next>(&mut self, inbox: &mut Inbox, sink: &mut Sink<'_>) -> bool {
        let Some(slot) = inbox.rx.peek() else {
            return false;
        };
        let Some((kind, len, offset)) = cmd::pooled(&slot) else {
            return false;
        };
        let tag = slot.word(1);
        let matcher = self.inbound.matcher(kind);
        let posted = R::find(matcher, self.source, tag);
        let Some(posted) = posted.filter(|posted| posted.buf.len() >= len) else {
            return false;
        };
        let walked = inbox.walk;
        let Ok(at) = inject::locate(inbox, offset, len) else {
            inbox.walk = walked;
            return false;
        };
        inbox.payload_expected = len <= EXPECTED_MAX;
        inject::receive(inbox, at, len, &mut posted.buf);
        let flags = posted.flags;
        let entry = plain_entry(posted, kind, len, tag);
        R::drop(matcher);
        inbox.rx.release();
        self.ep.sight.count_way(sight::Way::ReceivedInject, len);
        self.ep.rx_report(entry, flags, self.addr, sink);
        true
    }
}

/// The completion of a receive that a message without data has filled.
#[inline(always)]
fn plain_entry(posted: &Posted, kind: Kind, len: usize, tag: u64) -> Entry {
    Entry {
        context: posted.context,
        flags: kind.received(),
        len,
        tag,
        ..Entry::default()
    }
}

/// A message that is on its way into a receive by copies that the receiver makes alone.
fn pulled(peer: &Peer) -> Option<u32> {
    peer.incoming
        .iter()
        .find_map(|(&msg_id, incoming)| match &incoming.stage {
            Stage::Moving(moving) if moving.way != Way::Bounce => Some(msg_id),
            _ => None,
        })
}

fn release(inbox: Option<&mut Inbox>) {
    if let Some(inbox) = inbox {
        inbox.rx.release();
    }
}
