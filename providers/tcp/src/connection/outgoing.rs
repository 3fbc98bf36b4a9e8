//! `Outgoing`: the local operations that wait to be sent or for the peer's response, and the
//! responses of this side to the peer.
//!
//! Operations that are posted before the handshake is complete are kept unencoded: their encoding
//! depends on the negotiated parameters.

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

/// The maximum number of reads that wait for a response, of atomics that wait for a response, and
/// of operations that wait for the handshake.
const FETCHES_MAX: usize = 128;
/// The maximum number of unacknowledged frames.
const UNACKED_MAX: usize = 512;

/// The send state of a connection.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    pub(crate) negotiated: Negotiated,
    pub(crate) tx: Tx,
    /// Operations posted before the handshake was complete.
    waiting: VecDeque<Operation>,
    unacked: Unacked,
    reads: VecDeque<PendingFetch>,
    /// A read whose data have arrived, and whose `ReadEnd` has not.
    unchecked_read: Option<Report>,
    atomics: VecDeque<PendingFetch>,
    /// Messages for which an RTS was sent and no CTS has arrived, by id.
    rendezvous: FxHashMap<u8, Operation>,
    /// Whether a response was queued since the last [`Self::take_response_queued`].
    has_new_responses: bool,
}

impl Outgoing {
    /// Whether everything that was posted is complete.
    pub(crate) fn is_drained(&self) -> bool {
        self.pending() == 0 && self.unchecked_read.is_none() && self.tx.is_idle()
    }

    /// Whether an operation waits for the peer's response.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.pending() > self.waiting.len() || self.unchecked_read.is_some()
    }

    /// The number of local operations that wait to be sent or for a response.
    pub(crate) fn pending(&self) -> usize {
        let unanswered = self.unacked.len() + self.reads.len() + self.atomics.len();
        self.waiting.len() + unanswered + self.rendezvous.len()
    }

    /// The number of local operations that wait for the handshake.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Queues an operation until the handshake is complete.
    ///
    /// # Errors
    /// [`Errno::Again`] when `max` operations, or [`FETCHES_MAX`], wait already.
    #[cold]
    pub(crate) fn queue_until_connected(&mut self, operation: Operation, max: usize) -> Result {
        if self.waiting.len() >= max.min(FETCHES_MAX) {
            return Err(Errno::Again);
        }
        let is_injected = operation.report.flags.contains(OpFlags::INJECT);
        let body = if is_injected {
            operation.body.into_copied()
        } else {
            operation.body
        };
        self.waiting.push_back(Operation { body, ..operation });
        Ok(())
    }

    /// Completes the handshake. Returns the operations that waited for it.
    pub(crate) fn establish(&mut self, negotiated: Negotiated) -> VecDeque<Operation> {
        self.negotiated = negotiated;
        std::mem::take(&mut self.waiting)
    }

    /// Whether `operation` may be queued. At most `max` frames may wait to be sent.
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

    /// Whether the peer supports an operation.
    #[inline]
    pub(crate) fn supports(&self, operation: &Operation) -> bool {
        self.negotiated.has_extensions() || !operation.needs_extensions()
    }

    /// Queues an operation that the peer supports. A tagged message of more than `eager_size` bytes
    /// sends an RTS first, to a peer that supports RTS.
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
            // Between Selvedge endpoints a write completes with the target's status.
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

    /// Sends as many queued frames as the kernel takes.
    ///
    /// # Errors
    /// When the connection has ended, or must be ended.
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

    /// Queues a response to the peer.
    pub(crate) fn queue_response(&mut self, header: &Header, payload: &[u8]) {
        let order = self.negotiated.order;
        self.tx
            .queue_copied(header, order, |out| out.extend_from_slice(payload));
        self.has_new_responses = true;
    }

    /// Notes that a response was queued without [`Self::queue_response`].
    pub(crate) fn note_response(&mut self) {
        self.has_new_responses = true;
    }

    /// Returns whether responses were queued since the last call. If so, the caller schedules the
    /// connection, so that they are sent.
    #[inline]
    pub(crate) fn take_response_queued(&mut self) -> bool {
        std::mem::take(&mut self.has_new_responses)
    }

    /// Queues the acknowledgement of a frame, if the frame has requested one and so has a number.
    pub(crate) fn queue_ack(&mut self, number: Option<u64>, denied: Option<Errno>) {
        let Some(number) = number else {
            return;
        };
        let header = if self.negotiated.has_extensions() {
            Header::AckStatus {
                number,
                status: denied.map_or(0, |errno| errno.as_raw().unsigned_abs()),
            }
        } else {
            Header::Ack
        };
        self.queue_response(&header, &[]);
    }

    /// Queues the data of the message whose RTS has this id, after its CTS has arrived.
    ///
    /// # Errors
    /// When there is no RTS with this id.
    pub(crate) fn send_rendezvous_data(&mut self, id: u8) -> Result<(), ProtocolError> {
        let operation = self.rendezvous.remove(&id);
        let operation = operation.ok_or(ProtocolError("a CTS without an RTS"))?;
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

    /// Removes the frame that the peer has acknowledged, and returns its report. Without a number,
    /// the oldest frame is acknowledged.
    ///
    /// # Errors
    /// When there is no such frame.
    pub(crate) fn take_acked(&mut self, number: Option<u64>) -> Result<Report, ProtocolError> {
        match number {
            None => self.unacked.ack_oldest(),
            Some(number) => self.unacked.ack(number),
        }
    }

    /// Removes the oldest read, whose response has `len` bytes of data.
    ///
    /// # Errors
    /// When there is no read, or the oldest read expects another length.
    pub(crate) fn take_read(&mut self, len: usize) -> Result<PendingFetch, ProtocolError> {
        let fetch = self.reads.pop_front_if(|fetch| fetch.len == len);
        fetch.ok_or(ProtocolError("a read response that no read expects"))
    }

    /// Keeps the report of a read whose data have arrived until its `ReadEnd` arrives.
    pub(crate) fn hold_unchecked_read(&mut self, report: Report) {
        self.unchecked_read = Some(report);
    }

    /// Removes the read whose `ReadEnd` has arrived, and returns its report.
    ///
    /// # Errors
    /// When there is no such read.
    pub(crate) fn take_unchecked_read(&mut self) -> Result<Report, ProtocolError> {
        let report = self.unchecked_read.take();
        report.ok_or(ProtocolError("the end of a read without its data"))
    }

    /// Removes the oldest read, which the peer has refused, and returns its report.
    ///
    /// # Errors
    /// When there is no read.
    pub(crate) fn take_refused_read(&mut self) -> Result<Report, ProtocolError> {
        let fetch = self.reads.pop_front();
        let fetch = fetch.ok_or(ProtocolError("an error response without a read"))?;
        Ok(fetch.report)
    }

    /// Removes the oldest atomic, whose result has `len` bytes of fetched values.
    ///
    /// # Errors
    /// When there is no atomic, or the oldest atomic expects another length. The result of a failed
    /// atomic has no values.
    pub(crate) fn take_atomic(
        &mut self,
        status: u32,
        len: usize,
    ) -> Result<PendingFetch, ProtocolError> {
        let is_expected = |result_len: usize| len == if status == 0 { result_len } else { 0 };
        let fetch = self.atomics.pop_front_if(|fetch| is_expected(fetch.len));
        fetch.ok_or(ProtocolError("an atomic result without an atomic"))
    }

    /// Removes all incomplete operations after a disconnect, and returns their reports. The memory
    /// of these operations is not used any more.
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

    /// A tagged message with this number as its tag and context.
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
        assert_eq!(outgoing.pending(), 1, "the message with an RTS");
        assert!(!outgoing.take_response_queued());
        outgoing.send_rendezvous_data(2).unwrap_err();
        outgoing.send_rendezvous_data(1).unwrap();
        assert!(outgoing.take_response_queued() && !outgoing.take_response_queued());
        outgoing.send_rendezvous_data(1).unwrap_err();
        assert_eq!(outgoing.pending(), 0);
        assert!(!outgoing.is_drained(), "no frame was sent");
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
