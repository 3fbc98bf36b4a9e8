//! Greetings: a client's attempts to connect, and a server's consent or refusal.

use std::time::{Duration, Instant};

use selvedge::{Address, FiAddr};

use super::link::closing::send_close;
use super::state::{Change, State};
use crate::machine::Role;
use crate::port::{Key, Port, Token};
use crate::wire::{Greeting, Header, Kind, Limits, Refusal};
use crate::{Error, Message};

/// The time between two attempts at a server that is not there.
const PAUSE: Duration = Duration::from_millis(20);
/// The time after which the next address of a silent server is tried, or its only one again. The
/// server that took the greeting may have died, and another one may have its name. A server ignores
/// the second greeting of a connected client.
const SILENCE: Duration = Duration::from_secs(1);
/// As [`SILENCE`], over a transport that may drop the server's consent, because it has no connection
/// to the client yet.
const SILENCE_OF_LIBRARY: Duration = Duration::from_millis(100);
/// The maximum number of connections of a listener. Further clients are refused.
const CONNECTIONS_MAX: usize = 8192;
/// The key of a peer without a connection.
const NO_KEY: Key = Key {
    index: 0,
    generation: 0,
};

impl State {
    /// Makes the next attempt, if it is time.
    pub(super) fn attempt(&mut self, ports: &[Port], now: Instant) {
        if self.role == Role::Server || self.attempts.outcome.is_some() {
            return;
        }
        if let Some(at) = self.attempts.deadline {
            if at <= now {
                let expired = self.attempts.expired();
                return self.settle(Err(expired));
            }
            self.sweep_at(at);
        }
        if let Some(at) = self.attempts.next_at.filter(|&at| now < at) {
            return self.sweep_at(at);
        }
        let attempts = &mut self.attempts;
        let index = attempts.next % attempts.targets.len().max(1);
        attempts.next += 1;
        let Some(&(port, peer, _)) = attempts.targets.get(index) else {
            return;
        };
        let nonce = attempts.nonce;
        let at = if ports[port].scheme.reports_peers() {
            now + SILENCE
        } else {
            now + SILENCE_OF_LIBRARY
        };
        self.attempts.next_at = Some(at);
        self.sweep_at(at);
        self.send_greeting(ports, (port, peer), Kind::Hello, nonce);
    }

    /// Notes that an attempt has failed, and begins the next one after a pause.
    pub(super) fn attempt_failed(&mut self, reason: &str) {
        if self.role == Role::Server || self.attempts.outcome.is_some() {
            return log::debug!("a greeting has failed: {reason}");
        }
        reason.clone_into(&mut self.attempts.reason);
        let at = Instant::now() + PAUSE;
        self.attempts.next_at = Some(at);
        self.sweep_at(at);
    }

    /// Takes in a greeting. The peer is in the address vector, or its address is `sender`.
    pub(super) fn greet(
        &mut self,
        ports: &[Port],
        port: usize,
        (peer, sender): (Option<FiAddr>, Option<Address>),
        header: Header,
        payload: &Message,
    ) {
        match (self.role, header.kind, peer) {
            (Role::Server, Kind::Hello, _) => {
                self.accept(ports, port, (peer, sender), header.id, payload);
            }
            (Role::Client, Kind::Welcome, Some(peer)) => {
                self.welcomed(ports, (port, peer), header.id, payload);
            }
            (Role::Client, Kind::Refuse, Some(peer)) if self.attempts.outcome.is_none() => {
                let refusal = Refusal::parse(header.id, payload);
                self.refused((port, peer), refusal);
            }
            _ => log::debug!("{peer:?} sent {:?} at the wrong time", header.kind),
        }
    }

    /// A `Hello` of a client.
    fn accept(
        &mut self,
        ports: &[Port],
        port: usize,
        (peer, sender): (Option<FiAddr>, Option<Address>),
        nonce: u64,
        payload: &Message,
    ) {
        let Ok(greeting) = Greeting::parse(payload) else {
            return log::debug!("{sender:?} sent a malformed greeting");
        };
        let sender = if ports[port].scheme.reports_peers() {
            sender
        } else {
            stated_address(greeting)
        };
        let peer = match (peer, &sender) {
            (Some(peer), _) => peer,
            (None, Some(sender)) => match ports[port].insert(sender) {
                Ok(peer) => peer,
                Err(error) => return log::warn!("a client cannot be accepted: {error}"),
            },
            (None, None) => return,
        };
        if let Some(&index) = self.peers[port].get(&peer) {
            if self
                .links
                .get(index)
                .is_some_and(|link| link.nonce == nonce)
            {
                return;
            }
            self.end(ports, index, &crate::End::Remote);
        }
        let Some(remote) = greeting
            .limits
            .filter(|_| self.options.version == greeting.version)
        else {
            let refusal = Refusal::Version(self.options.version);
            return self.refuse(ports, (port, peer), &refusal);
        };
        if self.links.len() >= CONNECTIONS_MAX {
            let text = format!("the server has {CONNECTIONS_MAX} clients already");
            return self.refuse(ports, (port, peer), &Refusal::Other(text));
        }
        let scheme = ports[port].scheme;
        let address = sender.map_or_else(|| format!("{scheme}://{peer:?}"), |it| it.to_string());
        self.open(ports, (port, peer), (address, nonce), remote);
    }

    /// Accepts a client.
    fn open(
        &mut self,
        ports: &[Port],
        (port, peer): (usize, FiAddr),
        names: (String, u64),
        remote: Limits,
    ) {
        let nonce = names.1;
        if !self.send_greeting(ports, (port, peer), Kind::Welcome, nonce) {
            return self.linger(port, peer);
        }
        match self.connect(ports, (port, peer), names, remote) {
            Ok(index) => {
                if let Some(link) = self.links.get(index) {
                    let shared = std::sync::Arc::clone(&link.shared);
                    self.changes.push_back(Change::Connected(shared));
                    self.woken.append(&mut self.change_wakers);
                }
            }
            Err(error) => {
                log::warn!("a client cannot be accepted: {error}");
                send_close(&ports[port], peer, NO_KEY, 0, &error.to_string());
                self.linger(port, peer);
            }
        }
    }

    fn refuse(&mut self, ports: &[Port], (port, peer): (usize, FiAddr), refusal: &Refusal) {
        let mut header = Header::new(Kind::Refuse);
        header.id = refusal.code();
        self.send_text(ports, (port, peer), header, refusal.text().as_bytes());
        self.linger(port, peer);
    }

    /// The consent of a server.
    fn welcomed(
        &mut self,
        ports: &[Port],
        (port, peer): (usize, FiAddr),
        nonce: u64,
        payload: &Message,
    ) {
        if self.attempts.outcome.is_some() || nonce != self.attempts.nonce {
            // Another server was faster.
            return send_close(&ports[port], peer, NO_KEY, 0, "");
        }
        let remote = match Greeting::parse(payload) {
            Ok(Greeting {
                limits: Some(remote),
                ..
            }) => remote,
            Ok(Greeting { version, .. }) => {
                let refusal = Refusal::Version(version);
                return self.refused((port, peer), refusal);
            }
            Err(malformed) => return self.attempt_failed(&malformed.to_string()),
        };
        let address = self.target(port, peer);
        let connected = self.connect(ports, (port, peer), (address, nonce), remote);
        let key = connected.map(|index| self.links[index].shared.key);
        self.settle(key);
    }

    fn refused(&mut self, (port, peer): (usize, FiAddr), refusal: Refusal) {
        match refusal {
            Refusal::Version(remote) => {
                let error = Error::Version {
                    address: self.target(port, peer),
                    local: self.options.version,
                    remote,
                };
                self.settle(Err(error));
            }
            Refusal::Other(text) => self.attempt_failed(&text),
        }
    }

    fn settle(&mut self, outcome: Result<Key, Error>) {
        self.attempts.outcome = Some(outcome);
        self.woken.extend(self.attempts.waker.take());
    }

    /// The text of a server's address.
    fn target(&self, port: usize, peer: FiAddr) -> String {
        let mut targets = self.attempts.targets.iter();
        let target = targets.find(|target| (target.0, target.1) == (port, peer));
        target.map_or_else(String::new, |(_, _, text)| text.clone())
    }

    /// Sends a `Hello` or `Welcome`. Returns whether it was posted.
    fn send_greeting(
        &mut self,
        ports: &[Port],
        to: (usize, FiAddr),
        kind: Kind,
        nonce: u64,
    ) -> bool {
        let stated = match stated_by(&ports[to.0]) {
            Ok(stated) => stated,
            Err(error) => {
                self.fail(ports, &error);
                return false;
            }
        };
        let payload = Greeting::encode(self.options.limits, self.options.version, &stated);
        let mut header = Header::new(kind);
        header.id = nonce;
        self.send_text(ports, to, header, &payload)
    }

    fn send_text(
        &mut self,
        ports: &[Port],
        (port, peer): (usize, FiAddr),
        mut header: Header,
        payload: &[u8],
    ) -> bool {
        header.len = payload.len() as u64;
        let port = &ports[port];
        let frame = port.message_from(payload);
        let frame = frame.and_then(|message| port.pooled(message.into_frame(&header)));
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => {
                self.fail(ports, &error);
                return false;
            }
        };
        // A `Hello` has a completion, because its result is the reason that a client reports.
        match port.send(frame, peer, Token::Hello) {
            Ok(()) => true,
            Err(error) => {
                self.attempt_failed(&error.errno.to_string());
                false
            }
        }
    }
}

/// The address that a greeting states, where the transport does not report the peer's.
fn stated_by(port: &Port) -> Result<Vec<u8>, Error> {
    if port.scheme.reports_peers() {
        return Ok(Vec::new());
    }
    Ok(port.address()?.to_bytes())
}

/// The address that a client states. Nothing vouches for it.
fn stated_address(greeting: Greeting<'_>) -> Option<Address> {
    let address = Address::from_bytes(greeting.address);
    if address.is_none() {
        log::debug!("a client does not state its address");
    }
    address
}

#[cfg(test)]
mod tests {
    use std::thread;

    use crate::{Error, Listener, Options, connect_with};

    #[test]
    fn another_version_of_either_side_is_an_error_with_both_numbers() {
        for (name, server, client) in [("newer-server", 2, 1), ("newer-client", 1, 2)] {
            let of_version = |version| {
                let mut options = Options::new();
                options.version = version;
                options
            };
            let address = format!("shm://{name}-{}", std::process::id());
            let listener = Listener::bind_with(&address, &of_version(server)).unwrap();
            thread::scope(|scope| {
                let error = scope.spawn(|| connect_with(&address, &of_version(client)).wait());
                while !error.is_finished() {
                    let time = std::time::Duration::from_millis(10);
                    let event = listener.event().wait_timeout(time);
                    assert!(matches!(event, Err(Error::Timeout(_))), "{event:?}");
                }
                let expected = Error::Version {
                    address: address.clone(),
                    local: client,
                    remote: server,
                };
                assert_eq!(error.join().unwrap().unwrap_err(), expected);
            });
        }
    }
}
