//! Sending: frames in a queue, and as many of them as possible in one system call.
//!
//! Small frames are copied one behind the other; a large one stays where it is. Either counts as sent
//! when the kernel has taken it, and not before: whoever has read of a send need not call in again for
//! it to arrive. The first frame after a turn of progress leaves at once; those that follow it wait for
//! the next turn, or until they are worth a call of their own.

use std::collections::VecDeque;
use std::io;

use selvedge::MrAccess;
use selvedge_kit::copy::TxBuf;
use selvedge_kit::mr::{Keys, Regions};
use selvedge_kit::segments::RmaSegments;
use selvedge_kit::{Ep, Report};

use crate::connection::asks::Asks;
use crate::socket::vecs::{Load, VECS};
use crate::socket::{Socket, sent_by_thread};
use crate::wire::Order;
use crate::wire::frame::{self, Head};
use crate::wire::hello::Terms;

/// Bytes of memory that processors move as one.
const LINE: usize = 64;
/// Bytes in one system call, about.
const BATCH: usize = 1 << 20;
/// Copied bytes at which posts have to wait.
const STAGED_MAX: usize = 256 << 10;
/// Copied bytes of a run: a longer queue begins another.
const RUN: usize = 64 << 10;
/// Copied bytes that are sent without waiting for the next turn.
const EAGER: usize = 32 << 10;
/// Memory that an idle connection keeps for the next run.
const KEPT: usize = 8 << 10;
/// Copied bytes, and frames beyond those that may be posted, at which a peer that does not take its
/// answers is no longer listened to.
const OWED_MAX: usize = 1 << 20;
const OWED_FRAMES: usize = 1024;
/// Sent in place of memory that was withdrawn.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

#[derive(Debug, Default)]
pub(crate) struct Tx {
    queue: VecDeque<Out>,
    /// Bytes of all runs.
    staged: usize,
    /// Copied bytes so far, and those of them that are out.
    copied: u64,
    gone: u64,
    /// What is complete when so many copied bytes are out.
    reports: VecDeque<(u64, Report)>,
    /// Frames so far, as far as debugging builds of libfabric count.
    number: u8,
    /// The turn of progress in which something was last sent at once.
    turn: u64,
    /// The kernel takes no more at the moment.
    pub(crate) is_blocked: bool,
    /// It is noted down to be flushed.
    pub(crate) is_dirty: bool,
}

#[derive(Debug)]
enum Out {
    /// Small frames, of which `sent` bytes are out.
    Run {
        bytes: Vec<u8>,
        sent: usize,
    },
    Frame(Box<Frame>),
}

/// A frame whose payload is not copied.
#[derive(Debug)]
struct Frame {
    head: Vec<u8>,
    /// Bytes of it without padding.
    base: usize,
    payload: Payload,
    len: usize,
    /// The end of a read, for a peer that expects one.
    tail: Option<ReadEnd>,
    sent: usize,
    done: Done,
}

#[derive(Debug)]
enum Payload {
    Caller(TxBuf),
    /// Registered memory that the peer reads.
    Registered(RmaSegments),
    /// Zeros in place of memory that was withdrawn while it was read.
    Zeros,
}

/// The frame behind a read response, encoded.
#[derive(Debug)]
struct ReadEnd {
    order: Order,
    bytes: Vec<u8>,
}

/// What happens when a frame is out.
#[derive(Debug)]
enum Done {
    Nothing,
    /// It is complete.
    Report(Report),
    /// It may be answered.
    Asked(u64),
}

/// Why nothing more can be sent.
#[derive(Debug)]
pub(crate) enum Broken {
    Io(io::Error),
    /// Memory was withdrawn that a peer reads who cannot be told so.
    Withdrawn,
}

impl Tx {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether one more operation may be posted, which is copied or not.
    pub(crate) fn has_room(&self, most: usize, is_copied: bool) -> bool {
        self.queue.len() < most
            && (!is_copied || self.staged < STAGED_MAX && self.reports.len() < most)
    }

    /// Whether the peer asks for more than it takes.
    pub(crate) fn is_overloaded(&self, most: usize) -> bool {
        self.staged > OWED_MAX || self.queue.len() > most + OWED_FRAMES
    }

    /// Whether what was just queued is to leave at once: it is alone in this turn, or enough.
    pub(crate) fn leaves_at_once(&mut self, turn: u64) -> bool {
        if self.is_blocked {
            return false;
        }
        let is_first = self.turn != turn;
        self.turn = turn;
        is_first || self.staged >= EAGER
    }

    /// The run that a small frame goes to.
    #[expect(clippy::unreachable, reason = "no word of a peer's is in it")]
    fn run(&mut self) -> &mut Vec<u8> {
        let fits = matches!(self.queue.back(), Some(Out::Run { bytes, .. }) if bytes.len() < RUN);
        if !fits {
            self.queue.push_back(Out::Run {
                bytes: Vec::new(),
                sent: 0,
            });
        }
        match self.queue.back_mut() {
            Some(Out::Run { bytes, .. }) => bytes,
            _ => unreachable!("a run was just added"),
        }
    }

    /// Queues a frame with a copy of its payload.
    pub(crate) fn copy(&mut self, head: &Head, order: Order, payload: impl FnOnce(&mut Vec<u8>)) {
        let number = self.next_number();
        let run = self.run();
        let before = run.len();
        head.encode(order, number, run);
        payload(run);
        let added = run.len() - before;
        self.staged += added;
        self.copied += added as u64;
    }

    /// The operation is complete when what was copied so far is out.
    pub(crate) fn then_report(&mut self, report: Report) {
        self.reports.push_back((self.copied, report));
    }

    /// Queues a frame whose payload is the caller's memory, and the ask that it may be.
    pub(crate) fn lend(
        &mut self,
        head: &Head,
        order: Order,
        buf: TxBuf,
        report: Report,
        ask: Option<u64>,
    ) {
        let done = ask.map_or(Done::Report(report), Done::Asked);
        self.push(head, order, Payload::Caller(buf), None, done);
    }

    /// Queues the response to a read of registered memory, and the end of the read if `is_checked`.
    pub(crate) fn expose(&mut self, order: Order, places: RmaSegments, is_checked: bool) {
        let len = places.len();
        let head = Head::ReadResponse { len, is_checked };
        let tail = is_checked.then(|| ReadEnd::new(order, 0));
        let payload = Payload::Registered(places);
        self.push(&head, order, payload, tail, Done::Nothing);
    }

    fn push(
        &mut self,
        head: &Head,
        order: Order,
        payload: Payload,
        tail: Option<ReadEnd>,
        done: Done,
    ) {
        let mut bytes = Vec::with_capacity(frame::HEADER_MAX);
        head.encode(order, self.next_number(), &mut bytes);
        // An empty run, kept for its memory, would be in the way.
        self.queue
            .pop_back_if(|out| matches!(out, Out::Run { bytes, .. } if bytes.is_empty()));
        self.queue.push_back(Out::Frame(Box::new(Frame {
            base: bytes.len(),
            head: bytes,
            len: payload.len(),
            payload,
            tail,
            sent: 0,
            done,
        })));
    }

    /// Sends what the kernel takes.
    ///
    /// # Errors
    /// When the connection has ended, or has to.
    pub(crate) fn flush(
        &mut self,
        socket: &mut Socket,
        terms: &Terms,
        asks: &mut Asks,
        keys: &Keys,
        ep: &Ep,
    ) -> Result<(), Broken> {
        self.is_blocked = socket.is_behind() && !socket.catch_up().map_err(Broken::Io)?;
        while !self.is_idle() {
            let regions = self.queue.iter().take(VECS).any(Out::is_registered);
            let regions = regions.then(|| keys.regions());
            if let Some(regions) = &regions {
                for out in self.queue.iter_mut().take(VECS) {
                    if let Out::Frame(frame) = out {
                        frame.check(regions)?;
                    }
                }
            }
            if !socket.is_sealed() {
                self.align(terms.order, terms.knows());
            }
            let mut load = Load::new();
            for out in &self.queue {
                let is_more = match out {
                    Out::Run { bytes, sent } => load.push(&bytes[*sent..]),
                    Out::Frame(frame) => frame.gather(&mut load, regions.as_ref()),
                };
                if !is_more || load.len() >= BATCH {
                    break;
                }
            }
            let wanted = load.len();
            let sent = socket.send(&mut load);
            drop(regions);
            match sent {
                Ok(count) => {
                    self.advance(count, asks, ep);
                    if count < wanted {
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
                    _ => return Err(Broken::Io(cause)),
                },
            }
        }
        Ok(())
    }

    /// Has the payloads of the next call lie in the kernel's pages as they do in their own memory,
    /// line by line: it copies them two to three times as fast then, here and at a receiver whose
    /// buffer begins at the same place of a line (AMD EPYC, Linux 6.18: 1 MiB in 230 us, not 570).
    fn align(&mut self, order: Order, knows: bool) {
        let start = sent_by_thread();
        let mut at = start;
        for out in self.queue.iter_mut().take(VECS) {
            at = match out {
                Out::Run { bytes, sent } => at.wrapping_add(bytes.len() - *sent),
                Out::Frame(frame) => {
                    frame.align(at, order, knows);
                    at.wrapping_add(frame.size() - frame.sent)
                }
            };
            if at.wrapping_sub(start) >= BATCH {
                return;
            }
        }
    }

    fn next_number(&mut self) -> u8 {
        let number = self.number;
        self.number = number.wrapping_add(1);
        number
    }

    /// `count` more bytes are out.
    fn advance(&mut self, mut count: usize, asks: &mut Asks, ep: &Ep) {
        while let Some(front) = self.queue.front_mut() {
            let (sent, len, is_run) = match front {
                Out::Run { bytes, sent } => (sent, bytes.len(), true),
                Out::Frame(frame) => {
                    let size = frame.size();
                    (&mut frame.sent, size, false)
                }
            };
            let part = count.min(len - *sent);
            *sent += part;
            count -= part;
            let is_out = *sent == len;
            if is_run {
                self.left(part, ep);
            }
            if !is_out {
                return;
            }
            match self.queue.pop_front() {
                Some(Out::Run { bytes, .. }) => self.end_run(bytes),
                Some(Out::Frame(frame)) => frame.end(asks, ep),
                None => {}
            }
            if count == 0 && self.is_only_spare() {
                return;
            }
        }
    }

    /// `count` more copied bytes are out.
    fn left(&mut self, count: usize, ep: &Ep) {
        self.gone += count as u64;
        let gone = self.gone;
        while let Some((_, report)) = self.reports.pop_front_if(|&mut (end, _)| end <= gone) {
            report.done(ep);
        }
    }

    /// A run is out: the next one may use its memory.
    fn end_run(&mut self, mut bytes: Vec<u8>) {
        self.staged -= bytes.len();
        if self.queue.is_empty() && bytes.capacity() <= KEPT {
            bytes.clear();
            self.spare(bytes);
        }
    }

    fn spare(&mut self, bytes: Vec<u8>) {
        self.queue.push_back(Out::Run { bytes, sent: 0 });
    }

    /// Whether there is nothing but memory for the next run.
    fn is_only_spare(&self) -> bool {
        self.queue.len() == 1
            && matches!(self.queue.front(), Some(Out::Run { bytes, .. }) if bytes.is_empty())
    }

    /// Whether there is nothing to send.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_empty() || self.is_only_spare()
    }

    /// The peer is gone: the operations whose frames are not out, or not whole, in their order.
    pub(crate) fn fail(&mut self) -> Vec<Report> {
        let queue = std::mem::take(&mut self.queue);
        self.staged = 0;
        let mut reports = std::mem::take(&mut self.reports);
        let (mut end, mut failed) = (self.gone, Vec::new());
        for out in queue {
            match out {
                Out::Run { bytes, sent } => {
                    end += (bytes.len() - sent) as u64;
                    while let Some((_, report)) = reports.pop_front_if(|&mut (at, _)| at <= end) {
                        failed.push(report);
                    }
                }
                Out::Frame(frame) => {
                    if let Done::Report(report) = frame.done {
                        failed.push(report);
                    }
                }
            }
        }
        failed
    }
}

impl Out {
    /// Whether the payload is registered memory, which may be withdrawn at any time.
    fn is_registered(&self) -> bool {
        matches!(self, Self::Frame(frame) if matches!(frame.payload, Payload::Registered(_)))
    }
}

impl Frame {
    /// Pads the header for a payload that would begin at `at` behind it, as long as nothing is out.
    fn align(&mut self, at: usize, order: Order, knows: bool) {
        if self.sent > 0 {
            return;
        }
        let addr = match &self.payload {
            Payload::Caller(buf) => buf.segments(0, 1).next().map(|piece| piece.as_ptr().addr()),
            // From the start of the region or of memory; regions begin at lines or pages, mostly.
            Payload::Registered(places) => places.all().first().map(|place| place.addr as usize),
            Payload::Zeros => None,
        };
        let begins = at.wrapping_add(self.base);
        let by = addr.unwrap_or(begins).wrapping_sub(begins) % LINE;
        let by = by - by % frame::UNIT;
        frame::pad(&mut self.head, self.base, by, order, knows);
    }

    fn end(self, asks: &mut Asks, ep: &Ep) {
        let Self { payload, done, .. } = self;
        // Nothing reads the memory any more when the completion comes.
        drop(payload);
        match done {
            Done::Nothing => {}
            Done::Report(report) => report.done(ep),
            Done::Asked(number) => asks.sent(number),
        }
    }

    /// Bytes of the head, the payload and the tail.
    fn size(&self) -> usize {
        let tail = self.tail.as_ref().map_or(0, |tail| tail.bytes.len());
        self.head.len() + self.len + tail
    }

    /// Bytes of the payload that are out.
    fn sent_of_payload(&self) -> usize {
        self.sent.saturating_sub(self.head.len()).min(self.len)
    }

    /// Looks up the registered memory that is still to be sent. In place of memory that was withdrawn
    /// a peer gets zeros, and the tail says why.
    ///
    /// # Errors
    /// [`Broken::Withdrawn`] where the frame has no tail to say so.
    fn check(&mut self, regions: &Regions<'_>) -> Result<(), Broken> {
        let Payload::Registered(places) = &self.payload else {
            return Ok(());
        };
        let at = self.sent_of_payload();
        let locate = |place| regions.locate(&place, MrAccess::REMOTE_READ);
        let denied = places
            .clip(at, self.len - at)
            .find_map(|place| locate(place).err());
        let Some(denied) = denied else {
            return Ok(());
        };
        let tail = self.tail.as_mut().ok_or(Broken::Withdrawn)?;
        *tail = ReadEnd::new(tail.order, denied.errno().as_raw().unsigned_abs());
        self.payload = Payload::Zeros;
        Ok(())
    }

    /// Adds what is still to be sent, in order; registered memory was [checked](Self::check). Returns
    /// whether there is room for another frame in the same call.
    fn gather<'a>(&'a self, load: &mut Load<'a>, regions: Option<&'a Regions<'_>>) -> bool {
        let head = self.head.get(self.sent..).unwrap_or_default();
        let at = self.sent_of_payload();
        let is_more = (head.is_empty() || load.push(head))
            && match &self.payload {
                Payload::Caller(buf) => {
                    let mut pieces = buf.segments(at, self.len - at);
                    pieces.all(|piece| load.push(piece))
                }
                Payload::Registered(places) => {
                    let mut rest = places.clip(at, self.len - at);
                    rest.all(|place| {
                        let part = regions.map(|held| {
                            let part = held.locate(&place, MrAccess::REMOTE_READ);
                            part.map(|part| load.push_shared(part, held))
                        });
                        matches!(part, Some(Ok(true)))
                    })
                }
                Payload::Zeros => {
                    let chunks = (at..self.len).step_by(ZEROS.len());
                    let mut chunks = chunks.map(|from| ZEROS.len().min(self.len - from));
                    chunks.all(|count| load.push(&ZEROS[..count]))
                }
            };
        let tail = self.tail.as_ref().map_or(&[][..], |tail| {
            let sent = self.sent.saturating_sub(self.head.len() + self.len);
            &tail.bytes[sent..]
        });
        is_more && (tail.is_empty() || load.push(tail))
    }
}

impl ReadEnd {
    fn new(order: Order, status: u32) -> Self {
        let mut bytes = Vec::new();
        // Only Selvedge endpoints read it, which do not look at the number of a frame.
        Head::ReadEnd { status }.encode(order, 0, &mut bytes);
        Self { order, bytes }
    }
}

impl Payload {
    fn len(&self) -> usize {
        match self {
            Self::Caller(buf) => buf.len(),
            Self::Registered(places) => places.len(),
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
    use crate::endpoint::msg::lent;
    use crate::wire::frame::{HEADER_MAX, Wish};

    #[repr(align(64))]
    struct Lines([u8; 8192]);

    fn lend(tx: &mut Tx, bytes: &[u8]) {
        let head = Head::Message {
            kind: Kind::Tagged,
            tag: 1,
            data: None,
            wish: Wish::Never,
            len: bytes.len(),
        };
        let report = Report {
            kind: CompletionFlags::SEND,
            context: Context(0),
            flags: OpFlags::empty(),
            reports_success: true,
            len: bytes.len(),
        };
        // Nothing is sent: the bytes are not looked at.
        let Body::Caller(buf) = lent(bytes) else {
            panic!("it is the caller's memory");
        };
        tx.lend(&head, Order::Own, buf, report, None);
    }

    #[test]
    fn payloads_lie_in_the_stream_as_in_their_memory() {
        let memory = Lines([0; 8192]);
        // Of any length, and from anywhere; one that cannot lie right begins a little before.
        let lists: [&[(usize, usize)]; 3] = [
            &[(0, 4096), (0, 4096), (0, 4096)],
            &[(8, 3000), (48, 3001), (0, 2999), (56, 4000)],
            &[(3, 4096), (0, 100), (7, 3333)],
        ];
        for list in lists {
            let mut tx = Tx::default();
            tx.copy(&Head::Ack, Order::Own, |_| {});
            for &(from, len) in list {
                lend(&mut tx, &memory.0[from..from + len]);
            }
            tx.align(Order::Own, false);
            let mut at = sent_by_thread();
            for (out, &(from, _)) in tx.queue.iter().skip(1).zip(list) {
                let Out::Frame(frame) = out else {
                    panic!("{out:?}");
                };
                if at == sent_by_thread() {
                    at += 16;
                }
                let begins = at + frame.head.len();
                assert!(
                    (from + LINE - begins % LINE) % LINE < frame::UNIT,
                    "{from} {begins}"
                );
                assert!(frame.head.len() <= HEADER_MAX);
                at = begins + frame.len;
            }
        }
    }
}
