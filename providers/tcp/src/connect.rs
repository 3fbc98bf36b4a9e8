//! Connections of endpoints that have none in the eyes of the application: made at the first
//! operation, settled when both ends make one, and tried again while the peer is not there.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use selvedge::Errno;
use selvedge_kit::complaint::complain;
use selvedge_kit::sight::What;

use crate::config::CONTROL;
use crate::greet::Caller;
use crate::lane::{Stage, Terms};
use crate::proof::{self, Next};
use crate::socket::{Socket, is_not_ready};
use crate::state::State;
use crate::tls::{ALERT, is_insecure, unwanted};
use crate::wire::Nonsense;
use crate::wire::Order;
use crate::wire::hello::{Card, Hello, Introduction, Kind as Greeting};

/// Between two tries to reach a peer.
const RETRY: Duration = Duration::from_millis(10);

impl State {
    /// Begins to reach a peer.
    #[cold]
    pub(crate) fn reach(&mut self, peer: usize) -> usize {
        let now = Instant::now();
        let until = now + self.config.connect_timeout;
        let at = self.add_lane(peer, Stage::Connecting { until }, now);
        self.peers[peer].lane = Some(at);
        self.dial(at, now);
        at
    }

    /// Tries to connect.
    fn dial(&mut self, at: usize, now: Instant) {
        let lane = &mut self.lanes[at];
        let (Some(door), peer) = (&self.door, &self.peers[lane.peer]) else {
            return;
        };
        match Socket::connect(door.addr.ip(), peer.addr, &self.config.link) {
            Ok(socket) => self.connecting(at, socket, now),
            Err(cause) => self.not_there(at, &cause),
        }
    }

    /// The system connects.
    pub(crate) fn connecting(&mut self, at: usize, socket: Socket, now: Instant) {
        let lane = &mut self.lanes[at];
        lane.socket = Some(socket);
        lane.stage = Stage::Connecting {
            until: now + self.config.connect_timeout,
        };
        self.watch(at);
    }

    /// The system has connected, or failed to.
    pub(crate) fn connected(&mut self, at: usize) -> usize {
        let lane = &mut self.lanes[at];
        let Some(socket) = &lane.socket else {
            return 0;
        };
        match (socket.finish_connect(), &self.config.tls) {
            (Err(cause), _) => self.not_there(at, &cause),
            (Ok(()), None) => self.introduce(at),
            (Ok(()), Some(_)) => self.secure(at),
        }
        1
    }

    /// Begins to say who we are.
    pub(crate) fn introduce(&mut self, at: usize) {
        match self.config.key.is_none() {
            true => self.greet(at),
            false => self.ask_for_proof(at),
        }
    }

    fn ask_for_proof(&mut self, at: usize) {
        let (caller, question) = proof::Caller::ask();
        self.lanes[at].proof = Some(caller);
        self.ask(at, &question, Stage::Proving);
    }

    /// The listener may have proved that it has our key, or has asked for our proof.
    pub(crate) fn proved(&mut self, at: usize) -> usize {
        match self.hear(at) {
            Ok(false) => return 0,
            Ok(true) => {}
            Err(cause) if is_insecure(&cause) => {
                self.broken_off(at, &cause);
                return 1;
            }
            Err(cause) => {
                let what = format!("it does not prove that it has our auth_key: {cause}");
                self.not_there(at, &io::Error::new(cause.kind(), what));
                return 1;
            }
        }
        let lane = &mut self.lanes[at];
        let Some(caller) = &mut lane.proof else {
            return 1;
        };
        match caller.hear(&self.config.key, &mut lane.greeting) {
            Ok(Next::Wait) => {}
            Ok(Next::Prove(proof)) => self.ask(at, &proof, Stage::Proving),
            Ok(Next::Greet) => {
                lane.greeting.clear();
                lane.proof = None;
                self.greet(at);
            }
            Err(Nonsense(_)) => self.refused(at, "it has another auth_key"),
        }
        1
    }

    /// There is no talking to a peer, and no use in trying again.
    #[cold]
    pub(crate) fn refused(&mut self, at: usize, what: &str) {
        if self.door.is_none() {
            let cause = io::Error::new(io::ErrorKind::ConnectionRefused, what);
            return self.connection_failed(at, &cause);
        }
        let detail = format!(
            "{} cannot be reached: {what}",
            self.peers[self.lanes[at].peer]
        );
        self.lose(at, Errno::ConnRefused, &detail);
    }

    /// Says who we are.
    fn greet(&mut self, at: usize) {
        let hello = match &self.door {
            Some(door) => {
                let card = Card::request(door.addr.port());
                Hello::new(Greeting::Request, Some(self.own), &card.encode())
            }
            None => Hello::new(Greeting::Request, Some(self.own), self.connection.data()),
        };
        self.ask(at, &hello.encode(), Stage::Asking);
    }

    /// Sends what the peer is to answer.
    fn ask(&mut self, at: usize, bytes: &[u8], stage: Stage) {
        let lane = &mut self.lanes[at];
        let Some(socket) = &mut lane.socket else {
            return;
        };
        match socket.send_whole(bytes) {
            Ok(()) => {
                lane.stage = stage;
                self.watch(at);
            }
            Err(cause) => self.not_there(at, &cause),
        }
    }

    /// Takes what a peer has answered; whether that is anything.
    ///
    /// # Errors
    /// When it has ended the connection.
    fn hear(&mut self, at: usize) -> io::Result<bool> {
        let lane = &mut self.lanes[at];
        let Some(socket) = &mut lane.socket else {
            return Ok(false);
        };
        let mut bytes = [0; 512];
        match socket.recv_bytes(&mut bytes) {
            Ok(0) => Err(io::ErrorKind::ConnectionReset.into()),
            Ok(count) => {
                lane.greeting.extend_from_slice(&bytes[..count]);
                match socket.is_sealed() || !lane.greeting.starts_with(&ALERT) {
                    true => Ok(true),
                    false => Err(unwanted()),
                }
            }
            Err(cause) if is_not_ready(&cause) => Ok(false),
            Err(cause) => Err(cause),
        }
    }

    /// The peer may have answered.
    pub(crate) fn greeted(&mut self, at: usize) -> usize {
        match self.hear(at) {
            Ok(false) => return 0,
            Ok(true) => {}
            Err(cause) => {
                self.broken_off(at, &cause);
                return 1;
            }
        }
        let lane = &mut self.lanes[at];
        match Hello::parse(&lane.greeting) {
            Ok(None) => {}
            Ok(Some((hello, len))) => {
                let rest = lane.greeting.split_off(len);
                lane.rx.put_back(&rest);
                self.take_answer(at, &hello);
            }
            Err(Nonsense(what)) => {
                let peer = &self.peers[lane.peer];
                complain(CONTROL, format_args!("{peer} answers with {what}"));
                self.not_there(at, &io::ErrorKind::InvalidData.into());
            }
        }
        1
    }

    fn take_answer(&mut self, at: usize, hello: &Hello) {
        if self.door.is_none() {
            return self.take_connection_answer(at, hello);
        }
        let card = Card::parse(&hello.data).ok();
        match (hello.kind, card) {
            (Greeting::Answer, Some(card)) => {
                let version = card.answered();
                let terms = terms(hello, Some(&card), version);
                self.introduced(self.lanes[at].peer, hello);
                self.rise(at, terms);
            }
            // It wants its own request to be taken, or has another reason that passes. It is there,
            // and what it has to do first may take its time: handshakes with a crowd do.
            (Greeting::Refusal, _) => {
                let patience = self.config.peer_timeout.max(self.config.connect_timeout);
                let cause = io::ErrorKind::ConnectionRefused.into();
                self.try_again(at, &cause, patience);
            }
            _ => self.not_there(at, &io::ErrorKind::InvalidData.into()),
        }
    }

    /// Both ends have greeted each other: what waited goes.
    pub(crate) fn rise(&mut self, at: usize, terms: Terms) {
        let lane = &mut self.lanes[at];
        lane.terms = terms;
        lane.came_up();
        let waiting = std::mem::take(&mut lane.waiting);
        let peer = &mut self.peers[lane.peer];
        peer.is_lost = false;
        self.ep.sight.note(What::Met, &peer.to_string(), 0);
        for posting in waiting {
            self.enqueue(at, posting);
        }
        self.hot = at;
        self.stalled.push(at);
        self.soil(at);
        self.watch(at);
    }

    /// A peer could not be reached: it is tried again for a while.
    fn not_there(&mut self, at: usize, cause: &io::Error) {
        self.try_again(at, cause, self.config.peer_timeout);
    }

    /// Tries a peer again unless it has had that much time.
    pub(crate) fn try_again(&mut self, at: usize, cause: &io::Error, patience: Duration) {
        if self.door.is_none() {
            return self.connection_failed(at, cause);
        }
        let now = Instant::now();
        let lane = &mut self.lanes[at];
        if let Some(mut socket) = lane.socket.take() {
            socket.shut(std::net::Shutdown::Both);
            let _ = self.epoll.delete(&socket);
        }
        lane.watched = nix::sys::epoll::EpollFlags::empty();
        lane.greeting.clear();
        lane.proof = None;
        if now.duration_since(lane.since) < patience {
            let peer = &self.peers[lane.peer];
            log::info!(target: CONTROL, "{peer} cannot be reached yet, it is tried again: {cause}");
            lane.stage = Stage::Resting { until: now + RETRY };
            return;
        }
        let errno = match cause.kind() {
            io::ErrorKind::TimedOut => Errno::TimedOut,
            io::ErrorKind::HostUnreachable => Errno::HostUnreach,
            io::ErrorKind::NetworkUnreachable => Errno::NetUnreach,
            _ => Errno::ConnRefused,
        };
        let detail = format!("{} cannot be reached: {cause}", self.peers[lane.peer]);
        self.lose(at, errno, &detail);
    }

    /// Something about a lane that is not up had its time.
    pub(crate) fn time_is_up(&mut self, at: usize, now: Instant) {
        let lane = &self.lanes[at];
        match lane.stage {
            Stage::Resting { .. } => return self.dial(at, now),
            Stage::Connecting { .. } => {}
            Stage::Securing | Stage::Proving | Stage::Asking | Stage::Up => return,
        }
        let detail = format!("{} does not answer", self.peers[lane.peer]);
        match self.door.is_none() {
            true => self.connection_failed(at, &io::ErrorKind::TimedOut.into()),
            false => self.lose(at, Errno::TimedOut, &detail),
        }
    }

    /// Somebody wants a connection and has said who it is.
    pub(crate) fn called(&mut self, mut caller: Caller) {
        let (Some(door), Ok(card)) = (&self.door, Card::parse(&caller.hello.data)) else {
            return complain(
                CONTROL,
                format_args!("{} does not say who it is", caller.from),
            );
        };
        let Ok(here) = caller.socket.local_addr() else {
            return;
        };
        let own = (here.ip(), door.addr.port());
        let from = (caller.from.ip(), card.port);
        let peer = self.peer_named(SocketAddr::from(from));
        self.introduced(peer, &caller.hello);
        if own == from {
            let now = Instant::now();
            let at = self.add_lane(peer, Stage::Up, now);
            return self.accept(at, caller, &card);
        }
        match self.verdict(peer, &caller, &card, is_before(from, own)) {
            Verdict::Accept(at) => self.accept(at, caller, &card),
            Verdict::Refuse => {
                let hello = Hello::new(Greeting::Refusal, None, &card.encode());
                // Whoever does not hear it notices the end.
                let _ = caller.socket.send_whole(&hello.encode());
            }
        }
    }

    /// A peer says what it is.
    fn introduced(&mut self, peer: usize, hello: &Hello) {
        if let Some(introduction) = hello.introduction {
            self.peers[peer].is_context(introduction.context);
        }
    }

    /// Whether a peer's request is to be taken, and by which lane. When both ends make a request,
    /// that of the one with the higher address counts.
    fn verdict(&mut self, peer: usize, caller: &Caller, card: &Card, is_before: bool) -> Verdict {
        let now = Instant::now();
        if let Some(at) = self.peers[peer].lane
            && self.lanes[at].is_up()
        {
            // It may be over, and nobody has looked.
            let serial = self.lanes[at].serial;
            self.read(at, usize::MAX, &mut selvedge_kit::cq::Sink::none());
            if self.is_same(at, serial) {
                let terms = &self.lanes[at].terms;
                let life = caller.hello.introduction.map(|it| it.life);
                let is_same_life = match (terms.life, life) {
                    (Some(known), Some(new)) => known == new,
                    (None, None) => terms.pid == card.pid,
                    _ => false,
                };
                if is_same_life {
                    return Verdict::Refuse;
                }
                let detail = format!("{} has started anew", self.peers[peer]);
                self.lose(at, Errno::ConnReset, &detail);
            }
        }
        match self.peers[peer].lane {
            Some(at) => match self.lanes[at].stage {
                Stage::Connecting { .. } | Stage::Securing | Stage::Proving | Stage::Asking
                    if is_before =>
                {
                    Verdict::Refuse
                }
                _ => Verdict::Accept(at),
            },
            None => {
                let at = self.add_lane(peer, Stage::Up, now);
                self.peers[peer].lane = Some(at);
                Verdict::Accept(at)
            }
        }
    }

    /// Takes a peer's request.
    fn accept(&mut self, at: usize, caller: Caller, card: &Card) {
        let Caller {
            mut socket,
            hello,
            rest,
            ..
        } = caller;
        let own = hello.introduction.map(|_| self.own);
        let answer = Hello::new(Greeting::Answer, own, &card.answer().encode());
        let said = socket.send_whole(&answer.encode());
        let lane = &mut self.lanes[at];
        if let Some(mut old) = lane.socket.replace(socket) {
            let _ = self.epoll.delete(&old);
            old.shut(std::net::Shutdown::Both);
        }
        lane.watched = nix::sys::epoll::EpollFlags::empty();
        lane.rx.put_back(&rest);
        if let Err(cause) = said {
            return self.lane_ended(at, Err(cause));
        }
        self.rise(at, terms(&hello, Some(card), card.asked()));
    }
}

enum Verdict {
    Accept(usize),
    Refuse,
}

/// What is spoken after this greeting of a peer.
pub(crate) fn terms(hello: &Hello, card: Option<&Card>, version: u8) -> Terms {
    let life = hello.introduction.map(|Introduction { life, .. }| life);
    Terms {
        order: hello.order,
        // Ends of different orders have never understood each other's offers.
        offers: version > 0 && hello.order == Order::Own,
        life,
        pid: card.map_or(0, |card| card.pid),
    }
}

/// Whether the first address is the lower one, as every release compares them: by bytes as they are
/// sent.
fn is_before(first: (IpAddr, u16), second: (IpAddr, u16)) -> bool {
    let octets = |ip| match ip {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    (octets(first.0), first.1) < (octets(second.0), second.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_compare_by_their_bytes() {
        let addr = |text: &str| {
            let addr: SocketAddr = text.parse().unwrap();
            (addr.ip(), addr.port())
        };
        let ascending = ["9.0.0.1:9", "10.0.0.1:1", "10.0.0.1:256", "10.0.0.2:1"];
        for pair in ascending.windows(2) {
            assert!(is_before(addr(pair[0]), addr(pair[1])), "{pair:?}");
            assert!(!is_before(addr(pair[1]), addr(pair[0])), "{pair:?}");
        }
        assert!(!is_before(addr("10.0.0.1:1"), addr("10.0.0.1:1")));
    }
}
