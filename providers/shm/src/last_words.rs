//! Last words: what a life of a peer had sent and left unheard when its name went to the next one.
//!
//! Its hello waits at our socket, and its commands in the region that came along. Whoever connects
//! to the next life hears them first ([`State::hear_last_words`]); and where messages wait for a
//! life to come, they are put aside meanwhile ([`Aside`]), because this one is not theirs.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Instant;

use selvedge::Error;
use selvedge_kit::Report;
use selvedge_kit::auth::proof::{self as auth, Caller, Mismatch};

use crate::atomic::Backlog;
use crate::intake::Mark;
use crate::packet::{Introduction, Packet, encode_proof, encode_question};
use crate::peer::{Outbox, Peer, State as PeerState};
use crate::rendezvous::{ContactError, Heard, Link};
use crate::rma::Later;
use crate::state::State;

/// What was meant for a life that has not answered yet, while an earlier one is heard.
#[derive(Debug)]
pub(crate) struct Aside {
    state: PeerState,
    out: Option<Outbox>,
    links: Vec<Link>,
    pidfd: Option<OwnedFd>,
    atomics: Backlog,
    held: Vec<Report>,
    later: VecDeque<Later>,
    is_careful: bool,
    is_fenced: bool,
}

impl Aside {
    /// See [`State::close`].
    pub(crate) fn close(&self) {
        if let Some(out) = &self.out {
            out.region.close();
        }
    }
}

impl Peer {
    /// Whether messages wait for its next life.
    fn is_awaited(&self) -> bool {
        matches!(self.state, PeerState::Waiting { .. })
    }

    /// Whether its next life has been asked to prove its key, and has not hung up.
    pub(crate) fn is_asked(&self) -> bool {
        self.next.as_ref().is_some_and(|next| next.proof.is_some())
    }

    /// Puts aside what is meant for the next life; it is as if nothing had been sent to it.
    fn put_aside(&mut self) {
        self.has_next = true;
        self.aside = Some(Box::new(Aside {
            state: std::mem::replace(&mut self.state, PeerState::Idle),
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

    fn take_back(&mut self, aside: Aside) {
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
    proof: Option<Box<Proof>>,
}

/// What has come of the proof of a life that was asked for it.
#[derive(Debug)]
struct Proof {
    caller: Caller,
    since: Instant,
}

impl State {
    /// Connects to the next life of a peer, unless that was done before.
    pub(crate) fn next_life(&mut self, index: usize) -> Result<Next, ContactError> {
        let peer = &mut self.peers[index];
        // One that has refused us has said why before it ended.
        let is_of_use = |next: &mut Next| next.proof.is_some() || !next.link.is_over();
        let next = peer.next.take_if(is_of_use);
        if let Some(next) = next {
            return Ok(next);
        }
        peer.next = None;
        let link = Link::connect(&peer.name, self.config.directory.as_deref())?;
        let mark = self.control.intake.mark();
        Ok(Next {
            link,
            mark,
            proof: None,
        })
    }

    /// Whether the next life of a peer has proved that it has our key, if we have one; asks it for
    /// that first, and answers it.
    ///
    /// # Errors
    /// When it has not the key, or hangs up.
    pub(crate) fn is_trusted(
        &mut self,
        index: usize,
        next: &mut Next,
    ) -> Result<bool, ContactError> {
        if self.control.key.is_none() {
            return Ok(true);
        }
        let Some(proof) = &mut next.proof else {
            let (caller, nonce) = Caller::ask();
            let question = encode_question(&nonce, &self.control.name);
            next.link.send(&question, &[])?;
            let since = Instant::now();
            next.proof = Some(Box::new(Proof { caller, since }));
            return Ok(false);
        };
        let is_late = proof.since.elapsed() >= self.config.hello_timeout;
        let said = next.link.receive().map_err(ContactError::Untrusted)?;
        let word = match said {
            Heard::Nothing | Heard::Short if !is_late || self.peers[index].is_awaited() => {
                return Ok(false);
            }
            Heard::Nothing | Heard::Short | Heard::End => {
                return Err(self.must_ask_again(index, is_late));
            }
            Heard::Packet(packet) => match (&proof.caller, *packet) {
                (_, Packet::Refusal { errno, why }) => {
                    return Err(ContactError::Refused(Error::new(errno, why)));
                }
                (Caller::Asked { .. }, Packet::Nonce(word))
                | (Caller::Proved { .. }, Packet::Proof(word)) => Ok(word),
                _ => Err(Mismatch),
            },
        };
        match word.and_then(|word| proof.caller.hear(&self.control.key, &word)) {
            Ok(auth::Next::Prove(proof)) => match next.link.send(&encode_proof(&proof), &[]) {
                Ok(()) => Ok(false),
                Err(_) => Err(self.must_ask_again(index, is_late)),
            },
            Ok(auth::Next::Continue) => Ok(true),
            Err(Mismatch) => {
                let error = self.control.has_another_key(&self.peers[index].name);
                Err(ContactError::Untrusted(error))
            }
        }
    }

    /// The next life of a peer has hung up before it has proved its key. If that took long, one end
    /// made no progress meanwhile, and the wait for the peer begins anew.
    fn must_ask_again(&mut self, index: usize, is_late: bool) -> ContactError {
        if is_late && let PeerState::Waiting { deadline } = &mut self.peers[index].state {
            *deadline = Instant::now() + self.config.peer_timeout;
        }
        ContactError::Busy("it has not proved its auth_key")
    }

    /// Receives what earlier lives have left at our socket, once a connection to the next one shows
    /// that they are over: if they ever talked to us, they did so before their name was free. Whether
    /// that was all.
    pub(crate) fn hear_last_words(&mut self, index: usize, mark: Mark) -> bool {
        self.peers[index].has_next = true;
        let is_all = self.hear_all_before(index, mark);
        let peer = &mut self.peers[index];
        peer.has_next = !is_all || matches!(peer.state, PeerState::Ending { .. });
        is_all
    }

    /// Hears whoever had connected at a time, and then this peer, which may be one of them. Whether
    /// that was all: in one look few are heard.
    pub(crate) fn hear_all_before(&mut self, index: usize, mark: Mark) -> bool {
        for (link, introduction) in self.control.take_early() {
            self.welcome(link, introduction);
        }
        self.meet_strangers(Instant::now());
        self.hear(index);
        self.control.intake.has_taken(mark)
    }

    /// A connection that is over has brought the hello of a life, while messages wait for one or are
    /// with one that has not answered: receives what this one had sent.
    pub(crate) fn hear_out(
        &mut self,
        index: usize,
        link: Link,
        introduction: Introduction,
    ) -> Result<(), (Link, Error)> {
        self.peers[index].put_aside();
        let heard = self.accept(index, link, introduction);
        match heard {
            Ok(()) => self.hear(index),
            Err(_) => self.take_up(index),
        }
        heard
    }

    /// The life that was heard is over: what is meant for the next one counts again.
    pub(crate) fn take_up(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        let Some(aside) = peer.aside.take() else {
            return;
        };
        peer.take_back(*aside);
        if let PeerState::Waiting { .. } = peer.state {
            self.control.wait_again_for(index);
        }
        self.activate(index);
    }
}
