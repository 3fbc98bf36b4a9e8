//! `Outgoing`: operations of ours on their way into a connection, those that the peer has not
//! answered, and the frames that the peer is owed.
//!
//! Operations that are posted before the two ends have greeted each other wait unencoded: how they are
//! written depends on what the peer knows.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use selvedge::{Errno, OpFlags, Result};
use selvedge_kit::mr::Keys;
use selvedge_kit::srx::Kind;
use selvedge_kit::{Ep, Report};

use crate::connection::asks::Asks;
use crate::connection::operation::{Body, Fetch, Posting, Reply};
use crate::connection::tx::{Broken, Tx};
use crate::socket::Socket;
use crate::wire::Nonsense;
use crate::wire::frame::{Head, Wish};
use crate::wire::hello::Terms;

/// Reads, and atomics, that may be unanswered at a time.
const FETCHES_MAX: usize = 128;
/// Other frames that may be unanswered at a time.
const ASKS_MAX: usize = 512;

/// What goes out over a connection.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    pub(crate) terms: Terms,
    pub(crate) tx: Tx,
    /// Posted before the ends had greeted each other.
    waiting: VecDeque<Posting>,
    asks: Asks,
    reads: VecDeque<Fetch>,
    /// A read whose bytes are here, and whose end has not come.
    unchecked: Option<Report>,
    atomics: VecDeque<Fetch>,
    /// Messages of ours that the peer has not asked for.
    offers: FxHashMap<u8, Posting>,
    /// A frame that the peer is owed was queued, and is not scheduled to be sent.
    is_owing: bool,
}

impl Outgoing {
    /// Whether everything that was posted is complete.
    pub(crate) fn is_settled(&self) -> bool {
        self.pending() == 0 && self.unchecked.is_none() && self.tx.is_idle()
    }

    /// Whether the peer owes an answer.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.pending() > self.waiting.len() || self.unchecked.is_some()
    }

    /// Own operations that wait, or are not answered.
    pub(crate) fn pending(&self) -> usize {
        let answers = self.asks.len() + self.reads.len() + self.atomics.len();
        self.waiting.len() + answers + self.offers.len()
    }

    /// Own operations that wait until the ends have greeted each other.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Has an operation wait until the ends have greeted each other.
    ///
    /// # Errors
    /// [`Errno::Again`] when as many wait as may.
    #[cold]
    pub(crate) fn wait(&mut self, posting: Posting, most: usize) -> Result {
        if self.waiting.len() >= most.min(FETCHES_MAX) {
            return Err(Errno::Again);
        }
        let is_injected = posting.report.flags.contains(OpFlags::INJECT);
        let body = match is_injected {
            true => posting.body.copied(),
            false => posting.body,
        };
        self.waiting.push_back(Posting { body, ..posting });
        Ok(())
    }

    /// The ends have greeted each other: the operations that have waited for that.
    pub(crate) fn establish(&mut self, terms: Terms) -> VecDeque<Posting> {
        self.terms = terms;
        std::mem::take(&mut self.waiting)
    }

    /// Whether one more operation may be queued.
    #[inline]
    pub(crate) fn has_room_for(&self, posting: &Posting, most: usize) -> bool {
        let is_copied = posting.body.is_copied(posting.report.flags);
        let has_answer = match &posting.reply {
            Reply::Bytes(_) => self.reads.len() < FETCHES_MAX,
            Reply::Outcome(_) => self.atomics.len() < FETCHES_MAX,
            Reply::None => self.asks.len() < ASKS_MAX,
        };
        has_answer && self.tx.has_room(most, is_copied)
    }

    /// Whether the peer understands an operation.
    #[inline]
    pub(crate) fn understands(&self, posting: &Posting) -> bool {
        self.terms.knows() || !posting.is_extension()
    }

    /// Queues an operation that the peer understands. A tagged message of more than `eager_size` bytes
    /// is offered first, to a peer that knows offers.
    pub(crate) fn queue(&mut self, posting: Posting, eager_size: usize) {
        if let Head::Message {
            kind: Kind::Tagged,
            tag,
            data,
            wish,
            len,
        } = posting.head
            && len > eager_size
            && self.terms.offers
            && !posting.report.flags.contains(OpFlags::INJECT)
            && let Some(id) = (1..=254).find(|id| !self.offers.contains_key(id))
        {
            let head = Head::Offer {
                id,
                tag,
                data,
                wants_answer: wish != Wish::Never,
                len,
            };
            self.tx.copy(&head, self.terms.order, |_| {});
            self.offers.insert(id, Posting { head, ..posting });
            return;
        }
        self.queue_whole(posting);
    }

    fn queue_whole(&mut self, posting: Posting) {
        let Posting {
            mut head,
            body,
            reply,
            report,
        } = posting;
        let order = self.terms.order;
        if let Head::Write { wants_answer, .. } = &mut head {
            // Between Selvedge endpoints a write is done when the target says so, or says why not.
            *wants_answer |= self.terms.knows();
        }
        let is_copied = body.is_copied(report.flags);
        let ask = head
            .wants_answer()
            .then(|| self.asks.push(report, is_copied));
        match body {
            Body::Caller(buf) if !is_copied => self.tx.lend(&head, order, buf, report, ask),
            body => {
                self.tx.copy(&head, order, |out| body.append(out));
                drop(body);
                if let (Reply::None, None) = (&reply, ask) {
                    self.tx.then_report(report);
                }
            }
        }
        let len = report.len;
        match reply {
            Reply::None => {}
            Reply::Bytes(buf) => self.reads.push_back(Fetch { buf, len, report }),
            Reply::Outcome(buf) => {
                let buf = buf.unwrap_or_default();
                let len = buf.len();
                self.atomics.push_back(Fetch { buf, len, report });
            }
        }
    }

    /// Sends what the kernel takes.
    ///
    /// # Errors
    /// When the connection has ended, or has to.
    #[inline]
    pub(crate) fn flush(
        &mut self,
        socket: &mut Socket,
        keys: &Keys,
        ep: &Ep,
    ) -> Result<(), Broken> {
        self.tx.flush(socket, &self.terms, &mut self.asks, keys, ep)
    }

    /// Queues a frame that the peer is owed.
    pub(crate) fn owe(&mut self, head: &Head, payload: &[u8]) {
        let order = self.terms.order;
        self.tx
            .copy(head, order, |out| out.extend_from_slice(payload));
        self.is_owing = true;
    }

    /// Notes down that a frame that the peer is owed was queued past [`Self::owe`].
    pub(crate) fn note_owing(&mut self) {
        self.is_owing = true;
    }

    /// Whether frames were queued since the last call that are to be scheduled.
    #[inline]
    pub(crate) fn take_owing(&mut self) -> bool {
        std::mem::take(&mut self.is_owing)
    }

    /// Answers the frame of this number, if it has one.
    pub(crate) fn acknowledge(&mut self, number: Option<u64>, refused: Option<Errno>) {
        let Some(number) = number else {
            return;
        };
        let head = match self.terms.knows() {
            true => Head::Answer {
                number,
                status: refused.map_or(0, |errno| errno.as_raw().unsigned_abs()),
            },
            false => Head::Ack,
        };
        self.owe(&head, &[]);
    }

    /// The peer asks for a message that was offered.
    ///
    /// # Errors
    /// When none is offered under this number.
    pub(crate) fn send_offered(&mut self, id: u8) -> Result<(), Nonsense> {
        let posting = self.offers.remove(&id);
        let posting = posting.ok_or(Nonsense("a wish for a message that is not offered"))?;
        if let Head::Offer {
            wants_answer, len, ..
        } = posting.head
        {
            let head = Head::Data {
                id,
                wants_answer,
                len,
            };
            self.queue_whole(Posting { head, ..posting });
            self.is_owing = true;
        }
        Ok(())
    }

    /// The peer answers the oldest frame that wants an answer, or the one of a number.
    ///
    /// # Errors
    /// When there is none that could be answered.
    pub(crate) fn answered(&mut self, number: Option<u64>) -> Result<Report, Nonsense> {
        match number {
            None => self.asks.answer_oldest(),
            Some(number) => self.asks.answer(number),
        }
    }

    /// The peer sends `len` bytes for the oldest read.
    ///
    /// # Errors
    /// When that has asked for another number, or there is none.
    pub(crate) fn read_answered(&mut self, len: usize) -> Result<Fetch, Nonsense> {
        let fetch = self.reads.pop_front_if(|fetch| fetch.len == len);
        fetch.ok_or(Nonsense("bytes that no read asked for"))
    }

    /// The bytes of a read are here, and the peer is going to say whether they were there to the end.
    pub(crate) fn read_unchecked(&mut self, report: Report) {
        self.unchecked = Some(report);
    }

    /// The peer says whether the bytes of the last read were there to the end.
    ///
    /// # Errors
    /// When there is no such read.
    pub(crate) fn read_ended(&mut self) -> Result<Report, Nonsense> {
        let report = self.unchecked.take();
        report.ok_or(Nonsense("the end of a read that has not come"))
    }

    /// The peer refuses the oldest read.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn read_refused(&mut self) -> Result<Report, Nonsense> {
        let fetch = self.reads.pop_front();
        let fetch = fetch.ok_or(Nonsense("a refusal of what was not asked"))?;
        Ok(fetch.report)
    }

    /// The peer sends the outcome of the oldest atomic, with `len` bytes of earlier values.
    ///
    /// # Errors
    /// When that has asked for another number, or there is none.
    pub(crate) fn atomic_answered(&mut self, status: u32, len: usize) -> Result<Fetch, Nonsense> {
        let wanted = |has: usize| len == if status == 0 { has } else { 0 };
        let fetch = self.atomics.pop_front_if(|fetch| wanted(fetch.len));
        fetch.ok_or(Nonsense("an outcome of what was not asked"))
    }

    /// The peer is gone: the operations that are not complete. Their memory is not used any more.
    pub(crate) fn fail(&mut self) -> Vec<Report> {
        let mut failed = self.tx.fail();
        failed.extend(self.asks.take());
        let fetches = self.reads.drain(..).chain(self.atomics.drain(..));
        failed.extend(fetches.map(|Fetch { report, .. }| report));
        failed.extend(self.unchecked.take());
        let offers = std::mem::take(&mut self.offers).into_values();
        let waiting = std::mem::take(&mut self.waiting);
        failed.extend(offers.chain(waiting).map(|posting| posting.report));
        failed
    }
}

#[cfg(test)]
mod tests {
    use selvedge::rma::RmaIov;
    use selvedge::{CompletionFlags, Context};
    use selvedge_kit::copy::RxBuf;
    use selvedge_kit::segments::RmaSegments;

    use super::*;

    /// A tagged message.
    fn message(number: u64, len: usize) -> Posting {
        Posting {
            head: Head::Message {
                kind: Kind::Tagged,
                tag: number,
                data: None,
                wish: Wish::Never,
                len,
            },
            body: Body::Copy(vec![0; len].into()),
            reply: Reply::None,
            report: Report {
                kind: CompletionFlags::SEND,
                context: Context(number),
                flags: OpFlags::empty(),
                reports_success: true,
                len,
            },
        }
    }

    fn contexts(reports: impl IntoIterator<Item = Report>) -> Vec<u64> {
        let mut contexts: Vec<_> = reports.into_iter().map(|it| it.context.0).collect();
        contexts.sort_unstable();
        contexts
    }

    #[test]
    fn operations_wait_for_the_greeting_in_their_order_up_to_a_limit() {
        let mut outgoing = Outgoing::default();
        for number in 0..3 {
            outgoing.wait(message(number, 8), 3).unwrap();
        }
        assert_eq!(outgoing.wait(message(3, 8), 3), Err(Errno::Again));
        assert_eq!((outgoing.waiting(), outgoing.pending()), (3, 3));
        let waiting = outgoing.establish(Terms::default());
        let order: Vec<_> = waiting.iter().map(|it| it.report.context.0).collect();
        assert_eq!(order, [0, 1, 2]);
        assert!(outgoing.is_settled());
    }

    #[test]
    fn a_large_tagged_message_is_offered_and_sent_once() {
        let mut outgoing = Outgoing::default();
        outgoing.establish(Terms {
            offers: true,
            ..Terms::default()
        });
        outgoing.queue(message(0, 100), 64);
        outgoing.queue(message(1, 64), 64);
        assert_eq!(outgoing.pending(), 1, "one is offered, one is sent");
        assert!(!outgoing.take_owing());
        outgoing.send_offered(2).unwrap_err();
        outgoing.send_offered(1).unwrap();
        assert!(outgoing.take_owing() && !outgoing.take_owing());
        outgoing.send_offered(1).unwrap_err();
        assert_eq!(outgoing.pending(), 0);
        assert!(!outgoing.is_settled(), "nothing is out");
        assert_eq!(contexts(outgoing.fail()), [0, 1]);
    }

    #[test]
    fn a_peer_that_ends_fails_what_is_not_complete_and_answers_to_nothing_are_nonsense() {
        let mut outgoing = Outgoing::default();
        outgoing.read_answered(0).unwrap_err();
        outgoing.read_refused().unwrap_err();
        outgoing.atomic_answered(0, 0).unwrap_err();
        outgoing.answered(None).unwrap_err();
        let place = RmaIov {
            addr: 0,
            len: 0,
            key: 0,
        };
        let read = Posting {
            head: Head::ReadRequest {
                places: RmaSegments::one(place),
            },
            body: Body::none(),
            reply: Reply::Bytes(RxBuf::default()),
            report: message(5, 0).report,
        };
        outgoing.queue(read, 64);
        outgoing.read_answered(1).unwrap_err();
        assert_eq!(contexts(outgoing.fail()), [5]);
        outgoing.read_answered(0).unwrap_err();
    }
}
