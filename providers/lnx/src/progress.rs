//! Progress: what the links have done, and what they had no room for before.

use std::time::Duration;

use selvedge::cq::{Entry, ErrEntry};
use selvedge::{CompletionFlags, Counter, Errno, FiAddr};
use selvedge_kit::cq::Sink;
use selvedge_kit::shell::EndpointState;
use selvedge_kit::srx::{Envelope, Posted};
use selvedge_kit::wait::ArmOutcome;

use crate::link::Frame;
use crate::post::{ANSWERED, LEVELS};
use crate::state::{Ask, Heard, Later, Op, State, Then};
use crate::wire::{Header, What};

/// Turns of progress between two looks at the clock.
const SHOWN: u32 = 64;
/// Turns between two looks at a link that has had nothing, while the other one has: a look at a
/// socket takes several times as long as a message in shared memory.
const TURNS: u32 = 16;
/// Completions of a link that are read at a time.
const ENTRIES: usize = 16;
/// Frames that are kept for the next messages.
const SPARE: usize = 64;
/// What completions of peers' operations on our memory have.
const BY_PEERS: CompletionFlags = CompletionFlags::REMOTE_READ.union(CompletionFlags::REMOTE_WRITE);
/// How much may wait to be tried again before nothing more is set aside.
const SET_ASIDE: usize = 128;
/// How long a sleep may be while something waits for room.
const NAP: Duration = Duration::from_millis(1);

/// Messages that are taken of a link before a thread parks, and when it was woken.
const BUDGET: usize = 64;

impl EndpointState for State {
    fn progress(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        self.turn = self.turn.wrapping_add(1);
        let mut done = self.look(self.hot, budget, sink);
        if self.turn.is_multiple_of(TURNS) || done == 0 && self.turn.is_multiple_of(2) {
            let other = 1 - self.hot;
            let there = self.look(other, budget, sink);
            if there > 0 && done == 0 {
                self.hot = other;
            }
            done += there;
        }
        if !self.later.is_empty() {
            self.catch_up();
        }
        if self.counts_peers {
            self.count_peers();
        }
        if self.kept < self.most {
            self.unmute();
        }
        if self.turn.is_multiple_of(SHOWN) {
            self.show();
        }
        done
    }

    #[inline(never)]
    fn arm(&mut self, _seen: &mut u64) -> ArmOutcome {
        if self.look_at_all(BUDGET) > 0 {
            return ArmOutcome::Progressed;
        }
        let may_sleep = self.links.iter().all(|link| link.cq.try_wait().is_ok());
        match may_sleep {
            false => ArmOutcome::Progressed,
            true if self.later.is_empty() => ArmOutcome::UntilWoken,
            true => ArmOutcome::AtMost(NAP),
        }
    }

    fn woken(&mut self) {
        self.look_at_all(BUDGET);
    }

    fn close(&mut self) {
        let later = &mut self.later;
        later.retain(|it| !matches!(it, Later::Came(..)));
        // Peers wait for the answers that are still here.
        self.catch_up();
    }
}

impl State {
    /// Looks at both links.
    pub(crate) fn look_at_all(&mut self, budget: usize) -> usize {
        let sink = &mut Sink::none();
        self.show();
        let done = self.look(0, budget, sink) + self.look(1, budget, sink);
        self.catch_up();
        if self.counts_peers {
            self.count_peers();
        }
        self.unmute();
        done
    }

    fn look(&mut self, link: usize, budget: usize, sink: &mut Sink<'_>) -> usize {
        let mut done = 0;
        while done < budget {
            if self.ep.rx_cq.room() == 0 {
                return done + self.poll_without_room(link);
            }
            let mut entries = [Entry::default(); ENTRIES];
            let mut src = [FiAddr::UNSPEC; ENTRIES];
            match self.links[link].cq.read_from(&mut entries, &mut src) {
                Ok(count @ 1..) => {
                    done += count;
                    for (entry, &from) in entries[..count].iter().zip(&src) {
                        self.done(link, entry, from, sink);
                    }
                    if count < ENTRIES {
                        break;
                    }
                }
                Err(Errno::Avail) => {
                    let Ok(error) = self.links[link].cq.read_err() else {
                        break;
                    };
                    done += 1;
                    self.failed(link, &error);
                }
                _ => break,
            }
        }
        done
    }

    /// Polls a link while the queue of receives is full: completes the endpoint's own operations, and
    /// sets messages aside until the queue has room.
    #[cold]
    fn poll_without_room(&mut self, link: usize) -> usize {
        let mut done = 0;
        while self.later.len() < SET_ASIDE {
            let (mut entry, mut src) = ([Entry::default()], [FiAddr::UNSPEC]);
            match self.links[link].cq.read_from(&mut entry, &mut src) {
                Ok(1..) => {
                    let ([entry], [from]) = (entry, src);
                    match self.needs_room(&entry) {
                        true => self.later.push_back(Later::Came(link, entry, from)),
                        false => self.done(link, &entry, from, &mut Sink::none()),
                    }
                }
                Err(Errno::Avail) => {
                    let Ok(error) = self.links[link].cq.read_err() else {
                        break;
                    };
                    self.failed(link, &error);
                }
                _ => break,
            }
            done += 1;
        }
        done
    }

    /// Whether an entry of a link leads to a completion in the queue of receives that no receive of the
    /// application bounds, or to the receive of one more message.
    fn needs_room(&self, entry: &Entry) -> bool {
        let op = self.ops.get(entry.context.0 as usize);
        entry.flags.intersects(BY_PEERS) || matches!(op, Some(Op::Listen(_, false)))
    }

    /// Processes an entry that was set aside, unless the queue of receives is still full.
    #[cold]
    fn take_set_aside(&mut self, link: usize, entry: Entry, from: FiAddr) -> Option<Later> {
        if self.ep.rx_cq.room() == 0 {
            return Some(Later::Came(link, entry, from));
        }
        self.done(link, &entry, from, &mut Sink::none());
        None
    }

    /// Tells what a peer has done to our memory, as the link does.
    #[cold]
    fn told(&mut self, link: usize, entry: &Entry, from: FiAddr) {
        let src = match from {
            FiAddr::UNSPEC => FiAddr::UNSPEC,
            _ => {
                let peer = self.peer_on(link, from, None);
                self.peer_addr(peer)
            }
        };
        self.ep.rx_cq.push(*entry, src);
    }

    /// Counts what peers have done to our memory, as the links have counted it.
    #[cold]
    fn count_peers(&mut self) {
        for link in &mut self.links {
            for (news, cntr) in link.news_of_peers().into_iter().zip(self.ep.remote_cntrs()) {
                if let Some(cntr) = cntr.filter(|_| news > 0) {
                    cntr.add(news);
                }
            }
        }
    }

    /// A link has done an operation.
    fn done(&mut self, link: usize, entry: &Entry, from: FiAddr, sink: &mut Sink<'_>) {
        if entry.flags.intersects(BY_PEERS) {
            return self.told(link, entry, from);
        }
        let Some(op) = self.ops.try_remove(entry.context.0 as usize) else {
            return;
        };
        match op {
            Op::Listen(frame, true) => {
                self.hear(link, frame.received(entry.len), from, sink);
                self.listen_again(link, frame, true);
            }
            Op::Listen(frame, false) => {
                self.came(link, entry.context.0 as usize, (frame, entry.len, from));
                self.hear_in_order(link, sink);
            }
            Op::Say(frame, peer, then) => {
                self.put_away(frame);
                if let Then::Report(report) = then {
                    self.sent(peer, &report);
                }
            }
            Op::Body(buf, peer, report) => {
                // The caller's memory goes before the completion comes.
                drop(buf);
                self.sent(peer, &report);
            }
            Op::Coming(posted, env) => {
                let fits = env.len.min(posted.buf.len()).min(entry.len);
                self.received(posted, &env, fits, sink);
            }
            Op::Access(peer, report) => self.sent(peer, &report),
            Op::Watch(peer) => {
                self.peers[peer].is_watched = false;
                self.watch(peer);
            }
        }
    }

    /// A link has failed to do one.
    #[cold]
    fn failed(&mut self, link: usize, error: &ErrEntry) {
        let Some(op) = self.ops.try_remove(error.entry.context.0 as usize) else {
            return;
        };
        let (errno, detail) = (error.errno, &error.detail);
        match op {
            Op::Listen(frame, is_answer) => {
                log::info!(target: "selvedge::lnx::ep_data", "a frame is lost: {detail}");
                match is_answer {
                    true => self.listen_again(link, frame, true),
                    false => {
                        let key = error.entry.context.0 as usize;
                        self.came(link, key, (frame, 0, FiAddr::UNSPEC));
                        self.hear_in_order(link, &mut Sink::none());
                    }
                }
            }
            Op::Say(frame, peer, then) => {
                self.put_away(frame);
                self.peers[peer].is_greeted = false;
                match then {
                    Then::Nothing => {}
                    Then::Report(report) => self.not_sent(peer, &report, errno, detail),
                    Then::Answer(number) => {
                        if let Some(Ask { report, buf, .. }) = self.take_ask(peer, number) {
                            drop(buf);
                            self.not_sent(peer, &report, errno, detail);
                        }
                    }
                }
            }
            Op::Body(buf, peer, report) => {
                drop(buf);
                self.not_sent(peer, &report, errno, detail);
            }
            Op::Coming(posted, env) if errno == Errno::Trunc => {
                let fits = env.len.min(posted.buf.len());
                self.received(posted, &env, fits, &mut Sink::none());
            }
            Op::Coming(posted, env) => {
                let src = self.peer_addr(env.src.0 as usize);
                self.ep.rx_failed(posted, errno, src, detail.clone());
            }
            Op::Access(peer, report) => {
                let detail = format!("{}: {detail}", self.peers[peer]);
                self.not_sent(peer, &report, errno, &detail);
            }
            Op::Watch(peer) => {
                self.peers[peer].is_watched = false;
                let detail = format!("{}: {detail}", self.peers[peer]);
                self.lose(peer, errno, &detail);
            }
        }
    }

    /// Notes down what the receive of this key has brought; no bytes if it has failed.
    fn came(&mut self, link: usize, key: usize, what: Heard) {
        let listening = &mut self.listening[link];
        // The key of one that has come may have been given out again.
        let place = listening
            .iter_mut()
            .find(|(it, came)| *it == key && came.is_none());
        if let Some(place) = place {
            place.1 = Some(what);
        }
    }

    /// Takes messages in the order in which their receives were posted: that is the one in which they
    /// met them. A link may be done with a short one before a longer one that was sent before it.
    fn hear_in_order(&mut self, link: usize, sink: &mut Sink<'_>) {
        while let Some((_, Some((frame, len, from)))) =
            self.listening[link].pop_front_if(|(_, came)| came.is_some())
        {
            if len > 0 {
                self.hear(link, frame.received(len), from, sink);
            }
            self.listen_again(link, frame, false);
        }
    }

    fn listen_again(&mut self, link: usize, frame: Frame, is_answer: bool) {
        if !is_answer && self.kept >= self.most {
            return self.muted[link].push(frame);
        }
        if self.listen_with(link, frame, is_answer).is_err() {
            log::error!(target: "selvedge::lnx::ep_data", "a link takes no more receives");
        }
    }

    fn unmute(&mut self) {
        for link in 0..self.links.len() {
            while self.kept < self.most
                && let Some(frame) = self.muted[link].pop()
            {
                self.listen_again(link, frame, false);
            }
        }
    }

    fn put_away(&mut self, frame: Frame) {
        if self.spare.len() < SPARE {
            self.spare.push(frame);
        }
    }

    /// Has the end of a peer noticed.
    pub(crate) fn watch(&mut self, peer: usize) {
        if !self.peers[peer].is_watched && self.peers[peer].at != FiAddr::UNSPEC {
            self.peers[peer].is_watched = true;
            self.do_later(Later::Watch(peer));
        }
    }

    /// Does something at once, or behind what the links have no room for.
    pub(crate) fn do_later(&mut self, what: Later) {
        self.later.push_back(what);
        if self.later.len() == 1 {
            self.catch_up();
        }
        if !self.later.is_empty() {
            // A thread that is parked has not seen that there is something to try again.
            self.ep.wake();
        }
    }

    /// Does what the links had no room for.
    pub(crate) fn catch_up(&mut self) {
        for _ in 0..self.later.len() {
            let Some(what) = self.later.pop_front() else {
                return;
            };
            let rest = match what {
                Later::Answer(peer, header) => self.say_answer(peer, header),
                Later::Body(ask, tag) => self.send_body(ask, tag),
                Later::Fetch(posted, env, number) => self.ask_for(posted, env, number),
                Later::Watch(peer) => self.post_watch(peer),
                Later::Came(link, entry, from) => self.take_set_aside(link, entry, from),
            };
            self.later.extend(rest);
        }
    }

    fn say_answer(&mut self, peer: usize, header: Header) -> Option<Later> {
        let mut frame = self.spare.pop().unwrap_or_else(Frame::new);
        frame.write_header(&header);
        let said = self.say(peer, frame, true, Then::Nothing);
        let waits = said == Err(Errno::Again);
        self.peers[peer].owed -= usize::from(!waits);
        waits.then_some(Later::Answer(peer, header))
    }

    /// The bytes of a large message go.
    fn send_body(&mut self, ask: Ask, tag: u64) -> Option<Later> {
        let Ask {
            peer, report, buf, ..
        } = &ask;
        let (peer, report) = (*peer, *report);
        let buf = buf.as_ref()?;
        let Peering { link, at } = self.peering(peer);
        let key = self.ops.vacant_key();
        let flags = report.flags.intersection(LEVELS.union(ANSWERED));
        match self.links[link].send_body(buf, at, tag, flags, key) {
            Ok(()) => {
                let buf = ask.buf?;
                self.ops.insert(Op::Body(buf, peer, report));
                None
            }
            Err(Errno::Again) => Some(Later::Body(ask, tag)),
            Err(errno) => {
                drop(ask);
                self.not_sent(peer, &report, errno, "its bytes could not be sent");
                None
            }
        }
    }

    /// The receive of a large message is posted, and its bytes are asked for.
    fn ask_for(&mut self, mut posted: Posted, env: Envelope, number: u64) -> Option<Later> {
        let peer = env.src.0 as usize;
        let Peering { link, at } = self.peering(peer);
        let (key, tag) = (self.ops.vacant_key(), self.next_tag);
        match self.links[link].recv_body(&mut posted.buf, env.len, at, tag, key) {
            Ok(()) => {
                self.next_tag = (tag + 1) % TAGS;
                self.ops.insert(Op::Coming(posted, env));
                let header = Header {
                    tag,
                    number,
                    ..Header::new(What::Clear, self.life)
                };
                self.peers[peer].owed += 1;
                self.say_answer(peer, header)
            }
            Err(Errno::Again) => Some(Later::Fetch(posted, env, number)),
            Err(errno) => {
                let src = self.peer_addr(peer);
                let detail = "its bytes could not be asked for";
                self.ep.rx_failed(posted, errno, src, detail);
                None
            }
        }
    }

    fn post_watch(&mut self, peer: usize) -> Option<Later> {
        let Peering { link, at } = self.peering(peer);
        let key = self.ops.vacant_key();
        match self.links[link].watch(at, key) {
            Ok(()) => {
                self.ops.insert(Op::Watch(peer));
                None
            }
            Err(Errno::Again) => Some(Later::Watch(peer)),
            Err(_) => {
                self.peers[peer].is_watched = false;
                None
            }
        }
    }

    fn peering(&self, peer: usize) -> Peering {
        let peer = &self.peers[peer];
        Peering {
            link: peer.link,
            at: peer.at,
        }
    }

    /// Sends a frame to a peer.
    ///
    /// # Errors
    /// The link's; nothing was kept.
    pub(crate) fn say(
        &mut self,
        peer: usize,
        frame: Frame,
        is_answer: bool,
        then: Then,
    ) -> selvedge::Result {
        let Peering { link, at } = self.peering(peer);
        let key = self.ops.insert(Op::Say(frame, peer, then));
        let Op::Say(frame, ..) = &self.ops[key] else {
            return Ok(());
        };
        let said = self.links[link].send(frame, at, is_answer, key);
        if said.is_err()
            && let Op::Say(frame, ..) = self.ops.remove(key)
        {
            self.put_away(frame);
        }
        said
    }
}

/// Where a peer is.
struct Peering {
    link: usize,
    at: FiAddr,
}

/// Tags of bytes that are on their way at a time; the rest belongs to answers and watches.
const TAGS: u64 = 1 << 60;
