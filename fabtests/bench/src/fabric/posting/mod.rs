//! Posting and completing operations. This module has the safety arguments of all posts of
//! messages.
//!
//! An [`RxSlot`] or [`TxSlot`] is the right to use a buffer. A post takes the value, and the
//! completion returns it.

#![expect(unsafe_code, reason = "posts are promises about memory")]

mod buffers;
mod unmatched;
mod waiter;

use std::cell::Cell;
use std::marker::PhantomData;

use anyhow::{anyhow, bail, ensure};
use selvedge::{CompletionQueue, Context, Endpoint, Errno, FiAddr, Iov, IovMut, TagMatch, cq};

use super::endpoint::BenchEndpoint;
use super::messages::message_api::{CHANNEL_SHIFT, MessageApi, Purpose, channel_tag};
use super::order::stride;
use super::pattern;
use crate::pair::exchange;

pub(super) use buffers::{EndpointBuffers, RxSlot, TxSlot};
use unmatched::SENT;
pub(super) use unmatched::{post_unmatched, send_empty};
pub(super) use waiter::Waiter;

/// A completion of a run.
pub(super) type Completion = exchange::Completion<RxSlot, TxSlot>;

/// One run of a benchmark: the endpoint, and buffers for messages of one size.
#[derive(Debug)]
pub(super) struct Run<'a, A> {
    ep: &'a dyn Endpoint,
    cq: &'a dyn CompletionQueue,
    peer: FiAddr,
    waiter: Waiter,
    /// Channel of sends and receives, as bits of a tag.
    channel: u64,
    /// Bits of the tag that receives ignore.
    ignore: u64,
    rx: *mut u8,
    tx: *mut u8,
    slots: usize,
    stride: usize,
    running: &'a mut bool,
    /// Posts whose completions have not been read.
    outstanding: Cell<usize>,
    /// The borrow of the buffers, which the run accesses through pointers.
    borrowed: PhantomData<(&'a mut EndpointBuffers, A)>,
}

impl<'a, A: MessageApi> Run<'a, A> {
    /// Begins a run with `window` send buffers and twice as many receive buffers of `size` bytes.
    ///
    /// # Errors
    /// When the buffers are too small, or an earlier run has left operations outstanding.
    pub(super) fn begin(
        endpoint: &'a mut BenchEndpoint,
        size: usize,
        window: usize,
    ) -> anyhow::Result<(Self, Vec<RxSlot>, Vec<TxSlot>)> {
        let resources = endpoint.message_resources();
        let buffers = resources.buffers;
        let stride = stride(size);
        ensure!(
            !buffers.running,
            "an earlier run has failed on this endpoint"
        );
        ensure!(
            window * stride <= buffers.tx.len() && 2 * window * stride <= buffers.rx.len(),
            "the buffers have no room for {window} messages of {size} bytes"
        );
        buffers.running = true;
        let run = Self {
            ep: resources.ep,
            cq: resources.cq,
            peer: resources.peer,
            waiter: resources.waiter,
            channel: 0,
            ignore: 0,
            rx: buffers.rx.as_mut_ptr(),
            tx: buffers.tx.as_mut_ptr(),
            slots: window,
            stride,
            running: &mut buffers.running,
            outstanding: Cell::new(0),
            borrowed: PhantomData,
        };
        let rx = (0..2 * window).map(RxSlot).collect();
        let tx = (0..window).map(TxSlot).collect();
        Ok((run, rx, tx))
    }

    /// Selects the channel of later sends and receives. Channel 0 is the default.
    pub(super) fn set_channel(&mut self, channel: usize) {
        self.channel = channel_tag(channel);
    }

    /// Makes later receives match all channels.
    pub(super) fn accept_all_channels(&mut self) {
        self.ignore = !0 << CHANNEL_SHIFT;
    }

    /// Selects the destination of later sends.
    pub(super) fn set_peer(&mut self, peer: FiAddr) {
        self.peer = peer;
    }

    /// Ends the run. If operations are outstanding, no other run can begin on the endpoint.
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
        let buf = IovMut::from_raw(self.rx_ptr(slot).cast(), len);
        let tag = TagMatch {
            tag: purpose as u64 | self.channel,
            ignore: self.ignore,
        };
        loop {
            // SAFETY: the buffer belongs to `slot`, which this call keeps until the completion
            // gives it back; the memory outlives the endpoint (`BenchEndpoint`'s order of fields).
            match unsafe { A::recv(self.ep, buf, tag, context) } {
                Ok(()) => break,
                Err(errno) => self.make_room(errno, "receive")?,
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
        let buf = Iov::from_raw(self.tx_ptr(slot).cast_const().cast(), len);
        let tag = purpose as u64 | self.channel;
        loop {
            // SAFETY: as in `recv`.
            match unsafe { A::send(self.ep, buf, self.peer, tag, context) } {
                Ok(()) => break,
                Err(errno) => self.make_room(errno, "send")?,
            }
        }
        self.outstanding.update(|count| count + 1);
        Ok(())
    }

    /// Sends a copy of the first `len` bytes of a buffer.
    #[inline]
    pub(super) fn inject(&self, slot: &TxSlot, len: usize, purpose: Purpose) -> anyhow::Result<()> {
        match self.try_inject(slot, len, purpose) {
            Ok(()) => Ok(()),
            Err(errno) => self.retry_inject(slot, len, purpose, errno),
        }
    }

    #[inline(always)]
    fn try_inject(&self, slot: &TxSlot, len: usize, purpose: Purpose) -> selvedge::Result {
        debug_assert!(len <= self.stride);
        let base = self.tx_ptr(slot.0).cast_const();
        // SAFETY: the buffer belongs to `slot`, so that no send reads it and no other code writes
        // it, and `len` bytes lie within it.
        let message = unsafe { std::slice::from_raw_parts(base, len) };
        A::inject(self.ep, message, self.peer, purpose as u64 | self.channel)
    }

    /// Repeats an inject that has failed with `errno` until the queue has room. This code is a
    /// separate function, so that the first attempt keeps no values in registers for a repetition.
    #[cold]
    #[inline(never)]
    fn retry_inject(
        &self,
        slot: &TxSlot,
        len: usize,
        purpose: Purpose,
        mut errno: Errno,
    ) -> anyhow::Result<()> {
        loop {
            self.make_room(errno, "inject")?;
            match self.try_inject(slot, len, purpose) {
                Ok(()) => return Ok(()),
                Err(error) => errno = error,
            }
        }
    }

    /// Reads completions into `entries` and returns their number.
    #[inline]
    pub(super) fn read(&self, entries: &mut [cq::Entry]) -> anyhow::Result<usize> {
        match self.cq.read(entries) {
            Ok(0) => self.wait(entries),
            Ok(count) => Ok(count),
            Err(errno) => Err(self.queue_error(errno)),
        }
    }

    /// Waits once as the endpoint is configured, and returns the number of completions that the
    /// wait has read.
    #[inline]
    fn wait(&self, entries: &mut [cq::Entry]) -> anyhow::Result<usize> {
        let waited = self.waiter.wait(self.cq, entries);
        waited.map_err(|errno| self.queue_error(errno))
    }

    /// Returns the completion with its buffer.
    #[inline]
    pub(super) fn completion(&self, entry: &cq::Entry) -> anyhow::Result<Completion> {
        let context = entry.context.0;
        self.outstanding.update(|count| count.wrapping_sub(1));
        let slot = (context & !SENT) as usize;
        if context & SENT != 0 && slot < self.slots {
            Ok(Completion::Sent(TxSlot(slot)))
        } else if slot < 2 * self.slots {
            Ok(Completion::Received(RxSlot(slot), entry.len))
        } else {
            bail!("a completion has context {context:#x}, which no posted operation has")
        }
    }

    /// Fills the first `len` bytes of a send buffer with the pattern of message `seed`.
    pub(super) fn fill(&self, slot: &TxSlot, len: usize, seed: u64) {
        // SAFETY: as in `inject`; and `slot` is the only right to the buffer.
        let message = unsafe { std::slice::from_raw_parts_mut(self.tx_ptr(slot.0), len) };
        pattern::fill(message, seed);
    }

    /// Writes `text` into a send buffer and pads it with spaces to `len` bytes.
    pub(super) fn write_text(&self, slot: &TxSlot, len: usize, text: &[u8]) {
        // SAFETY: as in `fill`.
        let message = unsafe { std::slice::from_raw_parts_mut(self.tx_ptr(slot.0), len) };
        message.fill(b' ');
        message[..text.len()].copy_from_slice(text);
    }

    /// Returns a copy of the first `len` bytes of a receive buffer.
    pub(super) fn copy_text(&self, slot: &RxSlot, len: usize) -> Vec<u8> {
        // SAFETY: as in `check`.
        let message = unsafe { std::slice::from_raw_parts(self.rx_ptr(slot.0).cast_const(), len) };
        message.to_vec()
    }

    /// Checks that a receive buffer holds message `seed`.
    ///
    /// # Errors
    /// The first wrong word.
    pub(super) fn check(&self, slot: &RxSlot, len: usize, seed: u64) -> anyhow::Result<()> {
        // SAFETY: the buffer belongs to `slot`: its receive has completed, and the provider no
        // longer touches it; `len` bytes lie within it.
        let message = unsafe { std::slice::from_raw_parts(self.rx_ptr(slot.0).cast_const(), len) };
        pattern::check(message, seed)
    }

    #[inline]
    fn rx_ptr(&self, slot: usize) -> *mut u8 {
        // SAFETY: `slot` is below twice the number of slots, for which there is room (`begin`).
        unsafe { self.rx.add(slot * self.stride) }
    }

    #[inline]
    fn tx_ptr(&self, slot: usize) -> *mut u8 {
        // SAFETY: `slot` is below the number of slots, for which there is room (`begin`).
        unsafe { self.tx.add(slot * self.stride) }
    }

    /// Makes progress after a post that failed because the queue was full. Returns any other error.
    #[cold]
    fn make_room(&self, errno: Errno, operation: &str) -> anyhow::Result<()> {
        if errno != Errno::Again {
            return Err(anyhow!("cannot post a {operation}: {errno}"));
        }
        self.waiter.wait_before_repost();
        match self.cq.read(&mut []) {
            Ok(_) => Ok(()),
            Err(errno) => Err(self.queue_error(errno)),
        }
    }

    /// Translates a completion queue's error.
    #[cold]
    fn queue_error(&self, errno: Errno) -> anyhow::Error {
        match (errno, self.cq.read_err()) {
            (Errno::Avail, Ok(entry)) => {
                anyhow!("an operation failed: {}: {}", entry.errno, entry.detail)
            }
            _ => anyhow!("cannot read completions: {errno}"),
        }
    }
}
