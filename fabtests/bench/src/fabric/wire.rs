//! Posting and completing: the only place of the benchmarks that makes promises about memory.
//!
//! The right to use a buffer is a value, [`RxSlot`] or [`TxSlot`], that a post takes and that its
//! completion gives back.

#![expect(unsafe_code, reason = "posts are promises about memory")]

use std::cell::Cell;
use std::marker::PhantomData;

use anyhow::{anyhow, bail, ensure};
use selvedge::{
    CompletionQueue, Context, Desc, Domain, Endpoint, Errno, FiAddr, Iov, IovMut, TagMatch,
    TaggedExt, cq,
};

use super::burden::{LANE_SHIFT, lane_tag};
use super::face::{Face, Purpose};
use super::pattern;
use super::station::{Station, Waiter};
use crate::buffer::Pages;
use crate::pair::exchange;

/// The buffers of an endpoint.
#[derive(Debug)]
pub(super) struct Wire {
    rx: Pages,
    tx: Pages,
    /// A run has begun and has not ended with all its buffers back.
    running: bool,
}

/// The right to use one receive buffer.
#[derive(Debug)]
pub(super) struct RxSlot(usize);

impl RxSlot {
    /// Which of the receive buffers it is.
    #[inline]
    pub(super) fn index(&self) -> usize {
        self.0
    }
}

/// The right to use one send buffer.
#[derive(Debug)]
pub(super) struct TxSlot(usize);

/// A completion of a run.
pub(super) type Done = exchange::Done<RxSlot, TxSlot>;

/// One run of a benchmark: the endpoint, and buffers for messages of one size.
#[derive(Debug)]
pub(super) struct Run<'a, F> {
    ep: &'a dyn Endpoint,
    cq: &'a dyn CompletionQueue,
    peer: FiAddr,
    waiter: Waiter,
    /// What is added to the tags of sends, and to those of receives.
    lane: u64,
    /// The part of the tag that receives do not look at.
    ignore: u64,
    rx: *mut u8,
    tx: *mut u8,
    slots: usize,
    stride: usize,
    running: &'a mut bool,
    /// Posts whose completions have not been read.
    outstanding: Cell<usize>,
    /// Keeps the buffers borrowed, which are reached by pointers.
    buffers: PhantomData<(&'a mut Wire, F)>,
}

impl Wire {
    /// Buffers of `side` bytes for sends, and twice as many for receives.
    ///
    /// # Errors
    /// When there is no memory.
    pub(super) fn new(side: usize) -> anyhow::Result<Self> {
        Ok(Self::over(Pages::new(2 * side)?, Pages::new(side)?))
    }

    /// The same in memory of the domain's.
    ///
    /// # Errors
    /// When there is no memory.
    pub(super) fn special(domain: &dyn Domain, side: usize) -> anyhow::Result<Self> {
        let rx = Pages::special(domain, 2 * side)?;
        Ok(Self::over(rx, Pages::special(domain, side)?))
    }

    fn over(rx: Pages, tx: Pages) -> Self {
        let running = false;
        Self { rx, tx, running }
    }
}

impl<'a, F: Face> Run<'a, F> {
    /// Begins a run with `window` send buffers and twice as many receive buffers of `size` bytes.
    ///
    /// # Errors
    /// When there are not so many, or an earlier run has left operations behind.
    pub(super) fn begin(
        station: &'a mut Station,
        size: usize,
        window: usize,
    ) -> anyhow::Result<(Self, Vec<RxSlot>, Vec<TxSlot>)> {
        let parts = station.parts();
        let wire = parts.wire;
        let stride = stride(size);
        ensure!(!wire.running, "an earlier run has failed on this endpoint");
        ensure!(
            window * stride <= wire.tx.len() && 2 * window * stride <= wire.rx.len(),
            "the buffers have no room for {window} messages of {size} bytes"
        );
        wire.running = true;
        let run = Self {
            ep: parts.ep,
            cq: parts.cq,
            peer: parts.peer,
            waiter: parts.waiter,
            lane: 0,
            ignore: 0,
            rx: wire.rx.as_mut_ptr(),
            tx: wire.tx.as_mut_ptr(),
            slots: window,
            stride,
            running: &mut wire.running,
            outstanding: Cell::new(0),
            buffers: PhantomData,
        };
        let rx = (0..2 * window).map(RxSlot).collect();
        let tx = (0..window).map(TxSlot).collect();
        Ok((run, rx, tx))
    }

    /// Sends to and receives from this lane alone from now on; lane 0 is the usual one.
    pub(super) fn set_lane(&mut self, lane: usize) {
        self.lane = lane_tag(lane);
    }

    /// Receives from all lanes from now on.
    pub(super) fn hear_all_lanes(&mut self) {
        self.ignore = !0 << LANE_SHIFT;
    }

    /// Sends to this peer from now on.
    pub(super) fn set_peer(&mut self, peer: FiAddr) {
        self.peer = peer;
    }

    /// Ends the run. Where operations are outstanding, it was the last one of its endpoint.
    pub(super) fn end(self) {
        *self.running = self.outstanding.get() != 0;
    }

    /// Posts a receive of up to `len` bytes.
    #[inline]
    pub(super) fn recv(
        &self,
        RxSlot(slot): RxSlot,
        len: usize,
        purpose: Purpose,
    ) -> anyhow::Result<()> {
        debug_assert!(len <= self.stride);
        let context = Context(slot as u64);
        let buf = IovMut::from_raw(self.rx_at(slot).cast(), len);
        let tag = TagMatch {
            tag: purpose as u64 | self.lane,
            ignore: self.ignore,
        };
        loop {
            // SAFETY: the buffer belongs to `slot`, which this call keeps until the completion
            // gives it back; the memory outlives the endpoint (`Station`'s order of fields).
            match unsafe { F::recv(self.ep, buf, tag, context) } {
                Ok(()) => break,
                Err(errno) => self.ease(errno, "receive")?,
            }
        }
        self.outstanding.update(|count| count + 1);
        Ok(())
    }

    /// Posts a send of `len` bytes.
    #[inline]
    pub(super) fn send(
        &self,
        TxSlot(slot): TxSlot,
        len: usize,
        purpose: Purpose,
    ) -> anyhow::Result<()> {
        debug_assert!(len <= self.stride);
        let context = Context(slot as u64 | SENT);
        let buf = Iov::from_raw(self.tx_at(slot).cast_const().cast(), len);
        let tag = purpose as u64 | self.lane;
        loop {
            // SAFETY: as in `recv`.
            match unsafe { F::send(self.ep, buf, self.peer, tag, context) } {
                Ok(()) => break,
                Err(errno) => self.ease(errno, "send")?,
            }
        }
        self.outstanding.update(|count| count + 1);
        Ok(())
    }

    /// Sends a copy of the first `len` bytes of a buffer.
    #[inline]
    pub(super) fn inject(&self, slot: &TxSlot, len: usize, purpose: Purpose) -> anyhow::Result<()> {
        debug_assert!(len <= self.stride);
        let base = self.tx_at(slot.0).cast_const();
        // SAFETY: the buffer belongs to `slot`, so that no send is reading or anybody writing it,
        // and `len` bytes lie within it.
        let message = unsafe { std::slice::from_raw_parts(base, len) };
        let tag = purpose as u64 | self.lane;
        loop {
            match F::inject(self.ep, message, self.peer, tag) {
                Ok(()) => return Ok(()),
                Err(errno) => self.ease(errno, "inject")?,
            }
        }
    }

    /// Reads completions into `entries` and says how many there are.
    #[inline]
    pub(super) fn read(&self, entries: &mut [cq::Entry]) -> anyhow::Result<usize> {
        match self.cq.read(entries) {
            Ok(0) => self.wait(entries),
            Ok(count) => Ok(count),
            Err(errno) => Err(self.failure(errno)),
        }
    }

    /// Waits for completions as the station does, and reads them if that has found some.
    #[inline]
    fn wait(&self, entries: &mut [cq::Entry]) -> anyhow::Result<usize> {
        let waited = self.waiter.wait(self.cq, entries);
        waited.map_err(|errno| self.failure(errno))
    }

    /// What a completion gives back.
    #[inline]
    pub(super) fn done(&self, entry: &cq::Entry) -> anyhow::Result<Done> {
        let context = entry.context.0;
        self.outstanding.update(|count| count.wrapping_sub(1));
        let slot = (context & !SENT) as usize;
        if context & SENT != 0 && slot < self.slots {
            Ok(Done::Sent(TxSlot(slot)))
        } else if slot < 2 * self.slots {
            Ok(Done::Received(RxSlot(slot), entry.len))
        } else {
            bail!("the provider completes context {context:#x}, which nothing was posted with")
        }
    }

    /// Fills the first `len` bytes of a send buffer with the pattern of message `seed`.
    pub(super) fn fill(&self, slot: &TxSlot, len: usize, seed: u64) {
        // SAFETY: as in `inject`; and `slot` is the only right to the buffer.
        let message = unsafe { std::slice::from_raw_parts_mut(self.tx_at(slot.0), len) };
        pattern::fill(message, seed);
    }

    /// Writes `text` into a send buffer, and spaces up to `len`.
    pub(super) fn write(&self, slot: &TxSlot, len: usize, text: &[u8]) {
        // SAFETY: as in `fill`.
        let message = unsafe { std::slice::from_raw_parts_mut(self.tx_at(slot.0), len) };
        message.fill(b' ');
        message[..text.len()].copy_from_slice(text);
    }

    /// Copies a receive buffer's first `len` bytes.
    pub(super) fn text(&self, slot: &RxSlot, len: usize) -> Vec<u8> {
        // SAFETY: as in `check`.
        let message = unsafe { std::slice::from_raw_parts(self.rx_at(slot.0).cast_const(), len) };
        message.to_vec()
    }

    /// Checks that a receive buffer holds message `seed`.
    ///
    /// # Errors
    /// The first difference.
    pub(super) fn check(&self, slot: &RxSlot, len: usize, seed: u64) -> anyhow::Result<()> {
        // SAFETY: the buffer belongs to `slot`: its receive has completed, and the provider no
        // longer touches it; `len` bytes lie within it.
        let message = unsafe { std::slice::from_raw_parts(self.rx_at(slot.0).cast_const(), len) };
        pattern::check(message, seed)
    }

    #[inline]
    fn rx_at(&self, slot: usize) -> *mut u8 {
        // SAFETY: `slot` is below twice the number of slots, for which there is room (`begin`).
        unsafe { self.rx.add(slot * self.stride) }
    }

    #[inline]
    fn tx_at(&self, slot: usize) -> *mut u8 {
        // SAFETY: `slot` is below the number of slots, for which there is room (`begin`).
        unsafe { self.tx.add(slot * self.stride) }
    }

    /// Makes room after a full queue; any other error stands.
    #[cold]
    fn ease(&self, errno: Errno, what: &str) -> anyhow::Result<()> {
        if errno != Errno::Again {
            return Err(anyhow!("cannot post a {what}: {errno}"));
        }
        self.waiter.rest();
        match self.cq.read(&mut []) {
            Ok(_) => Ok(()),
            Err(errno) => Err(self.failure(errno)),
        }
    }

    /// What a completion queue's error means.
    #[cold]
    fn failure(&self, errno: Errno) -> anyhow::Error {
        match (errno, self.cq.read_err()) {
            (Errno::Avail, Ok(entry)) => {
                anyhow!("an operation failed: {}: {}", entry.errno, entry.detail)
            }
            _ => anyhow!("cannot read completions: {errno}"),
        }
    }
}

/// Posts a tagged receive for each tag; `memory` outlives the endpoint, and nobody reads it.
///
/// # Errors
/// What the provider says.
pub(super) fn post_for_nobody(
    ep: &dyn Endpoint,
    memory: &mut Pages,
    tags: impl Iterator<Item = u64>,
) -> anyhow::Result<()> {
    let buf = IovMut::new(memory);
    for tag in tags {
        let context = Context(NOBODY);
        // SAFETY: the memory outlives the endpoint (`Station`'s order of fields), and this module
        // touches it no more.
        let posted = unsafe {
            ep.trecv(
                buf,
                Desc::NONE,
                FiAddr::UNSPEC,
                TagMatch::exact(tag),
                context,
            )
        };
        posted.map_err(|errno| anyhow!("cannot post a receive for nobody: {errno}"))?;
    }
    Ok(())
}

/// Sends a message without bytes.
///
/// # Errors
/// What the provider says.
pub(super) fn send_nothing(ep: &dyn Endpoint, dest: FiAddr, tag: u64) -> selvedge::Result {
    // SAFETY: no memory is named.
    unsafe { ep.tsend(Iov::new(&[]), Desc::NONE, dest, tag, Context(SENT)) }
}

/// Bytes from one buffer to the next: whole cache lines.
pub(super) fn stride(size: usize) -> usize {
    size.next_multiple_of(LINE).max(LINE)
}

/// Distinguishes the contexts of sends from those of receives.
const SENT: u64 = 1 << 32;
/// The context of receives that take nothing.
const NOBODY: u64 = 1 << 33;
const LINE: usize = 64;
