//! Last words: what a life of a peer had sent and left unheard when its name went to the next one.
//!
//! Its hello waits at our socket, and its commands in the region that came along. Whoever connects
//! to the next life hears them first ([`Connector::hear_last_words`]); and where messages wait for a
//! life to come, they are put aside meanwhile ([`crate::peers::peer::Aside`]), because this one is not theirs.

use std::time::Instant;

use selvedge::Error;

use crate::connect::Connector;
use crate::connect::intake::Mark;
use crate::connect::packet::Introduction;
use crate::connect::rendezvous::{ContactError, Link};
use crate::peers::peer::{Next, State as PeerState};

impl Connector<'_> {
    /// Connects to the next life of a peer, unless that was done before.
    pub(crate) fn next_life(&mut self, index: usize) -> Result<Next, ContactError> {
        let peer = &mut self.peers[index];
        let next = peer.next.take_if(|next| !next.link.is_over());
        if let Some(next) = next {
            return Ok(next);
        }
        peer.next = None;
        let link = Link::connect(&peer.name, self.setup.config.directory.as_deref())?;
        let mark = self.control.intake.mark();
        Ok(Next { link, mark })
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
