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

use crate::atomic::Backlog;
use crate::packet::Introduction;
use crate::peer::{Outbox, Peer, State as PeerState};
use crate::rendezvous::Link;
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

/// Looks at the socket in a row: as many as empty it when it is full, unless somebody keeps filling
/// it.
const LOOKS: usize = 129;

impl State {
    /// Receives what earlier lives have left at our socket, once a connection to the next one shows
    /// that they are over: if they ever talked to us, they did so before their name was free.
    pub(crate) fn hear_last_words(&mut self, index: usize) {
        self.peers[index].has_next = true;
        self.hear_all_strangers(index);
        let peer = &mut self.peers[index];
        peer.has_next = matches!(peer.state, PeerState::Ending { .. });
    }

    /// Hears whoever has connected so far, and then this peer, which may be one of them.
    pub(crate) fn hear_all_strangers(&mut self, index: usize) {
        for (link, introduction) in self.control.take_early() {
            self.welcome(link, introduction);
        }
        for _ in 0..LOOKS {
            if !self.meet_strangers(Instant::now()) {
                break;
            }
        }
        self.hear(index);
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
