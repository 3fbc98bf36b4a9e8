//! Contexts that end, and everything that ends with them.
//!
//! The fabric tells of the end of those whom this one watches, and of those whom an operation goes to.
//! Whoever learns of it tells its neighbours, so that all know, after as many steps as a barrier has.

use std::time::Duration;

use super::peer::{InLine, State};
use super::{Engine, Mark};
use crate::wire::Said;
use crate::{Error, Result};

/// A fabric may still hold what a peer has said before it went, also if it takes nothing for it any
/// more: a goodbye, for one.
const LAST_WORDS: Duration = Duration::from_millis(100);

impl Engine {
    /// Has the fabric tell of the end of a peer, which has been met.
    pub(super) fn watch(&mut self, peer: usize) {
        if peer == self.me || self.peers[peer].is_watched {
            return;
        }
        let of = &self.peers[peer];
        let watched = self.nets[of.net].watch(of.addr, Mark::Watch(peer).context());
        match watched {
            Ok(()) => self.peers[peer].is_watched = true,
            Err(errno) => log::warn!("context {}: watching {peer}: {errno}", self.me),
        }
    }

    /// A watch has ended otherwise than by the end of its peer.
    #[cold]
    pub(super) fn watch_ended(&mut self, peer: usize, detail: &str) {
        log::debug!("context {}: watching {peer}: {detail}", self.me);
        self.peers[peer].is_watched = false;
    }

    /// Whether operations may be started with this context.
    ///
    /// # Errors
    /// Its loss.
    #[inline]
    pub(super) fn check_alive(&self, peer: usize) -> Result {
        match self.peers[peer].state {
            State::Here => Ok(()),
            State::Left => Err(self.lost(peer, "it has finalized")),
            State::Lost => Err(match &self.broken {
                Some(why @ Error::Lost { context, .. }) if *context == peer => why.clone(),
                _ => self.lost(peer, "it was lost earlier"),
            }),
        }
    }

    /// Gives up those who are gone or take no messages, once there was time to hear what they had to say.
    #[cold]
    pub(super) fn lose_suspects(&mut self) {
        for (peer, why, since) in std::mem::take(&mut self.suspects) {
            match since.elapsed() < LAST_WORDS {
                true => self.suspects.push((peer, why, since)),
                false => self.lose(peer, &why),
            }
        }
    }

    fn lost(&self, context: usize, detail: &str) -> Error {
        Error::Lost {
            context,
            size: self.size(),
            detail: detail.to_owned(),
        }
    }

    /// Notes that a context is gone, ends what was begun with it, and tells the others.
    #[cold]
    pub(super) fn lose(&mut self, peer: usize, detail: &str) {
        if self.peers[peer].state != State::Here || peer == self.me {
            return;
        }
        let known = self.obituary.as_ref().and_then(|obituary| obituary(peer));
        let why = self.lost(peer, known.as_deref().unwrap_or(detail));
        self.peers[peer].state = State::Lost;
        self.end_of(peer, &why);
        let Error::Lost { detail, .. } = &why else {
            return;
        };
        let len = detail.len().min(1024);
        let said = Said::Lost {
            context: peer as u32,
        };
        self.broken.get_or_insert_with(|| why.clone());
        for neighbour in self.neighbours() {
            if neighbour != peer {
                self.send(neighbour, &said, &detail.as_bytes()[..len]);
            }
        }
    }

    /// Ends what was begun with a context.
    fn end_of(&mut self, peer: usize, why: &Error) {
        let of = &mut self.peers[peer];
        of.forget();
        of.line.retain(|place| matches!(place, InLine::Here(_)));
        self.advance(peer);
        let theirs = self.ops.iter().filter(|(_, op)| op.peer() == peer);
        let theirs: Vec<_> = theirs.map(|(&number, _)| number).collect();
        self.fail(why.clone());
        for number in theirs {
            // What is under way ends by itself, with an error: until then the fabric has its memory.
            if self.is_moving(number) {
                continue;
            }
            if let Some(op) = self.ops.remove(&number) {
                self.mute(op, why);
            }
        }
    }

    /// A context has said that another one is gone.
    pub(super) fn hear_lost(&mut self, context: u32, detail: &[u8]) {
        let context = context as usize;
        if context < self.size() {
            self.lose(context, &String::from_utf8_lossy(detail));
        }
    }

    /// A context will finalize no more operations, and close.
    pub(super) fn hear_bye(&mut self, from: usize) {
        if self.peers[from].state == State::Here {
            self.peers[from].state = State::Left;
        }
    }

    /// Ends everything for all contexts.
    #[cold]
    pub(super) fn break_all(&mut self, why: Error) {
        if self.broken.is_some() {
            return;
        }
        let text = match &why {
            Error::Mismatch(text) => text.clone(),
            other => other.to_string(),
        };
        let len = text.len().min(2048);
        self.fail(why.clone());
        self.broken = Some(why);
        for peer in self.neighbours() {
            self.send(peer, &Said::Broken, &text.as_bytes()[..len]);
        }
    }

    pub(super) fn hear_broken(&mut self, text: &[u8]) {
        let text = String::from_utf8_lossy(text).into_owned();
        self.break_all(Error::Mismatch(text));
    }

    /// Has everybody whom this context has sent something confirm it; says how many that are.
    pub(crate) fn flush(&mut self) -> usize {
        let mut asked = 0;
        for to in 0..self.size() {
            let peer = &mut self.peers[to];
            if std::mem::take(&mut peer.owes_flush) && peer.state == State::Here {
                let token = self.add_op(super::Op::Flush { to });
                self.send(to, &Said::Flush { token }, &[]);
                asked += 1;
            }
        }
        asked
    }

    /// Tells everybody who would take this context's end for a loss that it is none.
    pub(crate) fn say_goodbye(&mut self) {
        for to in 0..self.size() {
            let peer = &self.peers[to];
            if to != self.me && peer.is_watched && !peer.is_lost() {
                self.send(to, &Said::Bye, &[]);
            }
        }
    }
}
