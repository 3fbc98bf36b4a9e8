//! Progress: takes commands, moves large messages, and now and then looks around.

use std::time::{Duration, Instant};

use selvedge::OpFlags;
use selvedge::cq::Entry;
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
const LOOKS: usize = 8;
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
        let mut done = 0;
        for _ in 0..LOOKS {
            done = self.poll_hot(budget, sink);
            if done > 0 || !self.active.is_empty() {
                break;
            }
        }
        if !self.active.is_empty() {
            done += self.move_transfers();
        }
        self.look_around(done);
        done
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
        let peer = &self.peers[index];
        match &peer.inbox {
            Some(inbox) if inbox.rx.peek().is_some() => {
                // Twice: a peer that is far needs all the time, and one that is near has taken the
                // lines back meanwhile.
                peer.expect_answer();
                let taken = self.take_some(index, budget, sink);
                self.peers[index].expect_answer();
                taken
            }
            Some(inbox) => {
                inbox.expect_payload();
                0
            }
            None => 0,
        }
    }

    #[inline(never)]
    fn take_some(&mut self, index: usize, budget: usize, sink: &mut Sink<'_>) -> usize {
        let budget = budget.min(self.ep.rx_cq.room());
        let mut taken = self.take_plain::<Oldest>(index, budget, sink);
        while taken < budget
            && let Some(op) = self.next_op(index)
        {
            let is_message = op <= cmd::OP_LAST_MESSAGE;
            let usual = match is_message {
                true => self.take_behind(index, budget - taken, sink),
                false => self.take_told(index, budget - taken, sink),
            };
            taken += usual;
            if usual > 0 {
                continue;
            }
            self.publish_credit(index);
            let took = match is_message {
                true => self.take(index, sink),
                false => self.take_one_sided(index, op, sink),
            };
            match took {
                Ok(true) => {
                    taken += 1;
                    taken += self.take_plain::<Oldest>(index, budget - taken, sink);
                }
                Ok(false) => break,
                Err(Nonsense(what)) => {
                    self.quarantine(index, what);
                    return taken;
                }
            }
        }
        self.publish_credit(index);
        taken
    }

    /// Lets the peer use again what was consumed, once it is worth it.
    #[inline]
    fn publish_credit(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        if let (Some(inbox), Some(out)) = (&mut peer.inbox, &peer.out) {
            inbox.publish(&out.credit);
        }
    }

    /// What the peer's next command is, if there is one.
    #[inline(always)]
    fn next_op(&self, index: usize) -> Option<u32> {
        let inbox = self.peers[index].inbox.as_ref()?;
        Some(cmd::op(&inbox.rx.peek()?))
    }

    /// Takes commands that are as usual, but that receives for others come before those for them.
    #[inline(never)]
    fn take_behind(&mut self, index: usize, budget: usize, sink: &mut Sink<'_>) -> usize {
        self.take_plain::<Newer>(index, budget, sink)
    }

    /// Takes commands that are as usual: a message without data, inside or in the pool, of which
    /// nobody wants to hear, and the receive is for it that `R` looks at. Stops at the first that is not.
    #[inline(always)]
    fn take_plain<R: Next>(&mut self, index: usize, budget: usize, sink: &mut Sink<'_>) -> usize {
        let peer = &mut self.peers[index];
        let addr = peer.fi_addr(&self.av);
        if self.ep.is_unknown(addr) {
            return 0;
        }
        let Some(inbox) = &mut peer.inbox else {
            return 0;
        };
        for taken in 0..budget {
            let Some(slot) = inbox.rx.peek() else {
                return taken;
            };
            let source = Source(index as u32);
            let Some((kind, len)) = cmd::plain(&slot) else {
                if let Some(message) = cmd::pooled(&slot)
                    && let Some((entry, flags)) =
                        take_pooled::<R>(inbox, &mut self.inbound, source, message)
                {
                    self.ep
                        .sight
                        .count_way(sight::Way::ReceivedInject, entry.len);
                    self.ep.rx_report(entry, flags, addr, sink);
                    continue;
                }
                return taken;
            };
            let tag = slot.word(1);
            let matcher = self.inbound.matcher(kind);
            let Some(posted) = R::find(matcher, source, tag) else {
                return taken;
            };
            if posted.buf.len() < len {
                return taken;
            }
            inline::receive(&slot, cmd::PLAIN_PAYLOAD, len, &mut posted.buf);
            inbox.payload_expected = false;
            let flags = posted.flags;
            let entry = plain_entry(posted, kind, len, tag);
            R::drop(matcher);
            inbox.rx.release();
            self.ep.rx_report(entry, flags, addr, sink);
        }
        budget
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

/// Takes a command as [`State::take_plain`] does, whose message is in the pool: its completion, and
/// how that is reported. `None`, and nothing has happened, if it is not as usual.
#[inline(never)]
fn take_pooled<R: Next>(
    inbox: &mut Inbox,
    inbound: &mut Inbound,
    source: Source,
    (kind, len, offset): (Kind, usize, u64),
) -> Option<(Entry, OpFlags)> {
    let tag = inbox.rx.peek()?.word(1);
    let matcher = inbound.matcher(kind);
    let posted = R::find(matcher, source, tag)?;
    if posted.buf.len() < len {
        return None;
    }
    let walked = inbox.walk;
    let Ok(at) = inject::locate(inbox, offset, len) else {
        inbox.walk = walked;
        return None;
    };
    inbox.payload_expected = len <= EXPECTED_MAX;
    inject::receive(inbox, at, len, &mut posted.buf);
    let flags = posted.flags;
    let entry = plain_entry(posted, kind, len, tag);
    R::drop(matcher);
    inbox.rx.release();
    Some((entry, flags))
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
