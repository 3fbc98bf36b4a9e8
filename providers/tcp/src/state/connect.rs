//! Connections of endpoints that the application does not connect: made at the first operation,
//! settled when both ends make one, and tried again while the peer is not there.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use selvedge::Errno;
use selvedge_kit::cq::Sink;
use selvedge_kit::rate_limit::warn_limited;
use selvedge_kit::telemetry::EventKind;

use super::State;
use crate::accept::Caller;
use crate::config::CONTROL;
use crate::connection::Stage;
use crate::connection::failure::Failure;
use crate::connection::handshake::{Ends, Setback, Step};
use crate::connection::receive::End;
use crate::socket::Socket;
use crate::wire::hello::{Card, Hello, Kind, Terms};

/// What is the matter with a peer whose private data is not that of an endpoint without connections.
const ANOTHER_LAYER: &str = "it is an endpoint with connections, or speaks the protocol of a layer \
                             over them (tcp;ofi_rxm): both ends have to ask for tcp and FI_EP_RDM";
/// Between two tries to reach a peer.
const RETRY: Duration = Duration::from_millis(10);

impl State {
    /// Begins to reach a peer.
    #[cold]
    pub(super) fn reach(&mut self, peer: usize) -> usize {
        let now = Instant::now();
        let until = now + self.config.connect_timeout;
        let port = self
            .acceptor
            .as_ref()
            .map_or(0, |acceptor| acceptor.addr.port());
        let request = Card::request(port).encode().to_vec();
        let at = (self.connections).add(peer, Stage::Connecting { until }, request, now);
        self.peers[peer].connection = Some(at);
        self.dial(at, now);
        at
    }

    /// Tries to connect.
    fn dial(&mut self, at: usize, now: Instant) {
        let Some(acceptor) = &self.acceptor else {
            return;
        };
        let connection = &mut self.connections[at];
        let to = self.peers[connection.peer].addr;
        match Socket::connect(acceptor.addr.ip(), to, &self.config.link) {
            Ok(socket) => {
                connection.stage = Stage::Connecting {
                    until: now + self.config.connect_timeout,
                };
                self.connections.set_socket(at, socket);
                self.watch(at);
            }
            Err(cause) => self.set_back(at, Setback::not_there(&self.config, cause)),
        }
    }

    /// Moves the handshake of a connection on; whether something had come.
    pub(super) fn shake_hands(&mut self, at: usize) -> usize {
        let connection = &mut self.connections[at];
        let ends = Ends {
            config: &self.config,
            own: self.own,
            peer: &self.peers[connection.peer],
            is_unconnected: self.cm.is_none(),
        };
        let step = connection.shake_hands(ends);
        let is_news = !matches!(step, Ok(Step::Nothing));
        match step {
            Ok(Step::Nothing | Step::Moved) => self.watch(at),
            Ok(Step::Greeted(hello)) if self.cm.is_some() => {
                self.take_answer_of_passive(at, hello);
            }
            Ok(Step::Greeted(hello)) => self.take_answer(at, &hello),
            Err(setback) => self.set_back(at, setback),
        }
        usize::from(is_news)
    }

    fn take_answer(&mut self, at: usize, hello: &Hello) {
        let card = Card::of(hello).ok();
        let setback = match (hello.kind, card) {
            (Kind::Answer, Some(card)) => {
                self.introduced(self.connections[at].peer, hello);
                return self.establish(at, Terms::new(hello, Some(&card), card.answered()));
            }
            // It wants its own request to be taken, or has another reason that passes. It is there,
            // and what it has to do first may take its time: handshakes with many peers do.
            (Kind::Refusal, card) => {
                let patience = self.config.peer_timeout.max(self.config.connect_timeout);
                let cause = match card {
                    Some(_) => io::ErrorKind::ConnectionRefused.into(),
                    None => io::Error::new(io::ErrorKind::ConnectionRefused, ANOTHER_LAYER),
                };
                Setback::Retry(cause, patience)
            }
            _ => {
                let cause = io::Error::new(io::ErrorKind::InvalidData, ANOTHER_LAYER);
                Setback::not_there(&self.config, cause)
            }
        };
        self.set_back(at, setback);
    }

    /// Both ends have greeted each other: what waited goes.
    pub(super) fn establish(&mut self, at: usize, terms: Terms) {
        let connection = &mut self.connections[at];
        connection.leave_handshake(Stage::Up);
        let waiting = connection.outgoing.establish(terms);
        let peer = &mut self.peers[connection.peer];
        peer.is_lost = false;
        self.ep
            .stats
            .record_event(EventKind::Connected, &peer.to_string(), 0);
        for posting in waiting {
            self.queue(at, posting);
        }
        self.polling.hot = at;
        self.connections.mark_stalled(at);
        self.schedule(at);
        self.watch(at);
    }

    /// A handshake has ended: the peer is tried again, or the connection is given up.
    fn set_back(&mut self, at: usize, setback: Setback) {
        let (cause, patience) = match setback {
            Setback::Retry(cause, patience) => (cause, patience),
            Setback::Refused(what) => {
                let cause = io::Error::new(io::ErrorKind::ConnectionRefused, what);
                (cause, Duration::ZERO)
            }
        };
        let (now, connection) = (Instant::now(), &self.connections[at]);
        let peer = &self.peers[connection.peer];
        if self.cm.is_some() {
            let failure = Failure::not_connected(peer, &cause);
            return self.lose(at, &failure);
        }
        if now.duration_since(connection.since) >= patience {
            let failure = Failure::unreachable(peer, &cause);
            return self.lose(at, &failure);
        }
        log::info!(target: CONTROL, "{peer} cannot be reached yet, it is tried again: {cause}");
        self.connections.disconnect(at);
        self.connections[at].leave_handshake(Stage::Resting { until: now + RETRY });
    }

    /// Something about a connection that is not up had its time.
    pub(super) fn time_is_up(&mut self, at: usize, now: Instant) {
        let connection = &self.connections[at];
        let peer = &self.peers[connection.peer];
        let failure = match connection.stage {
            Stage::Resting { .. } => return self.dial(at, now),
            Stage::Connecting { .. } if self.cm.is_some() => {
                Failure::not_connected(peer, &io::ErrorKind::TimedOut.into())
            }
            Stage::Connecting { .. } => {
                Failure::new(Errno::TimedOut, format!("{peer} does not answer"))
            }
            Stage::Securing | Stage::Proving | Stage::Asking => return self.still_silent(at, now),
            Stage::Up => return,
        };
        self.lose(at, &failure);
    }

    /// A peer's host has taken the connection, and its program has not answered for a while: says so,
    /// at intervals that double, or gives up if the configuration limits the wait.
    #[cold]
    fn still_silent(&mut self, at: usize, now: Instant) {
        let connection = &mut self.connections[at];
        let peer = &self.peers[connection.peer];
        let Some(silence) = &mut connection.silence else {
            return;
        };
        let waited = now.duration_since(silence.since);
        let limit = self.config.answer_timeout;
        if !limit.is_zero() && waited >= limit {
            let detail = format!(
                "{peer} does not answer: its host has taken the connection, and its program has \
                 made no progress within FI_TCP_ANSWER_TIMEOUT, or speaks another protocol"
            );
            return self.lose(at, &Failure::new(Errno::TimedOut, detail));
        }
        silence.until = silence.since + self.config.silence(waited);
        warn_limited(
            CONTROL,
            format_args!(
                "{peer} has not answered for {waited:.1?}: its host has taken the connection, and \
                 it is waited for until its program makes progress; if another protocol is spoken \
                 there, correct the address, and FI_TCP_ANSWER_TIMEOUT limits the wait"
            ),
        );
    }

    /// Lets in the peers that have come.
    pub(super) fn accept_callers(&mut self) -> usize {
        let Some(acceptor) = &mut self.acceptor else {
            return 0;
        };
        let callers = acceptor.poll(&self.connections.epoll);
        let count = callers.len();
        callers.into_iter().for_each(|caller| self.called(caller));
        count
    }

    /// A peer wants a connection and has said who it is.
    fn called(&mut self, mut caller: Caller) {
        let Some(acceptor) = &self.acceptor else {
            return;
        };
        let Ok(card) = Card::of(&caller.hello) else {
            let from = caller.from;
            warn_limited(CONTROL, format_args!("{from} is refused: {ANOTHER_LAYER}"));
            let hello = Hello::new(Kind::Refusal, None, &[]);
            // A peer that does not read it notices the end.
            let _ = caller.socket.send_whole(&hello.encode());
            return;
        };
        let Ok(here) = caller.socket.local_addr() else {
            return;
        };
        let own = (here.ip(), acceptor.addr.port());
        let from = (caller.from.ip(), card.port);
        let needs = |peer| self.matching.needs(peer);
        let peer = self.peers.named(SocketAddr::from(from), needs);
        self.introduced(peer, &caller.hello);
        let at = match own == from {
            true => Some(self.add_accepted(peer)),
            false => self.place_of(peer, &caller, &card, is_before(from, own)),
        };
        match at {
            Some(at) => self.accept(at, caller, &card),
            None => {
                let hello = Hello::new(Kind::Refusal, None, &card.encode());
                // A peer that does not get it notices the end.
                let _ = caller.socket.send_whole(&hello.encode());
            }
        }
    }

    fn add_accepted(&mut self, peer: usize) -> usize {
        (self.connections).add(peer, Stage::Up, Vec::new(), Instant::now())
    }

    /// A peer says what it is.
    fn introduced(&mut self, peer: usize, hello: &Hello) {
        if let Some(introduction) = hello.introduction {
            self.peers[peer].set_context(introduction.context);
        }
    }

    /// The connection that a peer's request is to be taken by, unless it is to be refused. When both
    /// ends make a request, that of the one with the higher address counts.
    fn place_of(
        &mut self,
        peer: usize,
        caller: &Caller,
        card: &Card,
        is_before: bool,
    ) -> Option<usize> {
        if let Some(at) = self.peers[peer].connection
            && self.connections[at].is_up()
        {
            // It may be over, and nobody has looked.
            let id = self.connections[at].id;
            self.read(at, usize::MAX, &mut Sink::none());
            if self.connections.has(id) {
                let terms = self.connections[at].terms();
                let life = caller.hello.introduction.map(|it| it.life);
                let is_same_life = match (terms.life, life) {
                    (Some(known), Some(new)) => known == new,
                    (None, None) => terms.pid == card.pid,
                    _ => false,
                };
                if is_same_life {
                    return None;
                }
                let detail = format!("{} has started anew", self.peers[peer]);
                self.lose(at, &Failure::new(Errno::ConnReset, detail));
            }
        }
        let Some(at) = self.peers[peer].connection else {
            let at = self.add_accepted(peer);
            self.peers[peer].connection = Some(at);
            return Some(at);
        };
        let is_asking = match self.connections[at].stage {
            Stage::Connecting { .. } | Stage::Securing | Stage::Proving | Stage::Asking => true,
            Stage::Resting { .. } | Stage::Up => false,
        };
        (!is_asking || !is_before).then_some(at)
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
        let answer = Hello::new(Kind::Answer, own, &card.answer().encode());
        let sent = socket.send_whole(&answer.encode());
        self.connections.set_socket(at, socket);
        self.connections[at].incoming.put_back(&rest);
        if let Err(cause) = sent {
            return self.end(at, End::Closed(Err(cause)));
        }
        self.establish(at, Terms::new(&hello, Some(card), card.asked()));
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
