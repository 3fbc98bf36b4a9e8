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

use crate::connection::operation::{Body, Operation, PendingFetch, Response};
use crate::connection::tx::{SendError, Tx};
use crate::connection::unacked::Unacked;
use crate::socket::Socket;
use crate::wire::ProtocolError;
use crate::wire::frame::{AckPolicy, Header};
use crate::wire::hello::Negotiated;

/// Reads, and atomics, that may be unanswered at a time.
const FETCHES_MAX: usize = 128;
/// Other frames that may be unanswered at a time.
const UNACKED_MAX: usize = 512;

/// What goes out over a connection.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    pub(crate) negotiated: Negotiated,
    pub(crate) tx: Tx,
    /// Posted before the ends had greeted each other.
    waiting: VecDeque<Operation>,
    unacked: Unacked,
    reads: VecDeque<PendingFetch>,
    /// A read whose bytes are here, and whose end has not come.
    unchecked_read: Option<Report>,
    atomics: VecDeque<PendingFetch>,
    /// Messages of ours that the peer has not asked for.
    rendezvous: FxHashMap<u8, Operation>,
    /// A frame that the peer is owed was queued, and is not scheduled to be sent.
    has_new_responses: bool,
}

impl Outgoing {
    /// Whether everything that was posted is complete.
    pub(crate) fn is_drained(&self) -> bool {
        self.pending() == 0 && self.unchecked_read.is_none() && self.tx.is_idle()
    }

    /// Whether the peer owes an answer.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.pending() > self.waiting.len() || self.unchecked_read.is_some()
    }

    /// Own operations that wait, or are not answered.
    pub(crate) fn pending(&self) -> usize {
        let unanswered = self.unacked.len() + self.reads.len() + self.atomics.len();
        self.waiting.len() + unanswered + self.rendezvous.len()
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
    pub(crate) fn queue_until_connected(&mut self, operation: Operation, max: usize) -> Result {
        if self.waiting.len() >= max.min(FETCHES_MAX) {
            return Err(Errno::Again);
        }
        let is_injected = operation.report.flags.contains(OpFlags::INJECT);
        let body = match is_injected {
            true => operation.body.into_copied(),
            false => operation.body,
        };
        self.waiting.push_back(Operation { body, ..operation });
        Ok(())
    }

    /// The ends have greeted each other: the operations that have waited for that.
    pub(crate) fn establish(&mut self, negotiated: Negotiated) -> VecDeque<Operation> {
        self.negotiated = negotiated;
        std::mem::take(&mut self.waiting)
    }

    /// Whether one more operation may be queued.
    #[inline]
    pub(crate) fn has_room_for(&self, operation: &Operation, max: usize) -> bool {
        let is_copied = operation.body.is_copied(operation.report.flags);
        let has_response_slot = match &operation.response {
            Response::ReadData(_) => self.reads.len() < FETCHES_MAX,
            Response::AtomicResult(_) => self.atomics.len() < FETCHES_MAX,
            Response::None => self.unacked.len() < UNACKED_MAX,
        };
        has_response_slot && self.tx.has_room(max, is_copied)
    }

    /// Whether the peer understands an operation.
    #[inline]
    pub(crate) fn supports(&self, operation: &Operation) -> bool {
        self.negotiated.has_extensions() || !operation.needs_extensions()
    }

    /// Queues an operation that the peer understands. A tagged message of more than `eager_size` bytes
    /// is offered first, to a peer that knows offers.
    pub(crate) fn queue(&mut self, operation: Operation, eager_size: usize) {
        if let Header::Message {
            kind: Kind::Tagged,
            tag,
            data,
            ack,
            len,
        } = operation.header
            && len > eager_size
            && self.negotiated.has_rts
            && !operation.report.flags.contains(OpFlags::INJECT)
            && let Some(id) = (1..=254).find(|id| !self.rendezvous.contains_key(id))
        {
            let header = Header::Rts {
                id,
                tag,
                data,
                wants_ack: ack != AckPolicy::Never,
                len,
            };
            self.tx.queue_copied(&header, self.negotiated.order, |_| {});
            self.rendezvous.insert(
                id,
                Operation {
                    header,
                    ..operation
                },
            );
            return;
        }
        self.queue_frame(operation);
    }

    fn queue_frame(&mut self, operation: Operation) {
        let Operation {
            mut header,
            body,
            response,
            report,
        } = operation;
        let order = self.negotiated.order;
        if let Header::Write { wants_ack, .. } = &mut header {
            // Between Selvedge endpoints a write is done when the target says so, or says why not.
            *wants_ack |= self.negotiated.has_extensions();
        }
        let is_copied = body.is_copied(report.flags);
        let ack_number = header
            .wants_ack()
            .then(|| self.unacked.push(report, is_copied));
        match body {
            Body::Borrowed(buf) if !is_copied => self
                .tx
                .queue_borrowed(&header, order, buf, report, ack_number),
            body => {
                self.tx.queue_copied(&header, order, |out| body.append(out));
                drop(body);
                if let (Response::None, None) = (&response, ack_number) {
                    self.tx.report_when_sent(report);
                }
            }
        }
        let len = report.len;
        match response {
            Response::None => {}
            Response::ReadData(buf) => self.reads.push_back(PendingFetch { buf, len, report }),
            Response::AtomicResult(buf) => {
                let buf = buf.unwrap_or_default();
                let len = buf.len();
                self.atomics.push_back(PendingFetch { buf, len, report });
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
    ) -> Result<(), SendError> {
        self.tx
            .flush(socket, &self.negotiated, &mut self.unacked, keys, ep)
    }

    /// Queues a frame that the peer is owed.
    pub(crate) fn queue_response(&mut self, header: &Header, payload: &[u8]) {
        let order = self.negotiated.order;
        self.tx
            .queue_copied(header, order, |out| out.extend_from_slice(payload));
        self.has_new_responses = true;
    }

    /// Notes down that a frame that the peer is owed was queued past [`Self::queue_response`].
    pub(crate) fn note_response(&mut self) {
        self.has_new_responses = true;
    }

    /// Whether frames were queued since the last call that are to be scheduled.
    #[inline]
    pub(crate) fn take_response_queued(&mut self) -> bool {
        std::mem::take(&mut self.has_new_responses)
    }

    /// Answers the frame of this number, if it has one.
    pub(crate) fn queue_ack(&mut self, number: Option<u64>, denied: Option<Errno>) {
        let Some(number) = number else {
            return;
        };
        let header = match self.negotiated.has_extensions() {
            true => Header::AckStatus {
                number,
                status: denied.map_or(0, |errno| errno.as_raw().unsigned_abs()),
            },
            false => Header::Ack,
        };
        self.queue_response(&header, &[]);
    }

    /// The peer asks for a message that was offered.
    ///
    /// # Errors
    /// When none is offered under this number.
    pub(crate) fn send_rendezvous_data(&mut self, id: u8) -> Result<(), ProtocolError> {
        let operation = self.rendezvous.remove(&id);
        let operation =
            operation.ok_or(ProtocolError("a wish for a message that is not offered"))?;
        if let Header::Rts { wants_ack, len, .. } = operation.header {
            let header = Header::Data { id, wants_ack, len };
            self.queue_frame(Operation {
                header,
                ..operation
            });
            self.has_new_responses = true;
        }
        Ok(())
    }

    /// The peer answers the oldest frame that wants an answer, or the one of a number.
    ///
    /// # Errors
    /// When there is none that could be answered.
    pub(crate) fn take_acked(&mut self, number: Option<u64>) -> Result<Report, ProtocolError> {
        match number {
            None => self.unacked.ack_oldest(),
            Some(number) => self.unacked.ack(number),
        }
    }

    /// The peer sends `len` bytes for the oldest read.
    ///
    /// # Errors
    /// When that has asked for another number, or there is none.
    pub(crate) fn take_read(&mut self, len: usize) -> Result<PendingFetch, ProtocolError> {
        let fetch = self.reads.pop_front_if(|fetch| fetch.len == len);
        fetch.ok_or(ProtocolError("bytes that no read asked for"))
    }

    /// The bytes of a read are here, and the peer is going to say whether they were there to the end.
    pub(crate) fn hold_unchecked_read(&mut self, report: Report) {
        self.unchecked_read = Some(report);
    }

    /// The peer says whether the bytes of the last read were there to the end.
    ///
    /// # Errors
    /// When there is no such read.
    pub(crate) fn take_unchecked_read(&mut self) -> Result<Report, ProtocolError> {
        let report = self.unchecked_read.take();
        report.ok_or(ProtocolError("the end of a read that has not come"))
    }

    /// The peer refuses the oldest read.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn take_refused_read(&mut self) -> Result<Report, ProtocolError> {
        let fetch = self.reads.pop_front();
        let fetch = fetch.ok_or(ProtocolError("a refusal of what was not asked"))?;
        Ok(fetch.report)
    }

    /// The peer sends the outcome of the oldest atomic, with `len` bytes of earlier values.
    ///
    /// # Errors
    /// When that has asked for another number, or there is none.
    pub(crate) fn take_atomic(
        &mut self,
        status: u32,
        len: usize,
    ) -> Result<PendingFetch, ProtocolError> {
        let is_expected = |len_of_result: usize| len == if status == 0 { len_of_result } else { 0 };
        let fetch = self.atomics.pop_front_if(|fetch| is_expected(fetch.len));
        fetch.ok_or(ProtocolError("an outcome of what was not asked"))
    }

    /// The peer is gone: the operations that are not complete. Their memory is not used any more.
    pub(crate) fn fail(&mut self) -> Vec<Report> {
        let mut failed = self.tx.fail();
        failed.extend(self.unacked.take());
        let fetches = self.reads.drain(..).chain(self.atomics.drain(..));
        failed.extend(fetches.map(|PendingFetch { report, .. }| report));
        failed.extend(self.unchecked_read.take());
        let rendezvous = std::mem::take(&mut self.rendezvous).into_values();
        let waiting = std::mem::take(&mut self.waiting);
        failed.extend(rendezvous.chain(waiting).map(|operation| operation.report));
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
    fn message(number: u64, len: usize) -> Operation {
        Operation {
            header: Header::Message {
                kind: Kind::Tagged,
                tag: number,
                data: None,
                ack: AckPolicy::Never,
                len,
            },
            body: Body::Copied(vec![0; len].into()),
            response: Response::None,
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
    fn operations_wait_for_the_handshake_in_order_up_to_a_limit() {
        let mut outgoing = Outgoing::default();
        for number in 0..3 {
            outgoing
                .queue_until_connected(message(number, 8), 3)
                .unwrap();
        }
        assert_eq!(
            outgoing.queue_until_connected(message(3, 8), 3),
            Err(Errno::Again)
        );
        assert_eq!((outgoing.waiting(), outgoing.pending()), (3, 3));
        let waiting = outgoing.establish(Negotiated::default());
        let order: Vec<_> = waiting.iter().map(|it| it.report.context.0).collect();
        assert_eq!(order, [0, 1, 2]);
        assert!(outgoing.is_drained());
    }

    #[test]
    fn a_large_tagged_message_sends_rts_and_its_data_once() {
        let mut outgoing = Outgoing::default();
        outgoing.establish(Negotiated {
            has_rts: true,
            ..Negotiated::default()
        });
        outgoing.queue(message(0, 100), 64);
        outgoing.queue(message(1, 64), 64);
        assert_eq!(outgoing.pending(), 1, "one is offered, one is sent");
        assert!(!outgoing.take_response_queued());
        outgoing.send_rendezvous_data(2).unwrap_err();
        outgoing.send_rendezvous_data(1).unwrap();
        assert!(outgoing.take_response_queued() && !outgoing.take_response_queued());
        outgoing.send_rendezvous_data(1).unwrap_err();
        assert_eq!(outgoing.pending(), 0);
        assert!(!outgoing.is_drained(), "nothing is out");
        assert_eq!(contexts(outgoing.fail()), [0, 1]);
    }

    #[test]
    fn a_disconnect_fails_incomplete_operations_and_unrequested_responses_are_protocol_errors() {
        let mut outgoing = Outgoing::default();
        outgoing.take_read(0).unwrap_err();
        outgoing.take_refused_read().unwrap_err();
        outgoing.take_atomic(0, 0).unwrap_err();
        outgoing.take_acked(None).unwrap_err();
        let segment = RmaIov {
            addr: 0,
            len: 0,
            key: 0,
        };
        let read = Operation {
            header: Header::ReadRequest {
                segments: RmaSegments::one(segment),
            },
            body: Body::none(),
            response: Response::ReadData(RxBuf::default()),
            report: message(5, 0).report,
        };
        outgoing.queue(read, 64);
        outgoing.take_read(1).unwrap_err();
        assert_eq!(contexts(outgoing.fail()), [5]);
        outgoing.take_read(0).unwrap_err();
    }
}
