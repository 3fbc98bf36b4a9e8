//! Last words: what a life of a peer had sent and left unheard when its name went to the next one.
//!
//! Its hello waits at our socket, and its commands in the region that came along. Whoever connects
//! to the next life hears them first ([`Connector::hear_last_words`]); and where messages wait for a
//! life to come, they are put aside meanwhile ([`crate::peers::peer::Aside`]), because this one is not theirs.

use std::time::Instant;

use selvedge::Error;
use selvedge_kit::auth::proof::{self as auth, Initiator, Mismatch};

use crate::connect::Connector;
use crate::connect::intake::Mark;
use crate::connect::packet::{Introduction, Packet, encode_proof, encode_question};
use crate::connect::rendezvous::{ContactError, Heard, Link};
use crate::peers::peer::{Next, Proof, State as PeerState};

impl Connector<'_> {
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
        let link = Link::connect(&peer.name, self.setup.config.directory.as_deref())?;
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
            let (caller, nonce) = Initiator::start();
            let question = encode_question(&nonce, &self.control.name);
            next.link.send(&question, &[])?;
            let since = Instant::now();
            next.proof = Some(Box::new(Proof { caller, since }));
            return Ok(false);
        };
        let is_late = proof.since.elapsed() >= self.setup.config.hello_timeout;
        let said = next.link.receive().map_err(ContactError::Untrusted)?;
        let word = match said {
            Heard::Nothing | Heard::Short if !is_late || is_awaited(&self.peers[index].state) => {
                return Ok(false);
            }
            Heard::Nothing | Heard::Short | Heard::End => {
                return Err(self.must_ask_again(index, is_late));
            }
            Heard::Packet(packet) => match (&proof.caller, *packet) {
                (_, Packet::Refusal { errno, why }) => {
                    return Err(ContactError::Refused(Error::new(errno, why)));
                }
                (Initiator::NonceSent { .. }, Packet::Nonce(word))
                | (Initiator::ProofSent { .. }, Packet::Proof(word)) => Ok(word),
                _ => Err(Mismatch),
            },
        };
        match word.and_then(|word| proof.caller.receive(&self.control.key, &word)) {
            Ok(auth::Step::SendProof(proof)) => match next.link.send(&encode_proof(&proof), &[]) {
                Ok(()) => Ok(false),
                Err(_) => Err(self.must_ask_again(index, is_late)),
            },
            Ok(auth::Step::Done) => Ok(true),
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
            *deadline = Instant::now() + self.setup.config.peer_timeout;
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
        self.listen(index);
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
            Ok(()) => self.listen(index),
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
        let peer = &mut self.peers[index];
        self.schedule.activate(peer, &self.setup.ep);
    }
}

fn is_awaited(state: &PeerState) -> bool {
    matches!(state, PeerState::Waiting { .. })
}
