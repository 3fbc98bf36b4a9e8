//! A lane: a connection with one peer, from the first wish to have one to its end.
//!
//! Operations that are posted before the two ends have greeted each other wait in it, unencoded: how
//! they are written depends on what the peer knows. Then they go through `tx`, and what comes
//! through `rx`; what has to be answered is kept here in the order in which answers come.

use std::collections::VecDeque;
use std::time::Instant;

use nix::sys::epoll::EpollFlags;
use rustc_hash::FxHashMap;
use selvedge::OpFlags;
use selvedge_kit::Report;
use selvedge_kit::copy::{RxBuf, TxBuf};
use selvedge_kit::srx::{Envelope, Posted};

use crate::proof;
use crate::rx::Rx;
use crate::socket::Socket;
use crate::tx::{COPY_MAX, Tx};
use crate::wire::frame::Head;
use crate::wire::{Nonsense, Order};

/// Reads, and atomics, that may be unanswered at a time.
pub(crate) const FETCHES_MAX: usize = 128;
/// Other frames that may be unanswered at a time.
pub(crate) const ASKS_MAX: usize = 512;

#[derive(Debug)]
pub(crate) struct Lane {
    /// Whose it is.
    pub(crate) peer: usize,
    /// Tells it from others that had its place before.
    pub(crate) serial: u64,
    pub(crate) socket: Option<Socket>,
    pub(crate) stage: Stage,
    /// When it began to be wanted.
    pub(crate) since: Instant,
    pub(crate) terms: Terms,
    /// Since when the peer's host has the connection and its program says nothing.
    pub(crate) silence: Option<Silence>,
    /// What has come of the peer's proof, and then of its greeting.
    pub(crate) greeting: Vec<u8>,
    pub(crate) proof: Option<proof::Caller>,
    /// Posted before the lane was up.
    pub(crate) waiting: VecDeque<Posting>,
    pub(crate) tx: Tx,
    pub(crate) rx: Rx,
    pub(crate) asks: Asks,
    pub(crate) reads: VecDeque<Fetch>,
    /// A read whose bytes are here, and whose end has not come.
    pub(crate) unchecked: Option<Report>,
    pub(crate) atomics: VecDeque<Fetch>,
    /// Messages of ours that the peer has not asked for.
    pub(crate) offers: FxHashMap<u8, Posting>,
    /// Messages that we have asked for, and their receives, if they are to be received.
    pub(crate) coming: FxHashMap<u8, (Option<Posted>, Envelope)>,
    /// What the socket is watched for.
    pub(crate) watched: EpollFlags,
    /// The peer is gone, and its last messages have no place yet.
    pub(crate) is_parting: bool,
    /// Why nothing can be sent any more, when what has come is taken first.
    pub(crate) why: Option<std::io::Error>,
}

/// How far a lane has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The peer was not there; it is tried again.
    Resting {
        until: Instant,
    },
    /// The system connects.
    Connecting {
        until: Instant,
    },
    /// The ends shake hands in TLS.
    ///
    /// From here on the peer's program answers, when it makes progress or accepts. That time is not
    /// the network's, and [`Silence`] limits it only on request. The keepalive notices a host that
    /// dies meanwhile.
    Securing,
    /// The peer was asked whether it has the authorization key, and has not answered.
    Proving,
    /// The peer was greeted and has not answered.
    Asking,
    Up,
}

/// The wait for the first answer of a peer whose host has taken the connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Silence {
    pub(crate) since: Instant,
    /// When the next warning is due, or the error.
    pub(crate) until: Instant,
}

/// What both ends have agreed on, and who the other one is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terms {
    pub(crate) order: Order,
    /// Offers of tagged messages may be sent.
    pub(crate) offers: bool,
    /// The peer is a Selvedge endpoint: its life.
    pub(crate) life: Option<u64>,
    pub(crate) pid: u32,
}

impl Terms {
    /// Whether the peer knows the frames that libfabric does not have.
    pub(crate) fn knows(&self) -> bool {
        self.life.is_some()
    }
}

/// An operation of ours, as it is posted.
#[derive(Debug)]
pub(crate) struct Posting {
    pub(crate) head: Head,
    pub(crate) body: Body,
    pub(crate) then: Then,
    pub(crate) report: Report,
}

/// The bytes behind a header.
#[derive(Debug)]
pub(crate) enum Body {
    Caller(TxBuf),
    Copy(Box<[u8]>),
}

/// What follows when the frame of an operation is out.
#[derive(Debug)]
pub(crate) enum Then {
    /// It is done, unless its header asks for an answer.
    Done,
    /// The bytes that it asks for come.
    Read(RxBuf),
    /// Its outcome comes, with earlier values if there is a buffer.
    Atomic(Option<RxBuf>),
}

/// An operation of ours that waits for bytes.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) buf: RxBuf,
    pub(crate) len: usize,
    pub(crate) report: Report,
}

impl Posting {
    /// Whether libfabric does not know such an operation.
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self.then, Then::Atomic(_)) || self.report.flags.contains(OpFlags::MATCH_COMPLETE)
    }
}

impl Body {
    /// No bytes.
    pub(crate) fn none() -> Self {
        Self::Caller(TxBuf::empty())
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Caller(buf) => buf.len(),
            Self::Copy(bytes) => bytes.len(),
        }
    }

    /// Adds the bytes to `out`.
    pub(crate) fn append(&self, out: &mut Vec<u8>) {
        match self {
            Self::Caller(buf) => {
                for piece in buf.pieces(0, usize::MAX) {
                    out.extend_from_slice(piece);
                }
            }
            Self::Copy(bytes) => out.extend_from_slice(bytes),
        }
    }

    /// Whether the frame of an operation with these flags takes a copy of them.
    pub(crate) fn is_copied(&self, flags: OpFlags) -> bool {
        match self {
            Self::Caller(buf) => buf.len() <= COPY_MAX || flags.contains(OpFlags::INJECT),
            Self::Copy(_) => true,
        }
    }

    /// The same bytes, in memory of ours.
    pub(crate) fn copied(self) -> Self {
        let mut bytes = Vec::with_capacity(self.len());
        self.append(&mut bytes);
        Self::Copy(bytes.into())
    }
}

/// Frames of ours that want an answer, in the order in which they are sent.
#[derive(Debug, Default)]
pub(crate) struct Asks {
    list: VecDeque<Ask>,
    /// The number of the first.
    first: u64,
}

#[derive(Debug)]
struct Ask {
    /// Nothing when it has been answered.
    report: Option<Report>,
    /// The frame is out: nothing reads the caller's memory any more.
    is_sent: bool,
}

impl Asks {
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Adds one; its number.
    pub(crate) fn push(&mut self, report: Report, is_sent: bool) -> u64 {
        self.list.push_back(Ask {
            report: Some(report),
            is_sent,
        });
        self.first + self.list.len() as u64 - 1
    }

    /// The frame of this number is out.
    pub(crate) fn sent(&mut self, number: u64) {
        if let Some(ask) = self.get(number) {
            ask.is_sent = true;
        }
    }

    /// Answers the oldest one.
    ///
    /// # Errors
    /// When there is none that could be answered.
    pub(crate) fn answer_oldest(&mut self) -> Result<Report, Nonsense> {
        self.answer(self.first)
    }

    /// Answers the one of this number.
    ///
    /// # Errors
    /// When there is none that could be answered.
    pub(crate) fn answer(&mut self, number: u64) -> Result<Report, Nonsense> {
        let ask = self.get(number).filter(|ask| ask.is_sent);
        let report = ask.and_then(|ask| ask.report.take());
        let report = report.ok_or(Nonsense("an answer to what was not asked"))?;
        while self.list.pop_front_if(|ask| ask.report.is_none()).is_some() {
            self.first += 1;
        }
        Ok(report)
    }

    /// The peer is gone: those that it has not answered.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Report> + use<> {
        let list = std::mem::take(&mut self.list);
        list.into_iter().filter_map(|ask| ask.report)
    }

    fn get(&mut self, number: u64) -> Option<&mut Ask> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.list.get_mut(place)
    }
}

impl Lane {
    pub(crate) fn new(peer: usize, serial: u64, stage: Stage, now: Instant) -> Self {
        Self {
            peer,
            serial,
            socket: None,
            stage,
            since: now,
            terms: Terms::default(),
            silence: None,
            greeting: Vec::new(),
            proof: None,
            waiting: VecDeque::new(),
            tx: Tx::default(),
            rx: Rx::default(),
            asks: Asks::default(),
            reads: VecDeque::new(),
            unchecked: None,
            atomics: VecDeque::new(),
            offers: FxHashMap::default(),
            coming: FxHashMap::default(),
            watched: EpollFlags::empty(),
            is_parting: false,
            why: None,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.stage == Stage::Up
    }

    /// Whether everything that was posted is complete.
    pub(crate) fn is_settled(&self) -> bool {
        self.waiting.is_empty() && self.tx.is_idle() && !self.is_unanswered()
    }

    /// Whether the peer owes an answer.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.asks.len() > 0
            || !self.reads.is_empty()
            || self.unchecked.is_some()
            || !self.atomics.is_empty()
            || !self.offers.is_empty()
    }

    /// When something has to be done about it though nothing comes.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.stage {
            Stage::Resting { until } | Stage::Connecting { until } => Some(until),
            Stage::Securing | Stage::Proving | Stage::Asking => Some(self.silence?.until),
            Stage::Up => None,
        }
    }

    /// Whether its socket has something to send that the queue does not have.
    pub(crate) fn is_behind(&self) -> bool {
        self.socket.as_ref().is_some_and(Socket::is_behind)
    }

    /// Whether something has come that the system is not going to tell of any more.
    #[inline]
    pub(crate) fn is_loaded(&self) -> bool {
        self.socket.as_ref().is_some_and(Socket::is_loaded)
    }

    /// What the socket is to be watched for.
    pub(crate) fn interest(&self) -> EpollFlags {
        match self.stage {
            Stage::Resting { .. } => EpollFlags::empty(),
            Stage::Connecting { .. } => EpollFlags::EPOLLOUT,
            Stage::Securing if self.is_behind() => EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT,
            Stage::Securing | Stage::Proving | Stage::Asking => EpollFlags::EPOLLIN,
            Stage::Up => {
                let mut flags = EpollFlags::EPOLLRDHUP;
                flags.set(EpollFlags::EPOLLIN, !self.rx.is_stalled());
                flags.set(EpollFlags::EPOLLOUT, self.tx.is_blocked);
                flags
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use selvedge::{CompletionFlags, Context};

    use super::*;

    fn report(number: u64) -> Report {
        Report {
            what: CompletionFlags::SEND,
            context: Context(number),
            flags: OpFlags::empty(),
            completes: true,
            len: 0,
        }
    }

    fn answered(asks: &mut Asks, number: u64) -> Option<u64> {
        asks.answer(number).ok().map(|report| report.context.0)
    }

    #[test]
    fn answers_come_in_any_order_and_only_once() {
        let mut asks = Asks::default();
        for number in 0..4 {
            assert_eq!(asks.push(report(number), true), number);
        }
        assert_eq!(answered(&mut asks, 2), Some(2));
        assert_eq!(answered(&mut asks, 2), None);
        assert_eq!(answered(&mut asks, 0), Some(0));
        assert_eq!(asks.len(), 3);
        assert_eq!(answered(&mut asks, 1), Some(1));
        assert_eq!(asks.len(), 1);
        assert_eq!(answered(&mut asks, 0), None);
        assert_eq!(answered(&mut asks, 4), None);
        assert_eq!(asks.push(report(4), true), 4);
        assert_eq!(asks.answer_oldest().unwrap().context, Context(3));
        assert_eq!(asks.take().count(), 1);
    }

    #[test]
    fn nothing_is_answered_before_it_was_sent() {
        let mut asks = Asks::default();
        let number = asks.push(report(0), false);
        asks.answer_oldest().unwrap_err();
        asks.sent(number);
        asks.answer_oldest().unwrap();
        asks.answer_oldest().unwrap_err();
    }
}
