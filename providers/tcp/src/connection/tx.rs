//! `Tx`: the send queue of a connection. It sends as many frames as possible in one system call.
//!
//! Small frames are copied into batches; large payloads are sent from their own memory. A frame
//! counts as sent when the kernel has taken it, so a completed send arrives without further calls
//! of the sender. The first frame after a turn of progress is sent at once. Later frames wait for
//! the next turn, or until they are worth a system call.

use std::collections::VecDeque;
use std::io;

use selvedge::MrAccess;
use selvedge_kit::copy::TxBuf;
use selvedge_kit::mr::{Keys, Regions};
use selvedge_kit::segments::RmaSegments;
use selvedge_kit::{Ep, Report};

use crate::connection::unacked::Unacked;
use crate::socket::vecs::{SendVecs, VECS};
use crate::socket::{Socket, bytes_sent_by_thread};
use crate::wire::ByteOrder;
use crate::wire::frame::{self, Header};
use crate::wire::hello::Negotiated;

/// The size of a cache line in bytes.
const CACHE_LINE: usize = 64;
/// The approximate maximum number of bytes of one system call.
const SEND_MAX: usize = 1 << 20;
/// The number of copied bytes in the queue at which posts return `Again`.
const STAGED_MAX: usize = 256 << 10;
/// The maximum size of a batch; further frames begin another.
const BATCH_MAX: usize = 64 << 10;
/// The number of copied bytes that are sent without waiting for the next turn.
const FLUSH_MIN: usize = 32 << 10;
/// The memory that an idle connection keeps for the next batch.
const SPARE_MAX: usize = 8 << 10;
/// The number of copied bytes beyond which a peer that does not read its responses is no longer
/// read.
const RESPONSES_MAX: usize = 1 << 20;
/// The same limit as a number of frames beyond the post limit.
const RESPONSE_FRAMES_MAX: usize = 1024;
/// The bytes that are sent instead of memory whose registration was closed.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

#[derive(Debug, Default)]
pub(crate) struct Tx {
    queue: VecDeque<QueueEntry>,
    /// The bytes of all batches.
    staged: usize,
    /// The bytes copied into batches so far, and those of them that were sent.
    copied: u64,
    copied_sent: u64,
    /// Operations, each with the value of `copied_sent` at which it completes.
    reports: VecDeque<(u64, Report)>,
    /// The number of frames so far, modulo 256; debug builds of libfabric check it.
    number: u8,
    /// The turn of progress in which a frame was last sent at once.
    turn: u64,
    /// Whether the kernel's buffer is full.
    pub(crate) is_blocked: bool,
    /// Whether the connection is in the list of those to flush.
    pub(crate) is_dirty: bool,
}

#[derive(Debug)]
enum QueueEntry {
    /// A batch of copied frames, of which `sent` bytes were sent.
    Batch {
        bytes: Vec<u8>,
        sent: usize,
    },
    Frame(Box<Frame>),
}

/// A frame whose payload is not copied.
#[derive(Debug)]
struct Frame {
    header: Vec<u8>,
    /// The length of the header without padding.
    header_len: usize,
    payload: Payload,
    len: usize,
    /// The `ReadEnd` frame, for a peer that expects one.
    tail: Option<ReadEnd>,
    sent: usize,
    on_sent: OnSent,
}

#[derive(Debug)]
enum Payload {
    Borrowed(TxBuf),
    /// Registered memory that the peer reads.
    Registered(RmaSegments),
    /// Zeros instead of memory whose registration was closed during the read.
    Zeros,
}

/// The encoded frame after a read response.
#[derive(Debug)]
struct ReadEnd {
    order: ByteOrder,
    bytes: Vec<u8>,
}

/// The action after a frame was sent.
#[derive(Debug)]
enum OnSent {
    Nothing,
    /// The operation is complete.
    Complete(Report),
    /// The frame with this number may be acknowledged.
    AwaitAck(u64),
}

/// The reason why a connection can no longer send.
#[derive(Debug)]
pub(crate) enum SendError {
    Io(io::Error),
    /// The registration was closed during a read of a peer without error responses.
    Withdrawn,
}

impl Tx {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether one more operation may be posted; `is_copied` is true if its payload is copied.
    pub(crate) fn has_room(&self, max: usize, is_copied: bool) -> bool {
        self.queue.len() < max
            && (!is_copied || self.staged < STAGED_MAX && self.reports.len() < max)
    }

    /// Whether the peer requests more responses than it reads.
    pub(crate) fn is_overloaded(&self, max: usize) -> bool {
        self.staged > RESPONSES_MAX || self.queue.len() > max + RESPONSE_FRAMES_MAX
    }

    /// Whether to send the queue now: the last queued frame is the first of this turn, or the queue
    /// is long enough.
    pub(crate) fn should_flush_now(&mut self, turn: u64) -> bool {
        if self.is_blocked {
            return false;
        }
        let is_first = self.turn != turn;
        self.turn = turn;
        is_first || self.staged >= FLUSH_MIN
    }

    /// The batch to which a small frame is appended.
    #[expect(
        clippy::unreachable,
        reason = "the branch depends on no input of a peer"
    )]
    fn batch(&mut self) -> &mut Vec<u8> {
        let fits = matches!(self.queue.back(), Some(QueueEntry::Batch { bytes, .. }) if bytes.len() < BATCH_MAX);
        if !fits {
            self.queue.push_back(QueueEntry::Batch {
                bytes: Vec::new(),
                sent: 0,
            });
        }
        match self.queue.back_mut() {
            Some(QueueEntry::Batch { bytes, .. }) => bytes,
            _ => unreachable!("a batch was just added"),
        }
    }

    /// Queues a frame with a copy of its payload.
    pub(crate) fn queue_copied(
        &mut self,
        header: &Header,
        order: ByteOrder,
        payload: impl FnOnce(&mut Vec<u8>),
    ) {
        let number = self.next_number();
        let batch = self.batch();
        let before = batch.len();
        header.encode(order, number, batch);
        payload(batch);
        let added = batch.len() - before;
        self.staged += added;
        self.copied += added as u64;
    }

    /// Reports the operation when all bytes copied so far were sent.
    pub(crate) fn report_when_sent(&mut self, report: Report) {
        self.reports.push_back((self.copied, report));
    }

    /// Queues a frame whose payload is the caller's memory; `ack_number` is the acknowledgement
    /// number of a frame that requests an acknowledgement.
    pub(crate) fn queue_borrowed(
        &mut self,
        header: &Header,
        order: ByteOrder,
        buf: TxBuf,
        report: Report,
        ack_number: Option<u64>,
    ) {
        let on_sent = ack_number.map_or(OnSent::Complete(report), OnSent::AwaitAck);
        self.push(header, order, Payload::Borrowed(buf), None, on_sent);
    }

    /// Queues the response to a read of registered memory, and a `ReadEnd` if `is_checked`.
    pub(crate) fn queue_read_response(
        &mut self,
        order: ByteOrder,
        segments: RmaSegments,
        is_checked: bool,
    ) {
        let len = segments.len();
        let header = Header::ReadResponse { len, is_checked };
        let tail = is_checked.then(|| ReadEnd::new(order, 0));
        let payload = Payload::Registered(segments);
        self.push(&header, order, payload, tail, OnSent::Nothing);
    }

    fn push(
        &mut self,
        header: &Header,
        order: ByteOrder,
        payload: Payload,
        tail: Option<ReadEnd>,
        on_sent: OnSent,
    ) {
        let mut bytes = Vec::with_capacity(frame::HEADER_MAX);
        header.encode(order, self.next_number(), &mut bytes);
        // An empty batch that is kept for its memory must not precede the frame.
        self.queue.pop_back_if(
            |entry| matches!(entry, QueueEntry::Batch { bytes, .. } if bytes.is_empty()),
        );
        self.queue.push_back(QueueEntry::Frame(Box::new(Frame {
            header_len: bytes.len(),
            header: bytes,
            len: payload.len(),
            payload,
            tail,
            sent: 0,
            on_sent,
        })));
    }

    /// Sends as many queued frames as the kernel takes.
    ///
    /// # Errors
    /// When the connection has ended, or must end.
    pub(crate) fn flush(
        &mut self,
        socket: &mut Socket,
        negotiated: &Negotiated,
        unacked: &mut Unacked,
        keys: &Keys,
        ep: &Ep,
    ) -> Result<(), SendError> {
        self.is_blocked =
            socket.has_unsent_records() && !socket.flush_records().map_err(SendError::Io)?;
        while !self.is_idle() {
            let regions = self.queue.iter().take(VECS).any(QueueEntry::is_registered);
            let regions = regions.then(|| keys.regions());
            if let Some(regions) = &regions {
                for entry in self.queue.iter_mut().take(VECS) {
                    if let QueueEntry::Frame(frame) = entry {
                        frame.check(regions)?;
                    }
                }
            }
            if !socket.is_encrypted() {
                self.align(negotiated.order, negotiated.has_extensions());
            }
            let mut vecs = SendVecs::new();
            for entry in &self.queue {
                let has_room = match entry {
                    QueueEntry::Batch { bytes, sent } => vecs.push(&bytes[*sent..]),
                    QueueEntry::Frame(frame) => frame.gather(&mut vecs, regions.as_ref()),
                };
                if !has_room || vecs.len() >= SEND_MAX {
                    break;
                }
            }
            let total = vecs.len();
            let sent = socket.send(&mut vecs);
            drop(regions);
            match sent {
                Ok(count) => {
                    self.advance(count, unacked, ep);
                    if count < total {
                        self.is_blocked = true;
                        return Ok(());
                    }
                }
                Err(cause) => match cause.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock => {
                        self.is_blocked = true;
                        return Ok(());
                    }
                    _ => return Err(SendError::Io(cause)),
                },
            }
        }
        Ok(())
    }

    /// Pads headers so that the payloads of the next call have the same offset within a cache line
    /// in the kernel's pages as in their own memory. The kernel then copies them two to three times
    /// as fast, on both sides if the receiver's buffer has the same offset (AMD EPYC, Linux 6.18: 1
    /// MiB in 230 us, not 570).
    fn align(&mut self, order: ByteOrder, has_extensions: bool) {
        let start = bytes_sent_by_thread();
        let mut offset = start;
        for entry in self.queue.iter_mut().take(VECS) {
            offset = match entry {
                QueueEntry::Batch { bytes, sent } => offset.wrapping_add(bytes.len() - *sent),
                QueueEntry::Frame(frame) => {
                    frame.align(offset, order, has_extensions);
                    offset.wrapping_add(frame.size() - frame.sent)
                }
            };
            if offset.wrapping_sub(start) >= SEND_MAX {
                return;
            }
        }
    }

    fn next_number(&mut self) -> u8 {
        let number = self.number;
        self.number = number.wrapping_add(1);
        number
    }

    /// Records that `count` more bytes were sent.
    fn advance(&mut self, mut count: usize, unacked: &mut Unacked, ep: &Ep) {
        while let Some(front) = self.queue.front_mut() {
            let (sent, len, is_batch) = match front {
                QueueEntry::Batch { bytes, sent } => (sent, bytes.len(), true),
                QueueEntry::Frame(frame) => {
                    let size = frame.size();
                    (&mut frame.sent, size, false)
                }
            };
            let part = count.min(len - *sent);
            *sent += part;
            count -= part;
            let is_sent = *sent == len;
            if is_batch {
                self.advance_copied(part, ep);
            }
            if !is_sent {
                return;
            }
            match self.queue.pop_front() {
                Some(QueueEntry::Batch { bytes, .. }) => self.finish_batch(bytes),
                Some(QueueEntry::Frame(frame)) => frame.finish(unacked, ep),
                None => {}
            }
            if count == 0 && self.holds_only_spare() {
                return;
            }
        }
    }

    /// Records that `count` more copied bytes were sent, and reports completed operations.
    fn advance_copied(&mut self, count: usize, ep: &Ep) {
        self.copied_sent += count as u64;
        let copied_sent = self.copied_sent;
        while let Some((_, report)) = self
            .reports
            .pop_front_if(|&mut (end, _)| end <= copied_sent)
        {
            report.done(ep);
        }
    }

    /// Frees a batch that was sent, or keeps its memory for the next one.
    fn finish_batch(&mut self, mut bytes: Vec<u8>) {
        self.staged -= bytes.len();
        if self.queue.is_empty() && bytes.capacity() <= SPARE_MAX {
            bytes.clear();
            self.queue.push_back(QueueEntry::Batch { bytes, sent: 0 });
        }
    }

    /// Whether the queue holds only an empty batch.
    fn holds_only_spare(&self) -> bool {
        self.queue.len() == 1
            && matches!(self.queue.front(), Some(QueueEntry::Batch { bytes, .. }) if bytes.is_empty())
    }

    /// Whether the queue has no bytes to send.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_empty() || self.holds_only_spare()
    }

    /// Clears the queue after a disconnect. Returns the operations whose frames were not sent
    /// completely, in order.
    pub(crate) fn fail(&mut self) -> Vec<Report> {
        let queue = std::mem::take(&mut self.queue);
        self.staged = 0;
        let mut reports = std::mem::take(&mut self.reports);
        let (mut end, mut failed) = (self.copied_sent, Vec::new());
        for entry in queue {
            match entry {
                QueueEntry::Batch { bytes, sent } => {
                    end += (bytes.len() - sent) as u64;
                    while let Some((_, report)) =
                        reports.pop_front_if(|&mut (report_end, _)| report_end <= end)
                    {
                        failed.push(report);
                    }
                }
                QueueEntry::Frame(frame) => {
                    if let OnSent::Complete(report) = frame.on_sent {
                        failed.push(report);
                    }
                }
            }
        }
        failed
    }
}

impl QueueEntry {
    /// Whether the payload is registered memory, which may be closed at any time.
    fn is_registered(&self) -> bool {
        matches!(self, Self::Frame(frame) if matches!(frame.payload, Payload::Registered(_)))
    }
}

impl Frame {
    /// Pads the header of a frame that begins at `offset` of the stream, unless a part of the frame
    /// was sent.
    fn align(&mut self, offset: usize, order: ByteOrder, has_extensions: bool) {
        if self.sent > 0 {
            return;
        }
        let addr = match &self.payload {
            Payload::Borrowed(buf) => buf
                .segments(0, 1)
                .next()
                .map(|segment| segment.as_ptr().addr()),
            // The address is an offset in the region or a virtual address; regions mostly begin at
            // a cache line or page.
            Payload::Registered(segments) => {
                segments.all().first().map(|segment| segment.addr as usize)
            }
            Payload::Zeros => None,
        };
        let payload_start = offset.wrapping_add(self.header_len);
        let padding = addr.unwrap_or(payload_start).wrapping_sub(payload_start) % CACHE_LINE;
        let padding = padding - padding % frame::HEADER_LEN_UNIT;
        frame::pad(
            &mut self.header,
            self.header_len,
            padding,
            order,
            has_extensions,
        );
    }

    fn finish(self, unacked: &mut Unacked, ep: &Ep) {
        let Self {
            payload, on_sent, ..
        } = self;
        // The caller's memory must not be in use when the completion is written.
        drop(payload);
        match on_sent {
            OnSent::Nothing => {}
            OnSent::Complete(report) => report.done(ep),
            OnSent::AwaitAck(number) => unacked.mark_sent(number),
        }
    }

    /// The length of header, payload and tail.
    fn size(&self) -> usize {
        let tail = self.tail.as_ref().map_or(0, |tail| tail.bytes.len());
        self.header.len() + self.len + tail
    }

    /// The number of sent bytes of the payload.
    fn sent_of_payload(&self) -> usize {
        self.sent.saturating_sub(self.header.len()).min(self.len)
    }

    /// Checks the registered memory that is still to be sent. If its registration was closed, the
    /// peer gets zeros, and the tail reports the reason.
    ///
    /// # Errors
    /// [`SendError::Withdrawn`] if the frame has no tail to report the reason.
    fn check(&mut self, regions: &Regions<'_>) -> Result<(), SendError> {
        let Payload::Registered(segments) = &self.payload else {
            return Ok(());
        };
        let offset = self.sent_of_payload();
        let locate = |segment| regions.locate(&segment, MrAccess::REMOTE_READ);
        let denied = segments
            .clip(offset, self.len - offset)
            .find_map(|segment| locate(segment).err());
        let Some(denied) = denied else {
            return Ok(());
        };
        let tail = self.tail.as_mut().ok_or(SendError::Withdrawn)?;
        *tail = ReadEnd::new(tail.order, denied.errno().as_raw().unsigned_abs());
        self.payload = Payload::Zeros;
        Ok(())
    }

    /// Appends the unsent parts in order; registered memory must have been [checked](Self::check).
    /// Returns whether another frame fits in the same call.
    fn gather<'a>(&'a self, vecs: &mut SendVecs<'a>, regions: Option<&'a Regions<'_>>) -> bool {
        let header = self.header.get(self.sent..).unwrap_or_default();
        let offset = self.sent_of_payload();
        let has_room = (header.is_empty() || vecs.push(header))
            && match &self.payload {
                Payload::Borrowed(buf) => {
                    let mut segments = buf.segments(offset, self.len - offset);
                    segments.all(|segment| vecs.push(segment))
                }
                Payload::Registered(segments) => {
                    let mut rest = segments.clip(offset, self.len - offset);
                    rest.all(|segment| {
                        let part = regions.map(|regions| {
                            let part = regions.locate(&segment, MrAccess::REMOTE_READ);
                            part.map(|part| vecs.push_shared(part, regions))
                        });
                        matches!(part, Some(Ok(true)))
                    })
                }
                Payload::Zeros => {
                    let chunks = (offset..self.len).step_by(ZEROS.len());
                    let mut chunks = chunks.map(|start| ZEROS.len().min(self.len - start));
                    chunks.all(|count| vecs.push(&ZEROS[..count]))
                }
            };
        let tail = self.tail.as_ref().map_or(&[][..], |tail| {
            let sent = self.sent.saturating_sub(self.header.len() + self.len);
            &tail.bytes[sent..]
        });
        has_room && (tail.is_empty() || vecs.push(tail))
    }
}

impl ReadEnd {
    fn new(order: ByteOrder, status: u32) -> Self {
        let mut bytes = Vec::new();
        // Only Selvedge endpoints read this frame, and they ignore the number of a frame.
        Header::ReadEnd { status }.encode(order, 0, &mut bytes);
        Self { order, bytes }
    }
}

impl Payload {
    fn len(&self) -> usize {
        match self {
            Self::Borrowed(buf) => buf.len(),
            Self::Registered(segments) => segments.len(),
            Self::Zeros => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use selvedge::{CompletionFlags, Context, OpFlags};
    use selvedge_kit::srx::Kind;

    use super::*;
    use crate::connection::operation::Body;
    use crate::endpoint::msg::borrowed;
    use crate::wire::frame::{AckPolicy, HEADER_MAX};

    #[repr(align(64))]
    struct Lines([u8; 8192]);

    fn queue_borrowed(tx: &mut Tx, bytes: &[u8]) {
        let header = Header::Message {
            kind: Kind::Tagged,
            tag: 1,
            data: None,
            ack: AckPolicy::Never,
            len: bytes.len(),
        };
        let report = Report {
            kind: CompletionFlags::SEND,
            context: Context(0),
            flags: OpFlags::empty(),
            reports_success: true,
            len: bytes.len(),
        };
        // No frame is sent, so the bytes are not read.
        let Body::Borrowed(buf) = borrowed(bytes) else {
            panic!("the body is not borrowed");
        };
        tx.queue_borrowed(&header, ByteOrder::Native, buf, report, None);
    }

    #[test]
    fn payloads_are_aligned_in_the_stream_as_in_memory() {
        let memory = Lines([0; 8192]);
        // Segments of any length and alignment. A payload that padding in whole units cannot align
        // begins less than a unit before its offset.
        let lists: [&[(usize, usize)]; 3] = [
            &[(0, 4096), (0, 4096), (0, 4096)],
            &[(8, 3000), (48, 3001), (0, 2999), (56, 4000)],
            &[(3, 4096), (0, 100), (7, 3333)],
        ];
        for list in lists {
            let mut tx = Tx::default();
            tx.queue_copied(&Header::Ack, ByteOrder::Native, |_| {});
            for &(start, len) in list {
                queue_borrowed(&mut tx, &memory.0[start..start + len]);
            }
            tx.align(ByteOrder::Native, false);
            let mut offset = bytes_sent_by_thread();
            for (entry, &(start, _)) in tx.queue.iter().skip(1).zip(list) {
                let QueueEntry::Frame(frame) = entry else {
                    panic!("{entry:?}");
                };
                if offset == bytes_sent_by_thread() {
                    offset += 16;
                }
                let payload_start = offset + frame.header.len();
                assert!(
                    (start + CACHE_LINE - payload_start % CACHE_LINE) % CACHE_LINE
                        < frame::HEADER_LEN_UNIT,
                    "{start} {payload_start}"
                );
                assert!(frame.header.len() <= HEADER_MAX);
                offset = payload_start + frame.len;
            }
        }
    }
}
